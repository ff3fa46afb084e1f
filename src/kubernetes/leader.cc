#include "kubernetes/leader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/scope.h"

namespace rubato::kubernetes {

using nlohmann::json;

namespace {

// MicroTime has six digits.
std::string micro_time(WallTime time) {
  std::string text = format_time(time);  // ...:46.123Z
  text.insert(text.size() - 1, "000");
  return text;
}

}  // namespace

LeaseMove decide_lease(const std::optional<LeaseSeen>& seen, const std::string& self, Instant now) {
  if (!seen) return LeaseMove::kCreate;
  if (seen->holder == self) return LeaseMove::kRenew;
  if (seen->holder.empty() || now - seen->changed >= seen->duration) return LeaseMove::kTake;
  return LeaseMove::kWait;
}

Leader::Leader(Client& client, ObjectName lease, std::string self, Log log, LeaderTerms terms)
    : client_(client), lease_(std::move(lease)), self_(std::move(self)), log_(std::move(log)), terms_(terms) {}

Task<void> Leader::write(bool create) {
  const bool taking = !seen_ || seen_->holder != self_;
  const std::string now = micro_time(client_.world().clock.wall());
  if (taking) acquired_at_ = now;
  json spec = {{"holderIdentity", self_},
               {"leaseDurationSeconds", to_ms(terms_.lease) / 1000},
               {"acquireTime", acquired_at_},
               {"renewTime", now},
               {"leaseTransitions", transitions_ + (taking && !create ? 1 : 0)}};
  json document = {{"apiVersion", "coordination.k8s.io/v1"},
                   {"kind", "Lease"},
                   {"metadata", {{"name", lease_.name}, {"namespace", lease_.namespace_name}}},
                   {"spec", std::move(spec)}};
  json written;
  if (create) {
    written = co_await client_.create(leases(), lease_.namespace_name, std::move(document));
  } else {
    document["metadata"]["resourceVersion"] = seen_->resource_version;  // who wrote since then has won
    written = co_await client_.replace(leases(), lease_, std::move(document));
  }
  transitions_ = int_in(object_in(written, "spec"), "leaseTransitions");
  LeaseSeen seen;
  seen.holder = self_;
  seen.resource_version = text_in(object_in(written, "metadata"), "resourceVersion");
  seen.changed = client_.world().clock.now();
  seen_ = std::move(seen);
}

Task<bool> Leader::try_once() {
  const bool holding = seen_ && seen_->holder == self_;
  if (!holding) {
    const std::optional<json> found = co_await client_.find(leases(), lease_);
    if (!found) seen_.reset();
    if (found) {
      const json& spec = object_in(*found, "spec");
      LeaseSeen now;
      now.holder = text_in(spec, "holderIdentity");
      now.resource_version = text_in(object_in(*found, "metadata"), "resourceVersion");
      now.duration = std::chrono::seconds(std::max<int64_t>(1, int_in(spec, "leaseDurationSeconds", 15)));
      now.changed = client_.world().clock.now();
      transitions_ = int_in(spec, "leaseTransitions");
      if (!seen_ || seen_->resource_version != now.resource_version) seen_ = std::move(now);
    }
  }
  switch (decide_lease(seen_, self_, client_.world().clock.now())) {
    case LeaseMove::kWait:
      co_return false;
    case LeaseMove::kCreate:
      co_await write(true);
      co_return true;
    case LeaseMove::kTake:
    case LeaseMove::kRenew:
      co_await write(false);
      co_return true;
  }
  co_return false;
}

bool Leader::holds() const { return held_ && client_.world().clock.now() - *held_ < terms_.give_up_after; }

Task<void> Leader::acquire() {
  World& world = client_.world();
  std::string told;
  while (true) {
    std::string why;
    const Instant asked = world.clock.now();
    try {
      const bool ours = co_await try_once();
      if (ours) held_ = asked;
      // An answer that took longer than the lease says nothing.
      if (holds()) co_return;
      why = seen_ ? "another operator leads: " + seen_->holder : "";
    } catch (const Error& error) {
      if (error.code == ErrorCode::kAuth) throw;
      if (error.code == ErrorCode::kConflict) seen_.reset();
      why = error.message;
    }
    if (why != told) log_.info("waiting to lead", {{"why", why}});
    told = why;
    co_await Sleep(world.clock.loop(), world.clock.now() + terms_.renew_every / 2);
  }
}

Task<void> Leader::keep() {
  World& world = client_.world();
  Duration wait = terms_.renew_every;
  while (true) {
    const Instant next = std::min(*held_ + terms_.give_up_after, world.clock.now() + wait);
    co_await Sleep(world.clock.loop(), next);
    if (!holds()) break;
    const Instant asked = world.clock.now();
    wait = terms_.renew_every;
    bool lost = false;
    std::string why;
    try {
      Task<bool> trying = try_once();
      const std::optional<bool> ours =
          co_await with_deadline(world.clock.loop(), *held_ + terms_.give_up_after, std::move(trying));
      if (ours && *ours) held_ = asked;
      lost = ours && !*ours;
      if (!ours) why = "the API server has not answered in time";
    } catch (const Error& error) {
      why = error.message;
      // Somebody wrote it: another operator, or we ourselves, and the answer was lost. Reading it tells.
      if (error.code == ErrorCode::kConflict || error.code == ErrorCode::kNotFound) {
        seen_.reset();
        wait = terms_.renew_every / 10;
      }
    }
    if (!why.empty()) log_.warning("cannot renew the lease", {{"why", why}});
    if (lost) break;
  }
  seen_.reset();
  held_.reset();
  log_.error("not the leader any more", {{"lease", to_string(lease_)}});
}

Task<void> Leader::release() {
  held_.reset();
  if (!seen_ || seen_->holder != self_) co_return;
  json document = {{"metadata", {{"resourceVersion", seen_->resource_version}}}, {"spec", {{"holderIdentity", ""}}}};
  try {
    co_await client_.merge_patch(leases(), lease_, "", std::move(document));
  } catch (const Error&) {
    // It runs out by itself.
  }
  seen_.reset();
}

}  // namespace rubato::kubernetes
