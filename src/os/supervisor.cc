#include "os/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>

#include "core/error.h"
#include "os/daemons.h"
#include "os/fd.h"
#include "os/proc_scan.h"
#include "os/stand_in.h"

namespace rubato::os {
namespace {

using Steady = std::chrono::steady_clock;

constexpr Duration kStopMax = 10s;              // from SIGTERM to a daemon until we leave it alone
constexpr int kPollWithoutPidfd_ms = 100;       // an old kernel
constexpr const char* kUnknownEnd = "its end";  // of somebody else's child

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

int milliseconds_until(Steady::time_point due) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Steady::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

class Supervisor {
 public:
  Supervisor(const SupervisorSettings& settings, const Log& log)
      : settings_(settings), log_(log), seen_(settings.before) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t ours;
    sigemptyset(&ours);
    for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&ours, signal);
    ::pthread_sigmask(SIG_BLOCK, &ours, nullptr);
    signals_ = Fd(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) throw Error(ErrorCode::kFailed, "cannot make a signalfd");
    if (settings.replace) stand_in_.emplace(settings.is_wanted, settings.replace);
  }

  void run() {
    while (true) {
      if (stand_in_) stand_in_->keep();
      if (pid_ == 0) find_running();
      if (pid_ == 0 && (is_stopping_ || !settings_.is_wanted())) return;
      if (pid_ == 0 && Steady::now() >= due_) start();
      if (is_stopping_ && Steady::now() >= due_) {
        log_.warning("the daemon does not end", {{"pid", pid_}});
        return;
      }
      wait();
      if (pid_ != 0 && has_ended()) {
        if (settings_.has_ended_for_good()) return;
        note_end(end_cause());
      }
    }
  }

 private:
  void watch(int pid) {
    pid_ = pid;
    pidfd_ = open_pidfd(pid);
    status_.reset();
    began_ = Steady::now();
  }

  void find_running() {
    const std::optional<int> pid = daemons_.running(settings_.folder);
    if (!pid) return;
    watch(*pid);
    settings_.note(seen_);
  }

  void start() {
    try {
      DaemonSpec spec = settings_.spec(pending_cause_);
      if (!pending_cause_.empty()) ++seen_.restarts;
      settings_.note(seen_);
      began_ = Steady::now();
      daemons_.start(spec);
    } catch (const Error& error) {
      note_end(error.message);
      return;
    }
    const std::optional<int> pid = daemons_.running(settings_.folder);
    if (pid) {
      watch(*pid);
      return;
    }
    // It is dead already; its number is still in its file.
    int last = 0;
    std::ifstream(settings_.folder + "/daemon.pid") >> last;
    if (last > 0) {
      watch(last);
    } else {
      note_end(kUnknownEnd);
    }
  }

  // Until a signal, the daemon's end, or the time of the next start.
  void wait() {
    pollfd watched[2] = {{signals_.get(), POLLIN, 0}, {pidfd_ ? pidfd_.get() : -1, POLLIN, 0}};
    int timeout = -1;
    if (pid_ == 0 || is_stopping_) timeout = milliseconds_until(due_);
    if (pid_ != 0 && !pidfd_) timeout = kPollWithoutPidfd_ms;
    if (const auto due = stand_in_ ? stand_in_->until_due() : std::nullopt) {
      const int soon = milliseconds_until(Steady::now() + *due);
      timeout = timeout < 0 ? soon : std::min(timeout, soon);
    }
    ::poll(watched, 2, timeout);
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo != SIGCHLD) stop();
    }
    reap();
  }

  // The daemon, the processes that forked it, and what the daemon has left behind: its children are ours now.
  void reap() {
    int status = 0;
    for (pid_t ended = ::waitpid(-1, &status, WNOHANG); ended > 0; ended = ::waitpid(-1, &status, WNOHANG)) {
      if (ended == pid_) status_ = status;
      if (stand_in_) stand_in_->note_end(ended);
    }
  }

  void stop() {
    is_stopping_ = true;
    if (stand_in_) stand_in_->end();
    due_ = Steady::now() + kStopMax;
    daemons_.signal(settings_.folder, SIGTERM);
  }

  bool has_ended() {
    if (status_) return true;
    if (!pidfd_) return daemons_.running(settings_.folder) != pid_;
    pollfd ended{pidfd_.get(), POLLIN, 0};
    if (::poll(&ended, 1, 0) != 1) return false;
    reap();
    return true;
  }

  std::string end_cause() const { return status_ ? describe_end(*status_) : kUnknownEnd; }

  void note_end(const std::string& cause) {
    pid_ = 0;
    pidfd_.reset();
    status_.reset();
    pending_cause_ = cause;
    if (is_stopping_) return;
    const Duration lived = std::chrono::duration_cast<Duration>(Steady::now() - began_);
    const Duration delay = delay_.next(lived);
    due_ = Steady::now() + delay;
    seen_.ends_in_a_row = delay_.ends_in_a_row();
    seen_.last_end = cause;
    log_.warning("the daemon ended; it is started again",
                 {{"cause", cause}, {"lived", lived}, {"in", delay}, {"ends_in_a_row", seen_.ends_in_a_row}});
    settings_.note(seen_);
  }

  const SupervisorSettings& settings_;
  const Log& log_;
  RealDaemons daemons_;
  RestartDelay delay_;
  Supervision seen_;
  std::optional<StandIn> stand_in_;
  Fd signals_, pidfd_;
  int pid_ = 0;                // 0: none is watched
  std::optional<int> status_;  // as waitpid tells it
  Steady::time_point began_{};
  Steady::time_point due_{};  // of the next start; when stopping: when we give up
  std::string pending_cause_;
  bool is_stopping_ = false;
};

}  // namespace

Duration RestartDelay::next(Duration lived) {
  if (lived >= kHealthy) ends_ = 0;
  ++ends_;
  if (ends_ == 1) return 0s;
  Duration delay = kFirst;
  for (int i = 2; i < ends_ && delay < kMax; ++i) delay *= 2;
  return std::min(delay, kMax);
}

void supervise(const SupervisorSettings& settings, const Log& log) { Supervisor(settings, log).run(); }

}  // namespace rubato::os
