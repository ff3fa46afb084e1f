// Guard: no worker outlives its agent, however the agent dies.
//
// The kernel's death signal reaches only direct children. So the agent forks a small process that holds one end of a
// socket. When the agent is gone, the socket ends, and the guard kills
//   1. every process group that the agent had registered, and
//   2. every process that was started with the agent's token in its environment (grandchildren in their own session),
// until none is left, and exits. It keeps none of the agent's descriptors and blocks all signals, so that it neither
// holds a reader of the agent's output nor falls to a Ctrl-C. Should somebody kill it, a new one is started.
//
// What it cannot catch: a grandchild in its own session that also dropped the token from its environment.
#pragma once

#include <sys/types.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <set>
#include <string>

#include "os/fd.h"

namespace rubato::os {

class Runtime;

class Guard {
 public:
  // Throws an Error when it cannot be started.
  Guard(Runtime& runtime, std::string token);
  // The guard looks for what is left and ends before this returns (a few ms; at most kPatience).
  ~Guard();

  void add(pid_t group);
  void remove(pid_t group);  // before the group's leader is reaped: its number may be given anew afterwards

  pid_t pid() const { return pid_; }

 private:
  void start();
  void watch();
  void send(int32_t message);

  std::string entry_;  // NAME=token
  std::set<pid_t> groups_;
  pid_t pid_ = -1;
  int starts_left_ = 100;  // somebody who kills it more often does not want it
  boost::asio::posix::stream_descriptor socket_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // a handler that finds it gone touches nothing
};

}  // namespace rubato::os
