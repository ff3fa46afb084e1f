#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "os/fd.h"
#include "os/probe.h"
#include "os/python.h"

namespace rubato::os {
namespace {

// Prints "rubato KEY=VALUE" lines: the prefix tells them from what a sitecustomize might say.
constexpr const char* kQuestions = R"python(
import sys
def say(key, value):
    print("rubato %s=%s" % (key, str(value).replace("\n", " ")), flush=True)
say("version", "%d.%d.%d" % sys.version_info[:3])
try:
    import torch
    say("torch", torch.__version__)
    say("cuda", torch.version.cuda or "")
    import torch.distributed
    if torch.distributed.is_available():
        from torch.distributed import distributed_c10d as c10d
        say("gloo", int(bool(getattr(c10d, "_GLOO_AVAILABLE", False))))
        say("nccl", int(bool(getattr(c10d, "_NCCL_AVAILABLE", False))))
    say("devices", torch.cuda.device_count() if torch.version.cuda else 0)
except ModuleNotFoundError as error:
    if error.name != "torch":
        say("torch_error", error)
except Exception as error:
    say("torch_error", "%s: %s" % (type(error).__name__, error))
)python";

struct ProgramResult {
  std::string output;  // standard output
  bool timed_out = false;
  int status = 0;  // as waitpid gives it
  std::string error;
};

// Reads until the end or the deadline; false at the deadline.
bool read_until(int fd, std::chrono::steady_clock::time_point deadline, std::string& out) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) == 0) return false;
    char buffer[4096];
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    out.append(buffer, static_cast<size_t>(got));
  }
}

// A program may close its output long before it ends (a driver being unloaded); false at the deadline.
bool wait_until(pid_t pid, std::chrono::steady_clock::time_point deadline, int& status) {
  while (std::chrono::steady_clock::now() < deadline) {
    if (waitpid(pid, &status, WNOHANG) == pid) return true;
    poll(nullptr, 0, 5);
  }
  return false;
}

std::vector<char*> c_strings(std::vector<std::string>& arguments) {
  std::vector<char*> out;
  for (std::string& word : arguments) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// Runs a program in its own process group, which is gone when this returns.
ProgramResult run_program(std::vector<std::string> argv, const EnvironmentMap& env, Duration timeout) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {.error = std::strerror(errno)};
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> variables;
  for (const auto& [name, value] : env) variables.push_back(name + "=" + value);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv.front().c_str(), &actions, &attributes, c_strings(argv).data(),
                                c_strings(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  writer.reset();
  ProgramResult result{.error = error == 0 ? "" : std::strerror(error)};
  if (error == 0) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    result.timed_out = !read_until(reader.get(), deadline, result.output) || !wait_until(pid, deadline, result.status);
    kill(-pid, SIGKILL);  // also what it left behind
    if (result.timed_out) waitpid(pid, &result.status, 0);
  }
  return result;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return std::string("killed by ") + strsignal(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

PythonProbe probe_python(const std::string& wanted, const EnvironmentMap& env, Duration timeout) {
  PythonProbe probe;
  try {
    probe.path = find_python(wanted, env);
  } catch (const Error& error) {
    probe.error = error.message;
    return probe;
  }
  const ProgramResult result = run_program({probe.path, "-c", kQuestions}, env, timeout);
  probe.timed_out = result.timed_out;
  probe.error = result.error;
  std::map<std::string, std::string, std::less<>> answers;
  for (const std::string_view line : split(result.output, '\n')) {
    const auto said = strip_prefix(line, "rubato ");
    const auto pair = said ? split_once(*said, '=') : std::nullopt;
    if (pair) answers.emplace(pair->first, pair->second);
  }
  probe.version = answers["version"];
  probe.torch = answers["torch"];
  probe.torch_error = answers["torch_error"];
  probe.cuda = answers["cuda"];
  probe.gloo = answers["gloo"] == "1";
  probe.nccl = answers["nccl"] == "1";
  probe.devices = std::atoi(answers["devices"].c_str());
  const bool ran = probe.error.empty() && !probe.timed_out;
  if (ran && probe.version.empty()) probe.error = "it does not run Python code: " + how_it_ended(result.status);
  if (ran && !probe.version.empty() && result.status != 0) {
    probe.torch_error = "importing torch ended Python: " + how_it_ended(result.status);
  }
  return probe;
}

}  // namespace rubato::os
