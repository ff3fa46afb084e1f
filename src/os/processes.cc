#include "os/processes.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "os/child.h"
#include "os/cpu_set.h"
#include "os/exec.h"

namespace rubato::os {

namespace {

// The guard has the pipes before there is anybody who writes to them: an agent may be killed at any moment.
class GivenToGuard {
 public:
  GivenToGuard(Family& family, const Stdio& stdio) : family_(family) {
    give(stdio.out_reader, stdio.out_keep);
    give(stdio.err_reader, stdio.err_keep);
  }
  GivenToGuard(const GivenToGuard&) = delete;
  ~GivenToGuard() {
    for (const int pipe : pipes_) family_.let_go(pipe);
  }
  void leave_to_child() { pipes_.clear(); }

 private:
  void give(const Fd& pipe, const Fd& keep) {
    if (!pipe || !keep) return;
    family_.keep(pipe.get(), keep.get());
    pipes_.push_back(pipe.get());
  }

  Family& family_;
  std::vector<int> pipes_;
};

}  // namespace

RealProcesses::RealProcesses(Runtime& runtime) : runtime_(runtime), family_(std::make_shared<Family>(runtime)) {}

bool has_terminal() { return ::isatty(STDIN_FILENO) && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

void RealProcesses::leave_daemons() { leaves_daemons_ = true; }

std::unique_ptr<Process> RealProcesses::spawn(const SpawnSpec& spec) {
  // Who ended well before left something: if there is more to run, that was no success.
  family_->take_back();
  Stdio stdio = open_stdio(spec.in, spec.out, spec.err);
  const bool with_terminal = shares_terminal_ && spec.in == InputSource::kInherit && has_terminal();
  if (with_terminal) stdio.in.reset();
  GivenToGuard given(*family_, stdio);
  if (spec.warm && zygote_) {
    std::unique_ptr<Process> worker = spawn_warm(spec, stdio);
    if (worker) {
      given.leave_to_child();
      return worker;
    }
  }
  const std::string token = family_->next_process_token();
  ExecPlan plan{.argv = spec.argv, .env = family_->with_tokens(spec.env, token), .cwd = spec.cwd};
  plan.in = stdio.in.get();
  plan.out = stdio.out.get();
  plan.err = stdio.err.get();
  plan.own_group = !with_terminal;
  plan.cpus = spec.cpus;
  ChildProcess::Start start{.pid = fork_exec(plan), .warm = false, .tokens = {token}};
  start.own_group = plan.own_group;
  start.leaves_daemons = leaves_daemons_;
  start.in = std::move(stdio.in_writer);
  start.out = std::move(stdio.out_reader);
  start.err = std::move(stdio.err_reader);
  start.out_keep = std::move(stdio.out_keep);
  start.err_keep = std::move(stdio.err_keep);
  auto child = std::make_unique<ChildProcess>(runtime_, family_, std::move(start));
  given.leave_to_child();
  return child;
}

std::unique_ptr<Process> RealProcesses::spawn_warm(const SpawnSpec& spec, Stdio& stdio) {
  const std::string token = family_->next_process_token();
  SpawnSpec marked = spec;
  marked.env = family_->with_tokens(spec.env, token);
  std::optional<Zygote::Worker> worker = zygote_->fork(marked, stdio);
  if (!worker) return nullptr;
  const CpuSet cpus(spec.cpus);
  if (cpus && !cpus.bind(worker->pid)) throw cannot_bind(spec.argv.front(), std::strerror(errno));
  // A descendant that never execs shows the environment of the interpreter it was forked from.
  ChildProcess::Start start{.pid = worker->pid, .warm = true, .tokens = {token, zygote_->token()}};
  start.leaves_daemons = leaves_daemons_;
  start.in = std::move(stdio.in_writer);
  start.out = std::move(stdio.out_reader);
  start.err = std::move(stdio.err_reader);
  start.out_keep = std::move(stdio.out_keep);
  start.err_keep = std::move(stdio.err_keep);
  auto child = std::make_unique<ChildProcess>(runtime_, family_, std::move(start));
  worker->release();
  return child;
}

void RealProcesses::prewarm(const PrewarmSpec& spec, std::function<void(std::string)> on_state) {
  zygote_.reset();
  zygote_ = std::make_unique<Zygote>(runtime_, family_, spec, std::move(on_state));
}

}  // namespace rubato::os
