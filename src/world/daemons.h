// Daemons: processes that go on when this one ends (a head, a node's agent), each known by its folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rubato {

struct DaemonSpec {
  std::string folder;             // its own; made if absent, 0700. Holds daemon.lock, daemon.pid and daemon.log
  std::vector<std::string> argv;  // argv[0] is a path
  std::vector<std::string> env;   // NAME=value, the whole environment
  int cpus = 0;                   // may use so many CPUs at once; 0: all
  int64_t memory_bytes = 0;       // 0: no limit
  std::string netns;              // the network namespace to enter; empty: ours
};

class Daemons {
 public:
  virtual ~Daemons() = default;

  // Starts it in a session of its own, output to daemon.log. Nothing happens when one runs for this folder already.
  // Throws when it cannot be started. The daemon holds a lock on daemon.lock for as long as it lives.
  virtual void start(const DaemonSpec& spec) = 0;

  // Its process, if it is alive. A number that was given to another process since is not mistaken for it.
  virtual std::optional<int> running(const std::string& folder) = 0;

  // Does nothing when it is gone.
  virtual void signal(const std::string& folder, int signal) = 0;
};

}  // namespace rubato
