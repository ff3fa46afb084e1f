// RealMeetingStore: the store in which the members of a generation meet, on a port of this machine.
//
// Lines of JSON, one reply for each request, in order; python/rubato/_store.py has the protocol, and its client.
// Whoever has not shown the token yet is a stranger: he has a place of ConnectionPlaces, and may send one short line.
// Large lines are read, and large replies written, beside the loop: the agent's beats go through it.
#pragma once

#include <memory>

#include "core/gate.h"
#include "core/scope.h"
#include "core/turns.h"
#include "os/bulk_work.h"
#include "os/connection_places.h"
#include "os/server_wire.h"
#include "world/in_place.h"
#include "world/key_table.h"

namespace rubato::os {

class RealMeetingStore final : public MeetingStore {
 public:
  static constexpr size_t kHelloBytesMax = 4 << 10;
  static constexpr size_t kReplyBytesMax = size_t{16} << 20;  // of the values that one request asks for

  // Listens and serves at once. Throws what Acceptor does.
  RealMeetingStore(Runtime& runtime, const std::string& token, bool loopback);
  ~RealMeetingStore() override;
  uint16_t port() const override { return door_->port(); }

 private:
  Task<void> serve();
  // Of the strangers: false when there is none in this place.
  bool close_place(std::optional<ConnectionPlaces::Id> place);
  Task<void> converse(std::shared_ptr<ServerWire> wire, ConnectionPlaces::Id place);
  Task<bool> take_hello(std::shared_ptr<ServerWire> wire, ConnectionPlaces::Id place);
  Task<std::string> answer(std::string line);
  Task<std::string> answer_get(std::vector<std::string> keys, Duration most);
  Task<std::string> write_values(std::vector<std::string> keys);
  Task<void> wait_for_key(std::string key, Instant deadline);
  Task<Gate::Pass> take_turn();
  void wake(const std::string& key);
  Task<void> beside(std::function<void()> work);

  Runtime& runtime_;
  std::string token_;
  std::shared_ptr<ServerDoor> door_;
  KeyTable table_;
  struct Awaited {
    explicit Awaited(Loop& loop) : is_set(loop) {}
    Event is_set;
    int waiters = 0;
  };
  std::map<std::string, Awaited> awaited_;  // by key: who waits for another one is not woken
  // Many may ask, or be answered, at once: they do so one after the other, and others of this loop in between.
  Gate gate_;
  Turns turns_;
  std::unique_ptr<BulkWork> bulk_;                                         // once it is needed
  ConnectionPlaces places_;                                                // of those who have not shown the token yet
  std::map<ConnectionPlaces::Id, std::shared_ptr<ServerWire>> strangers_;  // by their places
  int connections_ = 0;                                                    // of the others
  Scope scope_;
};

}  // namespace rubato::os
