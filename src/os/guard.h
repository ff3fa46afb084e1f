// Guard: no worker outlives its agent, however the agent dies.
//
// The kernel's death signal reaches only direct children. So the agent forks a small process that holds one end of a
// socket. When the agent is gone, the socket ends, and the guard kills
//   1. every process group that the agent had registered, and
//   2. every process that was started with the agent's token in its environment (grandchildren in their own session),
// until none is left. Then it takes what they had written and the agent had not read, and exits: it holds the pipes
// that it was given with keep(), and the bytes that are left in one go to the end of its file. It has none of the
// agent's other descriptors and blocks all signals, so that it neither holds a reader of the agent's output nor falls
// to a Ctrl-C. Should somebody kill it, a new one is started.
//
// It also ends groups at their time (end_by), whether or not the agent runs then: an agent that is stopped cannot keep
// the promise that its workers end when its head has not heard it for too long. The times are in memory that both
// share: a guard that did not run for a while sees the newest ones first.
//
// What it cannot catch: a grandchild in its own session that also dropped the token from its environment.
#pragma once

#include <sys/types.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/time.h"
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

  // It gets SIGKILL then, if it is there and no other time was given meanwhile. Of the runtime's clock.
  void end_by(pid_t group, Instant time);

  // The two are descriptors of this process, which stay open until the pipe is let go.
  void keep(int pipe, int file);
  void let_go(int pipe);

  // It ends at once and kills nobody: what is left may live.
  void dismiss();

  pid_t pid() const { return pid_; }

 private:
  void start();
  void watch();
  void send_group(int32_t group);
  void send_pipe(int32_t pipe, int file);

  struct Deadlines;
  struct Unmap {
    void operator()(Deadlines* deadlines) const;
  };
  std::unique_ptr<Deadlines, Unmap> deadlines_;  // shared with the guard

  std::string entry_;  // NAME=token
  std::set<pid_t> groups_;
  std::map<int, int> kept_;  // files by pipe
  pid_t pid_ = -1;
  int starts_left_ = 100;  // somebody who kills it more often does not want it
  boost::asio::posix::stream_descriptor socket_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // a handler that finds it gone touches nothing
};

}  // namespace rubato::os
