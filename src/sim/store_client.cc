#include "sim/store_client.h"

#include <algorithm>

#include "core/error.h"

namespace rubato::sim {

SimStore::Exchange::Exchange(SimStore& store, uint64_t id, Node& client, LocalLoop& loop, std::function<void()> apply,
                             Duration work)
    : store_(store),
      id_(id),
      client_(client),
      apply_(std::move(apply)),
      work_(work),
      changed_(loop),
      arrival_(*this, &Exchange::arrive) {
  store_.simulator_.arm(arrival_, store_.simulator_.now() + store_.network_.latency(client.id, store.node_.id));
}

// A request that has left arrives even if its sender has lost power meanwhile.
bool SimStore::Exchange::passes() const {
  return applied_ ? store_.network_.deliverable(store_.node_.id, client_.id)
                  : store_.network_.deliverable(client_.id, store_.node_.id);
}

void SimStore::Exchange::arrive() {
  const std::shared_ptr<Exchange> keep = store_.exchanges_.at(id_);
  Simulator& simulator = store_.simulator_;
  if (!passes()) {
    blocked_ = true;
    if (abandoned_) store_.exchanges_.erase(id_);
    return;
  }
  if (!applied_) {
    apply_();
    applied_ = true;
    simulator.arm(arrival_, simulator.now() + work_ + store_.network_.latency(store_.node_.id, client_.id));
    return;
  }
  answered_ = true;
  store_.exchanges_.erase(id_);
  changed_.notify();
}

void SimStore::Exchange::path_changed() {
  if (!blocked_) return;
  if (abandoned_) {
    store_.exchanges_.erase(id_);
    return;
  }
  if (!passes()) return;
  blocked_ = false;
  SimNetwork& network = store_.network_;
  const Duration late = network.random_up_to(network.faults.retransmit_min);
  store_.simulator_.arm(arrival_, store_.simulator_.now() + network.faults.latency_min + late);
}

SimStore::Watcher::Watcher(SimStore& store, Node& client, std::string prefix, Channel<StoreChange>& changes)
    : store_(store),
      id_(store.next_id_++),
      client_(client),
      prefix_(std::move(prefix)),
      changes_(changes),
      arrival_(*this, &Watcher::arrive) {
  store_.watchers_.emplace(id_, this);
  gap_ = !store_.reaches(client_);
}

SimStore::Watcher::~Watcher() { store_.watchers_.erase(id_); }

void SimStore::Watcher::publish(StoreChange change) {
  if (gap_) return;
  const Instant soonest = store_.simulator_.now() + store_.network_.latency(store_.node_.id, client_.id);
  const Instant at = travelling_.empty() ? soonest : std::max(soonest, travelling_.back().at);
  travelling_.push_back(Travelling{at, std::move(change)});
  if (!arrival_.armed()) store_.simulator_.arm(arrival_, at);
}

void SimStore::Watcher::arrive() {
  if (!store_.reaches(client_)) {
    travelling_.clear();
    gap_ = true;
    return;
  }
  StoreChange change = std::move(travelling_.front().change);
  travelling_.pop_front();
  if (!travelling_.empty()) store_.simulator_.arm(arrival_, travelling_.front().at);
  changes_.push(std::move(change));
}

void SimStore::Watcher::path_changed() {
  if (!gap_ || !store_.reaches(client_)) return;
  gap_ = false;
  store_.simulator_.mark("store.watch_gap");
  StoreChange read_again;
  read_again.revision = store_.revision_;
  publish(std::move(read_again));
}

Task<void> ProgramStore::ask(std::function<void()> apply, Duration work, Instant deadline) {
  const StoreAsking asking(store_.send(node_, loop_, std::move(apply), work));
  while (!asking->answered() && loop_.now() < deadline) co_await asking->changed().wait_until(deadline);
  if (asking->answered()) co_return;
  if (asking->applied()) store_.mark_lost_answer();
  throw Error(ErrorCode::kUnavailable, "no answer from the store", "etcd");
}

Task<std::optional<StoreEntry>> ProgramStore::get(std::string key, Instant deadline) {
  auto found = std::make_shared<std::optional<StoreEntry>>();
  std::function<void()> apply = [&store = store_, key, found] {
    const auto at = store.entries().find(key);
    if (at != store.entries().end()) *found = at->second;
  };
  Task<void> asked = ask(std::move(apply), Duration::zero(), deadline);
  co_await std::move(asked);
  co_return std::move(*found);
}

Task<std::vector<StoreEntry>> ProgramStore::scan(std::string prefix, Instant deadline) {
  auto found = std::make_shared<std::vector<StoreEntry>>();
  std::function<void()> apply = [&store = store_, prefix, found] {
    const auto& entries = store.entries();
    for (auto at = entries.lower_bound(prefix); at != entries.end() && at->first.starts_with(prefix); ++at) {
      found->push_back(at->second);
    }
  };
  Task<void> asked = ask(std::move(apply), Duration::zero(), deadline);
  co_await std::move(asked);
  co_return std::move(*found);
}

Task<CommitResult> ProgramStore::commit(std::vector<StoreCondition> conditions, std::vector<StoreWrite> writes,
                                        Instant deadline) {
  auto outcome = std::make_shared<StoreOutcome<CommitResult>>();
  std::function<void()> apply = [&store = store_, conditions, writes, outcome] {
    try {
      outcome->value = store.commit(conditions, writes);
    } catch (const Error& error) {
      outcome->error = error;
    }
  };
  Task<void> asked = ask(std::move(apply), store_.commit_delay, deadline);
  co_await std::move(asked);
  co_return outcome->take();
}

Task<int64_t> ProgramStore::grant_lease(Duration ttl, Instant deadline) {
  auto lease = std::make_shared<int64_t>(0);
  std::function<void()> apply = [&store = store_, ttl, lease] { *lease = store.grant(ttl); };
  Task<void> asked = ask(std::move(apply), store_.commit_delay, deadline);
  co_await std::move(asked);
  co_return *lease;
}

Task<bool> ProgramStore::renew_lease(int64_t lease, Instant deadline) {
  auto alive = std::make_shared<bool>(false);
  std::function<void()> apply = [&store = store_, lease, alive] { *alive = store.renew(lease); };
  Task<void> asked = ask(std::move(apply), Duration::zero(), deadline);
  co_await std::move(asked);
  co_return *alive;
}

Task<void> ProgramStore::revoke_lease(int64_t lease, Instant deadline) {
  std::function<void()> apply = [&store = store_, lease] { store.revoke(lease); };
  Task<void> asked = ask(std::move(apply), store_.commit_delay, deadline);
  co_await std::move(asked);
}

Task<void> ProgramStore::watch(std::string prefix, Channel<StoreChange>& changes) {
  const SimStore::Watcher watcher(store_, node_, std::move(prefix), changes);
  Event never(loop_);
  while (true) co_await never.wait();
}

}  // namespace rubato::sim
