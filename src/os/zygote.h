// Zygote: one Python interpreter that has imported the heavy modules and forks each worker.
//
//   starting ──ready──▶ ready ──refused──▶ off
//      │ ▲                │                 ▲
//      │ └─died, restarts ┘                 │
//      └──refused, or died too often────────┘   off: the reason is told once, spawns are cold for good
//
// The interpreter (src/python/zygote.py) and we talk over a socket: it says {"ready":true} or {"refused":reason} in
// lines; a request is a length and JSON, with the worker's stdin, stdout, stderr and a go pipe as descriptors. The
// worker is forked twice, so that it becomes the child of this agent (a subreaper), and runs nothing before it reads
// a byte from its go pipe: one that we do not know of ends instead of running the program a second time.
#pragma once

#include <sys/types.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/line_buffer.h"
#include "core/loop.h"
#include "os/exec.h"
#include "os/family.h"
#include "os/fd.h"
#include "world/processes.h"

namespace rubato::os {

class ChildProcess;
class Runtime;

class Zygote {
 public:
  using StateChange = std::function<void(std::string)>;

  // Starts the interpreter at once; `on_state` is called from the loop, never from here or from fork().
  Zygote(Runtime& runtime, std::shared_ptr<Family> family, PrewarmSpec spec, StateChange on_state);
  ~Zygote();

  struct Worker {
    pid_t pid = -1;
    Fd go;
    void release();  // lets it run; destroying the Worker without it ends the process
  };
  // A worker with spec.env as it is, or nullopt: not ready, or it must be started cold. Takes two forks of the
  // interpreter (about 4 ms each with torch imported), during which the loop stands still.
  std::optional<Worker> fork(const SpawnSpec& spec, const Stdio& stdio);

  bool ready() const { return state_ == State::kReady; }
  pid_t pid() const;  // -1: none
  const std::string& token() const { return token_; }

 private:
  enum class State { kStarting, kReady, kOff };

  void start();
  ExecPlan plan_for(const std::string& message) const;
  void watch();
  void receive();  // what has come, without waiting
  std::optional<std::string> next_line();
  std::optional<std::string> wait_for_line();
  void on_line(const std::string& line);
  bool usable_for(const SpawnSpec& spec);
  void died();
  void turn_off(std::string reason);
  bool send(const std::string& message, const int* fds, size_t fd_count);

  Runtime& runtime_;
  std::shared_ptr<Family> family_;
  PrewarmSpec spec_;
  StateChange on_state_;
  State state_ = State::kStarting;
  std::string token_;
  std::unique_ptr<ChildProcess> interpreter_;
  boost::asio::posix::stream_descriptor socket_;
  LineBuffer received_;
  bool ended_ = false;  // the socket was closed on the other side
  int restarts_left_ = 3;
  Alarm hurry_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

// The first variable that differs between the two environments and is read while modules are imported, or by the
// interpreter or the dynamic linker at their start. Changing it after the import has no effect.
std::optional<std::string> frozen_difference(const std::vector<std::string>& imported_with,
                                             const std::vector<std::string>& wanted);

}  // namespace rubato::os
