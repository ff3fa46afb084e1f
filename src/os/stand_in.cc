#include "os/stand_in.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "core/error.h"
#include "os/exec.h"
#include "os/fd.h"
#include "os/proc_scan.h"

namespace rubato::os {
namespace {

using Steady = std::chrono::steady_clock;

constexpr Duration kRestartAfter = 1s;
constexpr int kLookEvery_us = 100'000;  // on a kernel without pidfds
constexpr Duration kAskEvery = 10ms;    // whether anybody is wanted
constexpr int kDescriptorsMax = 1024;   // on one without close_range

// Of ours, one may be a daemon's lock: whoever holds it is taken for that daemon.
void close_all_but(int kept) {
  const auto close_between = [](unsigned first, unsigned last) {
    if (first > last) return;
    if (::syscall(SYS_close_range, first, last, 0U) == 0) return;
    for (unsigned fd = first; fd <= std::min<unsigned>(last, kDescriptorsMax); ++fd) ::close(static_cast<int>(fd));
  };
  constexpr unsigned kFirst = STDERR_FILENO + 1;
  if (kept < static_cast<int>(kFirst)) return close_between(kFirst, UINT_MAX);
  close_between(kFirst, static_cast<unsigned>(kept) - 1);
  close_between(static_cast<unsigned>(kept) + 1, UINT_MAX);
}

[[noreturn]] void stand_by(pid_t parent, const Fd& watched, const std::function<bool()>& is_wanted,
                           const std::function<void()>& act) {
  close_all_but(watched.get());
  default_signals();
  pollfd ended{watched.get(), POLLIN, 0};
  while (watched && ::getppid() == parent && ::poll(&ended, 1, -1) < 1) {
  }
  while (!watched && ::getppid() == parent) ::usleep(kLookEvery_us);
  try {
    for (Duration waited{}; waited < StandIn::kPatience; waited += kAskEvery) {
      if (!is_wanted()) ::_exit(0);
      ::usleep(std::chrono::duration_cast<std::chrono::microseconds>(kAskEvery).count());
    }
    act();
  } catch (const Error&) {
    ::_exit(1);  // the head may still do it
  }
  ::_exit(0);
}

}  // namespace

StandIn::StandIn(std::function<bool()> is_wanted, std::function<void()> act)
    : is_wanted_(std::move(is_wanted)), act_(std::move(act)) {}
StandIn::~StandIn() { end(); }

void StandIn::keep() {
  if (pid_ > 0 || is_ended_ || Steady::now() < due_) return;
  due_ = Steady::now() + kRestartAfter;
  const pid_t parent = ::getpid();
  const Fd watched = open_pidfd(parent);
  const pid_t child = ::fork();
  if (child == 0) stand_by(parent, watched, is_wanted_, act_);
  pid_ = std::max(child, 0);  // without memory for one, it is tried again
}

void StandIn::note_end(pid_t pid) {
  if (pid == pid_) pid_ = 0;
}

std::optional<Duration> StandIn::until_due() const {
  if (pid_ > 0 || is_ended_) return std::nullopt;
  return std::max(Duration{}, std::chrono::duration_cast<Duration>(due_ - Steady::now()));
}

void StandIn::end() {
  is_ended_ = true;
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

}  // namespace rubato::os
