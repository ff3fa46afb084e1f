#include "sim/store.h"

#include <algorithm>

#include "core/error.h"
#include "sim/store_client.h"

namespace rubato::sim {

struct SimStore::Lease {
  Lease(SimStore& store_in, int64_t id_in, Duration ttl_in)
      : store(store_in), id(id_in), ttl(ttl_in), expiry(*this, &Lease::expire) {}
  void expire() {
    store.simulator_.mark("store.lease_expired");
    store.revoke(id);
  }
  void refresh() { store.simulator_.arm(expiry, store.simulator_.now() + ttl); }

  SimStore& store;
  const int64_t id;
  const Duration ttl;
  Due<Lease> expiry;
};

SimStore::SimStore(SimNetwork& network)
    : network_(network), simulator_(network.simulator()), node_(network.add_node("etcd")) {
  CHECK(node_.id == 0);
  network_.on_change([this] { network_changed(); });
}

SimStore::~SimStore() = default;

void SimStore::set_up(bool up) {
  if (node_.up == up) return;
  node_.up = up;
  simulator_.mark(up ? "store.recovery" : "store.outage");
  simulator_.record(EventKind::kStore, node_.id, up);
  for (const auto& [id, lease] : leases_) {
    if (up) {
      lease->refresh();
    } else {
      lease->expiry.disarm();
    }
  }
  network_.changed();
}

CommitResult SimStore::commit(const std::vector<StoreCondition>& conditions, const std::vector<StoreWrite>& writes) {
  const bool holds = std::all_of(conditions.begin(), conditions.end(), [this](const StoreCondition& condition) {
    const auto found = entries_.find(condition.key);
    return (found == entries_.end() ? 0 : found->second.created) == condition.created;
  });
  if (!holds) return CommitResult{false, revision_};
  for (const StoreWrite& write : writes) {
    if (write.lease != 0 && !leases_.contains(write.lease)) {
      throw Error(ErrorCode::kNotFound, "lease " + std::to_string(write.lease) + " is not there", "etcd");
    }
  }
  ++revision_;
  for (const StoreWrite& write : writes) apply_write(write);
  return CommitResult{true, revision_};
}

void SimStore::apply_write(const StoreWrite& write) {
  simulator_.record(EventKind::kStore, node_.id, hash_of(write.key) ^ static_cast<uint64_t>(revision_));
  if (!write.value) {
    erase(write.key);
    return;
  }
  StoreEntry& entry = entries_[write.key];
  if (entry.created == 0) {
    entry.key = write.key;
    entry.created = revision_;
  }
  entry.value = *write.value;
  entry.modified = revision_;
  lease_of_.erase(write.key);
  if (write.lease != 0) lease_of_[write.key] = write.lease;
  publish(write.key, write.value);
}

void SimStore::erase(const std::string& key) {
  lease_of_.erase(key);
  if (entries_.erase(key) > 0) publish(key, std::nullopt);
}

void SimStore::publish(const std::string& key, const std::optional<std::string>& value) {
  for (const auto& [id, watcher] : watchers_) {
    if (watcher->sees(key)) watcher->publish(StoreChange{key, value, revision_});
  }
}

int64_t SimStore::grant(Duration ttl) {
  const Duration whole = std::chrono::ceil<std::chrono::seconds>(std::max(ttl, lease_ttl_min));
  const int64_t id = next_lease_++;
  std::unique_ptr<Lease>& lease = leases_[id];
  lease = std::make_unique<Lease>(*this, id, whole);
  lease->refresh();
  return id;
}

bool SimStore::renew(int64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return false;
  found->second->refresh();
  return true;
}

void SimStore::revoke(int64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  const std::unique_ptr<Lease> gone = std::move(found->second);  // we may be inside its expiry
  leases_.erase(found);
  std::vector<std::string> keys;
  for (const auto& [key, holder] : lease_of_) {
    if (holder == lease) keys.push_back(key);
  }
  if (keys.empty()) return;
  ++revision_;
  simulator_.record(EventKind::kStore, node_.id, static_cast<uint64_t>(revision_));
  for (const std::string& key : keys) erase(key);
}

std::shared_ptr<SimStore::Exchange> SimStore::send(Node& client, LocalLoop& loop, std::function<void()> apply,
                                                   Duration work) {
  const uint64_t id = next_id_++;
  auto exchange = std::make_shared<Exchange>(*this, id, client, loop, std::move(apply), work);
  exchanges_.emplace(id, exchange);
  return exchange;
}

void SimStore::network_changed() {
  std::vector<std::shared_ptr<Exchange>> open;
  for (const auto& [id, exchange] : exchanges_) open.push_back(exchange);
  for (const auto& exchange : open) exchange->path_changed();
  for (const auto& [id, watcher] : watchers_) watcher->path_changed();
}

}  // namespace rubato::sim
