#include "os/daemons.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"
#include "os/exec.h"
#include "os/fd.h"
#include "os/proc_scan.h"

namespace rubato::os {

namespace {

constexpr int kLockFd = 3;  // in the daemon

[[noreturn]] void fail(const std::string& doing, const std::string& where, int error = errno) {
  throw Error(ErrorCode::kFailed, fmt::format("cannot {}: {}", doing, std::strerror(error)), where);
}

std::string in(const std::string& folder, const char* name) { return fmt::format("{}/{}", folder, name); }

Fd open_in(const std::string& folder, const char* name, int flags) {
  const std::string path = in(folder, name);
  Fd file = Fd(::open(path.c_str(), flags | O_CLOEXEC, 0600)).above(kLockFd + 1);
  if (!file) fail("open a daemon's file", path);
  return file;
}

struct flock whole_file(short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Not flock(2): this one can be asked about without being taken for a moment.
bool is_locked(int fd) {
  struct flock lock = whole_file(F_WRLCK);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool write_file(const std::string& path, const std::string& text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// ---- the memory group ----

// Where a group of ours can be made: below our own in cgroup v2, in the memory hierarchy of v1.
struct Hierarchy {
  std::string base;
  const char* limit = "";  // the file that takes the number of bytes
};

std::optional<Hierarchy> memory_hierarchy() {
  const std::string text = read_file("/proc/self/cgroup");
  for (const std::string_view line : split(text, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() != 3) continue;
    const std::string own = parts[2] == "/" ? "" : std::string(parts[2]);
    for (const std::string_view controller : split(parts[1], ',')) {
      if (controller == "memory") return Hierarchy{"/sys/fs/cgroup/memory" + own, "memory.limit_in_bytes"};
    }
    if (parts[0] == "0" && ::access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0) {
      return Hierarchy{"/sys/fs/cgroup" + own, "memory.max"};
    }
  }
  return std::nullopt;
}

// The group's folder, or why there is none.
struct MemoryGroup {
  std::string path, problem;
};

MemoryGroup make_memory_group(const std::string& folder, int64_t bytes) {
  const std::optional<Hierarchy> hierarchy = memory_hierarchy();
  if (!hierarchy) return {"", "this machine has no memory cgroups"};
  std::string base = hierarchy->base;
  // In a container the path may be the one outside of it.
  if (::access(base.c_str(), F_OK) != 0) base = hierarchy->base.substr(0, sizeof "/sys/fs/cgroup/memory" - 1);
  RunningHash hash;
  hash.add(folder);
  const std::string path = fmt::format("{}/rubato-{:016x}", base, hash.value());
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return {"", fmt::format("cannot make {}: {}", path, std::strerror(errno))};
  }
  if (!write_file(in(path, hierarchy->limit), std::to_string(bytes))) {
    const int error = errno;
    ::rmdir(path.c_str());
    return {"", fmt::format("cannot set {}/{}: {}", path, hierarchy->limit, std::strerror(error))};
  }
  return {path, ""};
}

void remove_memory_group(const std::string& folder) {
  const std::string note = in(folder, "daemon.cgroup");
  const std::string path = read_file(note);
  if (path.empty()) return;
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) ::unlink(note.c_str());
}

// ---- between fork and exec ----

enum class Step { kNetwork, kFolder, kGroup, kFork, kExec };
struct Failure {
  Step step;
  int error;
};

// All that the child needs, made before the fork.
struct Plan {
  const DaemonSpec* spec;
  std::vector<char*> argv, env;
  int lock, log, null, pid, report;
  int netns = -1, group = -1;
  bool pinned = false;
  cpu_set_t cpus;
};

[[noreturn]] void give_up(const Plan& plan, Step step, int error) {
  const Failure failure{step, error};
  [[maybe_unused]] const ssize_t written = ::write(plan.report, &failure, sizeof failure);
  ::_exit(127);
}

// Over the one before: an emptied file gives its room back, and on a full disk others take that.
void write_own_number(int fd) {
  char digits[16];
  char* at = digits + sizeof digits;
  for (int left = ::getpid(); left > 0; left /= 10) *--at = static_cast<char>('0' + left % 10);
  const auto size = static_cast<size_t>(digits + sizeof digits - at);
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) return;
  [[maybe_unused]] const ssize_t written = ::write(fd, at, size);
}

[[noreturn]] void become_daemon(const Plan& plan) {
  default_signals();
  default_open_files();
  if (plan.netns >= 0 && ::setns(plan.netns, CLONE_NEWNET) != 0) give_up(plan, Step::kNetwork, errno);
  if (plan.group >= 0 && ::write(plan.group, "0", 1) != 1) give_up(plan, Step::kGroup, errno);
  if (plan.pinned) ::sched_setaffinity(0, sizeof plan.cpus, &plan.cpus);
  if (::chdir(plan.spec->folder.c_str()) != 0) give_up(plan, Step::kFolder, errno);
  write_own_number(plan.pid);
  ::dup2(plan.null, 0);
  ::dup2(plan.log, 1);
  ::dup2(plan.log, 2);
  ::dup2(plan.lock, kLockFd);
  close_others_at_exec(kLockFd + 1);
  ::execve(plan.argv[0], plan.argv.data(), plan.env.data());
  give_up(plan, Step::kExec, errno);
}

void fork_twice(const Plan& plan) {
  // No handler of ours may run in the child.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t middle = ::fork();
  if (middle == 0) {
    ::setsid();
    const pid_t daemon = ::fork();
    if (daemon == 0) become_daemon(plan);
    if (daemon < 0) give_up(plan, Step::kFork, errno);
    ::_exit(0);
  }
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (middle < 0) fail("start a daemon", plan.spec->folder, error);
  while (::waitpid(middle, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Error explain(const DaemonSpec& spec, const Failure& failure) {
  const std::string why = std::strerror(failure.error);
  switch (failure.step) {
    case Step::kNetwork:
      return Error(ErrorCode::kFailed, fmt::format("cannot enter the network namespace '{}': {}", spec.netns, why), "",
                   "it needs root; leave out `isolation: netns`");
    case Step::kFolder:
      return Error(ErrorCode::kFailed, fmt::format("cannot enter the folder: {}", why), spec.folder);
    case Step::kGroup:
      return Error(ErrorCode::kFailed, fmt::format("cannot enter the memory cgroup: {}", why), spec.folder);
    case Step::kFork:
      return Error(ErrorCode::kFailed, fmt::format("cannot start '{}': {}", spec.argv[0], why), "",
                   "raise the limit of processes (ulimit -u) or free memory");
    case Step::kExec:
      return Error(ErrorCode::kFailed, fmt::format("cannot run '{}': {}", spec.argv[0], why));
  }
  CHECK(false);
}

bool is_token(const std::string& entry) {
  return entry.starts_with(fmt::format("{}=", kAgentToken)) || entry.starts_with(fmt::format("{}=", kProcessToken));
}

// `count` of the CPUs that we may use, from the one with number `first` among them on, round and round.
bool choose_cpus(int count, int first, cpu_set_t& chosen) {
  cpu_set_t ours;
  if (::sched_getaffinity(0, sizeof ours, &ours) != 0) return false;
  std::vector<size_t> numbers;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &ours)) numbers.push_back(cpu);
  }
  if (numbers.size() <= static_cast<size_t>(count)) return false;
  CPU_ZERO(&chosen);
  for (int i = 0; i < count; ++i) CPU_SET(numbers[static_cast<size_t>(first + i) % numbers.size()], &chosen);
  return true;
}

}  // namespace

void RealDaemons::start(const DaemonSpec& spec) {
  CHECK(!spec.argv.empty());
  std::error_code error;
  std::filesystem::create_directories(spec.folder, error);
  if (error) fail("make a daemon's folder", spec.folder, error.value());
  ::chmod(spec.folder.c_str(), 0700);
  const Fd lock = open_in(spec.folder, "daemon.lock", O_RDWR | O_CREAT);
  struct flock mine = whole_file(F_WRLCK);
  if (::fcntl(lock.get(), F_OFD_SETLK, &mine) != 0) {
    if (errno == EAGAIN || errno == EACCES) return;
    fail("lock", in(spec.folder, "daemon.lock"));
  }
  const Fd pid = open_in(spec.folder, "daemon.pid", O_WRONLY | O_CREAT);
  const Fd log = open_in(spec.folder, "daemon.log", O_WRONLY | O_CREAT | O_APPEND);
  const Fd null = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).above(kLockFd + 1);
  const auto note = [&](const std::string& message) {
    const std::string line = "rubato: " + message + "\n";
    [[maybe_unused]] const ssize_t written = ::write(log.get(), line.data(), line.size());
  };

