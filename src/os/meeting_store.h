// RealMeetingStore: the store in which the members of a generation meet, on a port of this machine.
//
// Lines of JSON, one reply for each request, in order; python/rubato/_store.py has the protocol, and its client.
#pragma once

#include "core/scope.h"
#include "os/server_wire.h"
#include "world/in_place.h"
#include "world/key_table.h"

namespace rubato::os {

class RealMeetingStore final : public MeetingStore {
 public:
  // Listens and serves at once. Throws what Acceptor does.
  RealMeetingStore(Runtime& runtime, const std::string& token, bool loopback);
  ~RealMeetingStore() override;
  uint16_t port() const override { return door_->port(); }

 private:
  Task<void> serve();
  Task<void> converse(std::shared_ptr<ServerWire> wire);
  Task<std::string> answer(std::string line);
  Task<bool> wait_for(std::vector<std::string> keys, Duration most);

  Runtime& runtime_;
  std::string token_;
  std::shared_ptr<ServerDoor> door_;
  KeyTable table_;
  Event changed_;
  int connections_ = 0;
  Scope scope_;
};

}  // namespace rubato::os
