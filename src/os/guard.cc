#include "os/guard.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "os/proc_scan.h"
#include "os/runtime.h"

extern char** environ;

namespace rubato::os {

namespace {

constexpr auto kPatience = 5s;
constexpr auto kRoundPause = 2ms;
constexpr int kRoundsMax = static_cast<int>((kPatience - 1s) / kRoundPause);
constexpr size_t kGroupsMax = 4096;  // more live groups than one agent ever has; the token finds the rest

// The guard's own part: from here on nothing allocates, as the fork may come from a process with threads.

// Another agent above us must not take this guard for a worker of its own: ours has work left when both agents die.
void forget_environment() {
  for (char** entry = environ; *entry; ++entry) std::memset(*entry, 0, std::strlen(*entry));
}

void close_all_but(int fd) {
  ::dup2(fd, 0);
  if (::syscall(SYS_close_range, 1, ~0U, 0) == 0) return;
  for (int other = 1; other < 65536; ++other) ::close(other);  // before Linux 5.9
}

struct Hunt {
  std::string_view entry;
  int found = 0;
};

void kill_if_ours(void* context, pid_t pid) {
  Hunt& hunt = *static_cast<Hunt*>(context);
  if (pid == ::getpid() || !environ_has(pid, hunt.entry)) return;
  ++hunt.found;
  ::kill(pid, SIGKILL);
}

struct Groups {
  std::array<pid_t, kGroupsMax> ids;
  size_t count = 0;

  // A negative message takes the group off.
  void apply(int32_t message) {
    if (message > 0 && count < ids.size()) ids[count++] = message;
    if (message < 0) count = static_cast<size_t>(std::remove(ids.begin(), ids.begin() + count, -message) - ids.begin());
  }

  void kill_all() {
    const auto gone = [](pid_t group) { return ::kill(-group, SIGKILL) != 0; };
    count = static_cast<size_t>(std::remove_if(ids.begin(), ids.begin() + count, gone) - ids.begin());
  }
};

[[noreturn]] void guard_main(int fd, std::string_view entry) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, "rubato-guard");
  if (::chdir("/") != 0) ::_exit(1);
  forget_environment();
  close_all_but(fd);

  Groups groups;
  int32_t message = 0;
  ssize_t got = 0;
  while ((got = ::recv(0, &message, sizeof message, 0)) != 0) {
    if (got == sizeof message) groups.apply(message);
    if (got < 0 && errno != EINTR) break;
  }

  for (int round = 0; round < kRoundsMax; ++round) {
    groups.kill_all();
    Hunt hunt{.entry = entry};
    each_process(kill_if_ours, &hunt);
    if (hunt.found == 0) break;
    const timespec pause{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kRoundPause).count()};
    ::nanosleep(&pause, nullptr);
  }
  ::_exit(0);
}

}  // namespace

Guard::Guard(Runtime& runtime, std::string token)
    : entry_(fmt::format("{}={}", kAgentToken, token)), socket_(runtime.io()) {
  start();
  if (pid_ < 0) {
    throw Error(ErrorCode::kFailed, fmt::format("cannot start the guard process: {}", std::strerror(errno)), "",
                "raise the limit of processes (ulimit -u)");
  }
}

Guard::~Guard() {
  alive_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (pid_ > 0) reap_within(pid_, kPatience);
}

void Guard::start() {
  pid_ = -1;
  int ends[2];
  if (starts_left_-- <= 0 || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) guard_main(theirs.get(), entry_);
  if (pid < 0) return;
  pid_ = pid;
  socket_.assign(ours.release());
  for (const pid_t group : groups_) send(group);
  watch();
}

void Guard::watch() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
                       if (error || alive.expired()) return;
                       // The guard never writes: it is gone.
                       socket_.close();
                       reap_within(pid_, kPatience);
                       start();
                     });
}

void Guard::send(int32_t message) {
  // Never waits: if the guard is stopped and the queue is full, the token will find what it missed.
  if (socket_.is_open()) ::send(socket_.native_handle(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Guard::add(pid_t group) {
  groups_.insert(group);
  send(group);
}

void Guard::remove(pid_t group) {
  groups_.erase(group);
  send(-group);
}

}  // namespace rubato::os
