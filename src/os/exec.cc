#include "os/exec.h"

#include <fmt/format.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "os/cpu_set.h"

namespace rubato::os {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

void default_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

namespace {
std::optional<rlimit> open_files_at_start;
}

void allow_many_open_files() {
  rlimit limit{};
  if (open_files_at_start || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  open_files_at_start = limit;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void default_open_files() {
  if (open_files_at_start) ::setrlimit(RLIMIT_NOFILE, &*open_files_at_start);
}

void close_others_at_exec(int first) {
  if (::syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  rlimit limit{};  // before Linux 5.11
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = limit.rlim_cur > 65536 ? 65536 : static_cast<int>(limit.rlim_cur);
  for (int fd = first; fd < end; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

namespace {

constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

Fd open_file(const char* path, int flags) { return Fd(::open(path, flags | O_CLOEXEC, 0644)).above(kChildFds); }

// Locked by the open file, which the guard shares: the lock goes when neither we nor the guard can add to it any more.
// Empty when the disk has no room: a worker is worth more than its lines.
Fd open_keep(const std::string& path) {
  if (path.empty()) return Fd();
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  Fd file = open_file(path.c_str(), O_RDWR | O_CREAT | O_TRUNC);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (file) ::fcntl(file.get(), F_OFD_SETLK, &whole);
  return file;
}

// Both ends are closed at exec.
void open_pipe(Fd& reader, Fd& writer) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ErrorCode::kFailed, fmt::format("cannot make a pipe: {}", std::strerror(errno)), "",
                "raise the limit of open files: ulimit -n");
  }
  reader = Fd(ends[0]).above(kChildFds);
  writer = Fd(ends[1]).above(kChildFds);
}

Fd open_input(InputSource source, Fd& writer) {
  switch (source) {
    case InputSource::kInherit:
      // A worker's group is in the background of the terminal: reading from it would stop the worker (SIGTTIN)
      // without a word. End-of-file at once is better; anything but a terminal is inherited, as torchrun does.
      return ::isatty(0) ? open_file("/dev/null", O_RDONLY) : Fd();
    case InputSource::kNull:
      return open_file("/dev/null", O_RDONLY);
    case InputSource::kPipe: {
      Fd reader;
      open_pipe(reader, writer);
      ::fcntl(writer.get(), F_SETFL, O_NONBLOCK);
      return reader;
    }
  }
  CHECK(false);
  return Fd();
}

Fd open_output(const OutputTarget& target, Fd& reader, Fd& keep) {
  switch (target.kind) {
    case OutputTarget::Kind::kInherit:
      return Fd();
    case OutputTarget::Kind::kNull:
      return open_file("/dev/null", O_WRONLY);
    case OutputTarget::Kind::kFile: {
      std::error_code ignored;  // open() tells it better
      std::filesystem::create_directories(std::filesystem::path(target.path).parent_path(), ignored);
      Fd file = open_file(target.path.c_str(), O_WRONLY | O_CREAT | O_APPEND);
      if (!file) {
        throw Error(ErrorCode::kFailed, fmt::format("cannot write the log file: {}", std::strerror(errno)), target.path,
                    "choose another folder with --log-dir");
      }
      return file;
    }
    case OutputTarget::Kind::kPipe: {
      Fd writer;
      open_pipe(reader, writer);
      ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
      keep = open_keep(target.path);
      return writer;
    }
  }
  CHECK(false);
  return Fd();
}

// The files to try, in the order of PATH; a name with a slash is one itself.
std::vector<std::string> candidates(const std::string& program, const std::vector<std::string>& env) {
  if (program.find('/') != std::string::npos) return {program};
  std::string_view path = kDefaultPath;
  for (const std::string& entry : env) {
    if (entry.starts_with("PATH=")) path = std::string_view(entry).substr(5);
  }
  std::vector<std::string> result;
  while (true) {
    const size_t colon = path.find(':');
    const std::string_view folder = path.substr(0, colon);
    result.push_back(folder.empty() ? program : fmt::format("{}/{}", folder, program));
    if (colon == std::string_view::npos) return result;
    path.remove_prefix(colon + 1);
  }
}

enum class Step { kBind, kFolder, kExec };
struct Failure {
  Step step;
  int error;
};

// All that the child needs, made before the fork.
struct Prepared {
  const ExecPlan* plan;
  std::vector<std::string> programs;
  std::vector<char*> program_pointers, argv, env;
  CpuSet cpus;
  pid_t parent;
  int report;  // where a Failure goes; closed by a successful exec
};

[[noreturn]] void fail(const Prepared& prepared, Step step, int error) {
  const Failure failure{step, error};
  [[maybe_unused]] const ssize_t written = ::write(prepared.report, &failure, sizeof failure);
  ::_exit(127);
}

[[noreturn]] __attribute__((noinline)) void run_child(const Prepared& prepared) {
  const ExecPlan& plan = *prepared.plan;
  if (plan.own_group) ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != prepared.parent) ::_exit(127);  // the parent died before the death signal was set
  struct sigaction hangup {};
  const bool ignored = ::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
  default_signals();
  if (ignored) ::signal(SIGHUP, SIG_IGN);  // nohup means whatever we start, too
  default_open_files();
  if (plan.in >= 0) ::dup2(plan.in, 0);
  if (plan.out >= 0) ::dup2(plan.out, 1);
  if (plan.err >= 0) ::dup2(plan.err, 2);
  if (plan.control >= 0) ::dup2(plan.control, 3);
  close_others_at_exec(plan.control >= 0 ? 4 : 3);
  if (prepared.cpus && !prepared.cpus.bind(0)) fail(prepared, Step::kBind, errno);
  if (!plan.cwd.empty() && ::chdir(plan.cwd.c_str()) != 0) fail(prepared, Step::kFolder, errno);
  int error = ENOENT;
  for (char* program : prepared.program_pointers) {
    if (!program) break;
    ::execve(program, prepared.argv.data(), prepared.env.data());
    if (errno == EACCES) error = EACCES;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) fail(prepared, Step::kExec, errno);
  }
  fail(prepared, Step::kExec, error);
}

// Alone in its function: the compiler must not keep anything across the two returns of vfork.
__attribute__((noinline)) pid_t vfork_child(const Prepared& prepared) {
  const pid_t pid = ::vfork();
  if (pid == 0) run_child(prepared);
  return pid;
}

Error explain(const ExecPlan& plan, const Failure& failure) {
  const std::string& program = plan.argv.front();
  const std::string why = std::strerror(failure.error);
  if (failure.step == Step::kBind) return cannot_bind(program, why);
  if (failure.step == Step::kFolder) {
    return Error(ErrorCode::kUsage, fmt::format("cannot enter the folder '{}': {}", plan.cwd, why));
  }
  std::string hint = "check the program's name and PATH";
  if (failure.error == EACCES) hint = fmt::format("make it executable: chmod +x {}", program);
  if (failure.error == ENOEXEC) hint = "begin it with a line such as #!/usr/bin/env python3";
  if (failure.error == E2BIG) hint = "shorten the arguments or the environment";
  if (failure.error == ENOENT && program.find('/') != std::string::npos) {
    std::error_code ignored;
    hint = std::filesystem::exists(program, ignored) ? "the interpreter in its first line (#!) is not there"
                                                     : "check its path";
  }
  return Error(ErrorCode::kUsage, fmt::format("cannot run '{}': {}", program, why), "", hint);
}

}  // namespace

Error cannot_bind(const std::string& program, const std::string& why) {
  return Error(ErrorCode::kFailed, fmt::format("cannot bind '{}' to its processors: {}", program, why), "",
               "run without --numa-binding");
}

Stdio open_stdio(InputSource in, const OutputTarget& out, const OutputTarget& err) {
  Stdio result;
  result.in = open_input(in, result.in_writer);
  result.out = open_output(out, result.out_reader, result.out_keep);
  result.err = open_output(err, result.err_reader, result.err_keep);
  return result;
}

pid_t fork_exec(const ExecPlan& plan) {
  CHECK(!plan.argv.empty());
  Fd reader, writer;
  open_pipe(reader, writer);

  Prepared prepared{.plan = &plan, .programs = candidates(plan.argv.front(), plan.env)};
  prepared.program_pointers = pointers(prepared.programs);
  prepared.argv = pointers(plan.argv);
  prepared.env = pointers(plan.env);
  prepared.parent = ::getpid();
  prepared.report = writer.get();
  prepared.cpus = CpuSet(plan.cpus);

  // No handler of ours may run in the child: it would act on our memory.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = vfork_child(prepared);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    throw Error(ErrorCode::kFailed, fmt::format("cannot start '{}': {}", plan.argv.front(), std::strerror(fork_error)),
                "", "raise the limit of processes (ulimit -u) or free memory");
  }
  writer.reset();
  Failure failure{};
  ssize_t got = 0;
  do {
    got = ::read(reader.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof failure) return pid;
  siginfo_t info;
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) {
  }
  throw explain(plan, failure);
}

}  // namespace rubato::os