  std::vector<std::string> env = spec.env;
  std::erase_if(env, is_token);
  Plan plan{.spec = &spec, .argv = pointers(spec.argv), .env = pointers(env)};
  plan.lock = lock.get();
  plan.log = log.get();
  plan.null = null.get();
  plan.pid = pid.get();
  Fd netns, group;
  if (!spec.netns.empty()) {
    netns = Fd(::open(("/run/netns/" + spec.netns).c_str(), O_RDONLY | O_CLOEXEC)).above(kLockFd + 1);
    if (!netns) fail(fmt::format("find the network namespace '{}'", spec.netns), spec.folder);
    plan.netns = netns.get();
  }
  remove_memory_group(spec.folder);
  if (spec.memory_bytes > 0) {
    const MemoryGroup made = make_memory_group(spec.folder, spec.memory_bytes);
    if (!made.path.empty()) {
      group = Fd(::open(in(made.path, "cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC)).above(kLockFd + 1);
      std::ofstream(in(spec.folder, "daemon.cgroup")) << made.path;
    } else {
      // A limit of the address space is no substitute: CUDA and torch reserve far more of it than they use.
      note(fmt::format("the memory limit of {} bytes is not enforced: {}", spec.memory_bytes, made.problem));
    }
    plan.group = group.get();
  }
  if (spec.cpus > 0) {
    plan.pinned = choose_cpus(spec.cpus, next_cpu_, plan.cpus);
    next_cpu_ = (next_cpu_ + spec.cpus) % CPU_SETSIZE;
  }

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("make a pipe", spec.folder);
  const Fd reader = Fd(ends[0]).above(kLockFd + 1);
  Fd writer = Fd(ends[1]).above(kLockFd + 1);
  plan.report = writer.get();
  fork_twice(plan);
  writer.reset();
  Failure failure{};
  ssize_t got = 0;
  do {
    got = ::read(reader.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof failure) {
    // The child has told and is yet to end; its lock is ours too, and must not look like a daemon.
    struct flock none = whole_file(F_UNLCK);
    ::fcntl(lock.get(), F_OFD_SETLK, &none);
    throw explain(spec, failure);
  }
}

std::optional<int> RealDaemons::running(const std::string& folder) {
  const Fd lock(::open(in(folder, "daemon.lock").c_str(), O_RDWR | O_CLOEXEC));
  if (!lock) return std::nullopt;
  struct stat locked {};
  ::fstat(lock.get(), &locked);
  // Another process may be starting it right now: the number comes a moment after the lock.
  for (int tries = 0; tries < 200 && is_locked(lock.get()); ++tries) {
    const std::string text = read_file(in(folder, "daemon.pid"));
    const int pid = std::atoi(text.c_str());
    struct stat held {};
    const std::string descriptor = fmt::format("/proc/{}/fd/{}", pid, kLockFd);
    if (pid > 0 && ::stat(descriptor.c_str(), &held) == 0 && held.st_dev == locked.st_dev &&
        held.st_ino == locked.st_ino) {
      return pid;
    }
    ::usleep(1000);
  }
  remove_memory_group(folder);
  return std::nullopt;
}

void RealDaemons::signal(const std::string& folder, int signal) {
  const std::optional<int> pid = running(folder);
  if (!pid) return;
  const Fd process = open_pidfd(*pid);
  // With the process in hand, its number cannot be given to another one between the question and the signal.
  if (running(folder) != pid) return;
  if (process && ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0) return;
  ::kill(*pid, signal);
}

}  // namespace rubato::os
