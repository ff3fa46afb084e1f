#include "os/while_heard.h"

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/error.h"
#include "os/exec.h"
#include "os/fd.h"

extern char** environ;

namespace rubato::os {

namespace {

volatile sig_atomic_t group_in_front = 0;

void pass_to_group(int signal) {
  if (group_in_front > 0) ::kill(-group_in_front, signal);
}

pid_t spawn_apart(const std::vector<std::string>& argv) {
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::vector<char*> raw_argv = pointers(argv);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, raw_argv[0], nullptr, &attributes, raw_argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw Error(ErrorCode::kUsage, fmt::format("cannot start '{}': {}", argv[0], std::strerror(error)));
  }
  return pid;
}

// Waits until the process has ended (true), or nobody is left. An event of poll that nobody asked for is a lost other
// end: POLLERR of a pipe without readers, POLLHUP of one without writers, and of a socket. When a client of a shared
// connection is killed, sshd closes standard input and output, and keeps standard error: so two of them tell.
bool ended_while_heard(int process) {
  std::array<pollfd, 4> waits{
      {{process, POLLIN, 0}, {STDIN_FILENO, 0, 0}, {STDOUT_FILENO, 0, 0}, {STDERR_FILENO, 0, 0}}};
  while (true) {
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[0].revents != 0) return true;
    for (size_t i = 1; i < waits.size(); ++i) {
      if ((waits[i].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) waits[i].fd = -1;  // poll passes it over then
    }
    if (waits[2].fd < 0 && (waits[1].fd < 0 || waits[3].fd < 0)) return false;
  }
}

bool ended_within(int process, Duration time) {
  pollfd wait{process, POLLIN, 0};
  return ::poll(&wait, 1, static_cast<int>(to_ms(time))) > 0;
}

}  // namespace

ExitStatus run_while_heard(const std::vector<std::string>& argv, Duration grace) {
  const pid_t pid = spawn_apart(argv);
  group_in_front = pid;
  for (const int signal : {SIGTERM, SIGHUP, SIGINT}) ::signal(signal, pass_to_group);
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (process && !ended_while_heard(process.get())) {
    ::kill(-pid, SIGTERM);
    if (!ended_within(process.get(), grace)) ::kill(-pid, SIGKILL);
    // What the leader has left behind in its group has had its time.
    ::kill(-pid, SIGKILL);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  group_in_front = 0;
  ExitStatus out;
  if (WIFSIGNALED(status)) out.signal = WTERMSIG(status);
  if (WIFEXITED(status)) out.code = WEXITSTATUS(status);
  return out;
}

}  // namespace rubato::os
