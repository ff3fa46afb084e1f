#include "os/foreground.h"

#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>

#include "core/error.h"
#include "os/exec.h"
#include "os/fd.h"

extern char** environ;

namespace rubato::os {
namespace {

constexpr size_t kCapturedMax = size_t{1} << 20;

struct Pipe {
  Fd reader, writer;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorCode::kFailed, "cannot make a pipe");
  Pipe pipe;
  pipe.reader = Fd(ends[0]);
  pipe.writer = Fd(ends[1]);
  return pipe;
}

// Signals as they were when we were started: the child must not inherit that we ignore some.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    ::posix_spawnattr_init(&value);
    sigset_t defaults, none;
    sigemptyset(&defaults);
    for (const int signal : {SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGHUP}) sigaddset(&defaults, signal);
    sigemptyset(&none);
    ::posix_spawnattr_setsigdefault(&value, &defaults);
    ::posix_spawnattr_setsigmask(&value, &none);
    ::posix_spawnattr_setflags(&value, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  ~SpawnAttributes() { ::posix_spawnattr_destroy(&value); }
  posix_spawnattr_t value;
};

class SpawnActions {
 public:
  SpawnActions() { ::posix_spawn_file_actions_init(&value); }
  SpawnActions(const SpawnActions&) = delete;
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&value); }
  void give(int fd, int as) { ::posix_spawn_file_actions_adddup2(&value, fd, as); }
  posix_spawn_file_actions_t value;
};

pid_t spawn(const std::vector<std::string>& argv, const SpawnActions& actions) {
  const SpawnAttributes attributes;
  std::vector<char*> raw_argv = pointers(argv);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, raw_argv[0], &actions.value, &attributes.value, raw_argv.data(), environ);
  if (error != 0) {
    const bool missing = error == ENOENT;
    throw Error(ErrorCode::kUsage, fmt::format("cannot start '{}': {}", argv[0], std::strerror(error)), "",
                missing ? fmt::format("install {}, or put it into PATH", argv[0]) : "");
  }
  return pid;
}

ExitStatus reap(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ExitStatus out;
  if (WIFSIGNALED(status)) out.signal = WTERMSIG(status);
  if (WIFEXITED(status)) out.code = WEXITSTATUS(status);
  return out;
}

volatile sig_atomic_t child_in_front = 0;

void pass_on(int signal) {
  if (child_in_front > 0) ::kill(child_in_front, signal);
}

// A terminal sends SIGINT and SIGQUIT to the whole group, so the child has them already; what is sent to us alone is
// passed on, and we end when it has ended.
class SignalsLeftToChild {
 public:
  SignalsLeftToChild() {
    struct sigaction ignore {
    }, pass{};
    ignore.sa_handler = SIG_IGN;
    pass.sa_handler = pass_on;
    for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], i < 2 ? &ignore : &pass, &before_[i]);
  }
  SignalsLeftToChild(const SignalsLeftToChild&) = delete;
  ~SignalsLeftToChild() {
    for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
    child_in_front = 0;
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(kSignals)]{};
};

// One end of a pipe that we serve; done when it is empty.
struct Served {
  Fd fd;
  std::string* sink = nullptr;  // for a reader
  std::string_view left;        // for the writer
};

void serve(Served& one) {
  if (one.sink == nullptr) {
    const ssize_t sent = ::write(one.fd.get(), one.left.data(), one.left.size());
    if (sent > 0) one.left.remove_prefix(static_cast<size_t>(sent));
    if ((sent < 0 && errno != EAGAIN && errno != EINTR) || one.left.empty()) one.fd.reset();
    return;
  }
  char buffer[16384];
  const ssize_t got = ::read(one.fd.get(), buffer, sizeof buffer);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) one.fd.reset();
  if (got > 0 && one.sink->size() < kCapturedMax) one.sink->append(buffer, static_cast<size_t>(got));
}

int until(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

}  // namespace

ExitStatus run_in_front(const std::vector<std::string>& argv) {
  const SignalsLeftToChild left;
  // What comes before we know whom to pass it on to waits until we do.
  sigset_t held, before;
  sigemptyset(&held);
  for (const int signal : {SIGTERM, SIGHUP}) sigaddset(&held, signal);
  ::sigprocmask(SIG_BLOCK, &held, &before);
  pid_t pid = -1;
  try {
    pid = spawn(argv, SpawnActions());
  } catch (const Error&) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  child_in_front = pid;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return reap(pid);
}

Captured run_captured(const std::vector<std::string>& argv, std::string_view input, Duration limit) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);  // it may not read all that we write
  Pipe in = make_pipe(), out = make_pipe(), err = make_pipe();
  SpawnActions actions;
  actions.give(in.reader.get(), 0);
  actions.give(out.writer.get(), 1);
  actions.give(err.writer.get(), 2);
  const pid_t pid = spawn(argv, actions);
  in.reader.reset();
  out.writer.reset();
  err.writer.reset();
  Captured captured;
  Served ends[3] = {{std::move(in.writer), nullptr, input},
                    {std::move(out.reader), &captured.out, {}},
                    {std::move(err.reader), &captured.err, {}}};
  for (Served& one : ends) ::fcntl(one.fd.get(), F_SETFL, O_NONBLOCK);
  if (input.empty()) ends[0].fd.reset();
  const auto deadline = std::chrono::steady_clock::now() + limit;
  // A master that ssh leaves behind keeps standard error open, so that an end there is not waited for.
  while (ends[1].fd) {
    pollfd polled[3];
    for (int i = 0; i < 3; ++i) {
      const short wanted = i == 0 ? POLLOUT : POLLIN;
      polled[i] = {ends[i].fd ? ends[i].fd.get() : -1, wanted, 0};
    }
    const int ready = ::poll(polled, 3, until(deadline));
    if (ready == 0 || (ready < 0 && errno != EINTR)) {
      captured.timed_out = true;
      ::kill(pid, SIGKILL);
      break;
    }
    for (int i = 0; i < 3; ++i) {
      if (polled[i].revents != 0 && ends[i].fd) serve(ends[i]);
    }
  }
  captured.status = reap(pid);
  while (ends[2].fd) {
    const size_t before_size = captured.err.size();
    serve(ends[2]);
    if (captured.err.size() == before_size) break;
  }
  ::sigaction(SIGPIPE, &before, nullptr);
  return captured;
}

}  // namespace rubato::os
