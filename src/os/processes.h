// RealProcesses: world/processes.h on this machine.
//
// One per process, made at its start: it becomes the subreaper of its descendants, reaps every child that no Process
// owns, and starts the guard (guard.h). Each process it starts carries RUBATO_AGENT_TOKEN and RUBATO_PROCESS_TOKEN in
// its environment. All calls come from the thread that runs `runtime`, and that thread must live as long as the
// process: the kernel's death signal follows the thread. Every Process must be gone before this and `runtime` are.
#pragma once

#include <memory>

#include "os/family.h"
#include "os/runtime.h"
#include "os/zygote.h"
#include "world/processes.h"

namespace rubato::os {

// Our standard input is a terminal, and this process is in its foreground: it may read.
bool has_terminal();

class RealProcesses final : public Processes {
 public:
  explicit RealProcesses(Runtime& runtime);

  // Processes with InputSource::kInherit share our terminal from now on: they stay in our process group, so that they
  // may read from it, and Ctrl-C and Ctrl-Z reach them as they reach us. Not for warm ones.
  void share_terminal() { shares_terminal_ = true; }

  // What a process that ended well, without a signal from us, has started and left behind goes on, and is not ended
  // with us either. What others left is ended as ever.
  void leave_daemons();

  std::unique_ptr<Process> spawn(const SpawnSpec& spec) override;
  void prewarm(const PrewarmSpec& spec, std::function<void(std::string)> on_state) override;

  const Family& family() const { return *family_; }
  const Zygote* zygote() const { return zygote_.get(); }  // null: none wanted

 private:
  std::unique_ptr<Process> spawn_warm(const SpawnSpec& spec, Stdio& stdio);  // null: not possible now

  Runtime& runtime_;
  bool shares_terminal_ = false;
  bool leaves_daemons_ = false;
  std::shared_ptr<Family> family_;
  std::unique_ptr<Zygote> zygote_;
};

}  // namespace rubato::os
