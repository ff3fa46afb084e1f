// What travels between a store and its clients: requests and answers (Exchange), changes (Watcher).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/channel.h"
#include "core/error.h"
#include "sim/store.h"

namespace rubato::sim {

// (1) to the store ──arrives, applied──▶ (2) back to the client ──arrives──▶ (3) answered. A leg whose path is cut
// waits for the path.
class SimStore::Exchange {
 public:
  Exchange(SimStore& store, uint64_t id, Node& client, LocalLoop& loop, std::function<void()> apply, Duration work);

  bool applied() const { return applied_; }
  bool answered() const { return answered_; }
  Event& changed() { return changed_; }

  // The client gives up. What has arrived is done; what waits before a cut is not sent again.
  void abandon() { abandoned_ = true; }

  void path_changed();

 private:
  bool passes() const;  // the leg it is on
  void arrive();

  SimStore& store_;
  const uint64_t id_;
  Node& client_;
  const std::function<void()> apply_;
  const Duration work_;
  bool applied_ = false, answered_ = false, abandoned_ = false, blocked_ = false;
  Event changed_;
  Due<Exchange> arrival_;
};

class SimStore::Watcher {
 public:
  Watcher(SimStore& store, Node& client, std::string prefix, Channel<StoreChange>& changes);
  ~Watcher();

  bool sees(const std::string& key) const { return key.starts_with(prefix_); }
  void publish(StoreChange change);
  void path_changed();

 private:
  struct Travelling {
    Instant at;
    StoreChange change;
  };
  void arrive();

  SimStore& store_;
  const uint64_t id_;
  Node& client_;
  const std::string prefix_;
  Channel<StoreChange>& changes_;
  std::deque<Travelling> travelling_;
  bool gap_ = false;  // something was lost: "read again" follows when the path is back
  Due<Watcher> arrival_;
};

// These two live in coroutine frames, so they are named here: g++ warns of frames with anonymous-namespace types in a
// unity build.
//
// Marks an exchange as nobody's when the frame that waits for it goes.
class StoreAsking {
 public:
  explicit StoreAsking(std::shared_ptr<SimStore::Exchange> exchange) : exchange_(std::move(exchange)) {}
  StoreAsking(const StoreAsking&) = delete;
  StoreAsking& operator=(const StoreAsking&) = delete;
  ~StoreAsking() { exchange_->abandon(); }
  SimStore::Exchange* operator->() const { return exchange_.get(); }

 private:
  std::shared_ptr<SimStore::Exchange> exchange_;
};

// What a request does and finds. Shared: the request may outlive the frame that sent it.
template <class T>
struct StoreOutcome {
  std::optional<T> value;
  std::optional<Error> error;
  T take() {
    if (error) throw *error;
    return std::move(*value);
  }
};

}  // namespace rubato::sim
