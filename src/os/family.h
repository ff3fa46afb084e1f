// Family: the processes that descend from this agent, and the rules by which they end.
//
// A child is *owned* while its ChildProcess lives. As a subreaper the agent also adopts orphans, such as a helper that
// a worker started in its own session. At every death the adopted ones are looked through: the dead are reaped, and
// one whose spawn (its process token) is no longer alive is killed; its own children are adopted in turn.
#pragma once

#include <sys/types.h>

#include <boost/asio/signal_set.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "os/guard.h"

namespace rubato::os {

class ChildProcess;
class Runtime;

class Family {
 public:
  explicit Family(Runtime& runtime);
  ~Family();

  const std::string& token() const { return token_; }
  // A name for the next spawn, unique on this machine.
  std::string next_process_token();
  // The environment with the tokens put in, in place of those that we were started with ourselves.
  std::vector<std::string> with_tokens(std::vector<std::string> env, const std::string& process_token) const;

  // A ChildProcess enters when it has its pid and leaves before it is reaped.
  void enter(pid_t pid, ChildProcess& child);
  void leave(pid_t pid);

  // What is in this pipe when we are killed goes to the end of this file. Let go before the pipe is closed.
  void keep(int pipe, int file) { guard_.keep(pipe, file); }
  void let_go(int pipe) { guard_.let_go(pipe); }

  // SIGKILL for this group at that time, by the guard.
  void end_by(pid_t group, Instant time) { guard_.end_by(group, time); }

  // Kills and reaps adopted processes whose spawn is over.
  void sweep();

  // What these spawns left behind may live, also after us, unless it is taken back before.
  void let_live(const std::vector<std::string>& tokens) { let_live_.insert(tokens.begin(), tokens.end()); }
  void take_back();

  pid_t guard_pid() const { return guard_.pid(); }

 private:
  void watch_deaths();
  bool may_live(pid_t adopted) const;

  std::string token_;
  Guard guard_;
  std::map<pid_t, ChildProcess*> owned_;
  std::set<std::string> let_live_;  // process tokens
  uint64_t spawns_ = 0;
  boost::asio::signal_set deaths_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace rubato::os
