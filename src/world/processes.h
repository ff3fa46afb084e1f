// Processes: starting, watching and ending process groups. None of them outlives this process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/channel.h"
#include "core/task.h"
#include "core/time.h"

namespace rubato {

struct ExitStatus {
  int code = 0;    // valid when signal is 0
  int signal = 0;  // the signal that ended it, or 0
  bool ok() const { return code == 0 && signal == 0; }
  // As Python's subprocess tells it: the code, or the signal's number negated.
  int returncode() const { return signal ? -signal : code; }
  bool operator==(const ExitStatus&) const = default;
};
std::string signal_name(int signal);             // "SIGKILL"
std::string describe(const ExitStatus& status);  // "exit code 3", "killed by SIGKILL (signal 9)"

struct OutputTarget {
  enum class Kind { kInherit, kNull, kFile, kPipe };
  Kind kind = Kind::kInherit;
  // kFile: created with its folders, appended to.
  // kPipe: empty, or a file that is made anew and keeps what comes. A chunk is in it before it is given out, and what
  // nobody had taken when we are killed is added to it: nothing that was written is lost with us. Whoever has it gives
  // the space back (Files::give_back) or removes it.
  std::string path;
};

enum class InputSource {
  kInherit,  // ours; /dev/null in place of a terminal, which would stop a process in its background
  kNull,
  kPipe,  // what Process::write gives it
};

// What a Python process is to run, so that a prewarmed interpreter can do the same as `argv` would.
struct PythonMain {
  enum class Kind { kScript, kModule, kRunPath };
  Kind kind = Kind::kScript;
  std::string target;             // path of the script, or name of the module
  std::vector<std::string> args;  // without argv[0]
};

struct SpawnSpec {
  std::vector<std::string> argv;  // argv[0] is searched in PATH
  std::vector<std::string> env;   // NAME=value, the whole environment
  std::string cwd;                // empty: ours
  InputSource in = InputSource::kInherit;
  OutputTarget out, err;
  std::vector<int> cpus;           // it and what it starts run on these only; empty: where we may run
  std::optional<PythonMain> warm;  // set: fork it from the prewarmed interpreter when one is ready
};

struct OutputChunk {
  bool is_stderr = false;
  std::string bytes;
  uint64_t end = 0;  // behind these bytes, in the file that keeps them
};

class Process {
 public:
  // Kills the whole group with SIGKILL if it is not gone.
  virtual ~Process() = default;
  virtual int pid() const = 0;
  virtual bool warm() const = 0;  // forked from the prewarmed interpreter
  virtual const std::optional<ExitStatus>& status() const = 0;
  virtual void signal_group(int signal) = 0;  // as os/child.cc says; 0: none, but status() is up to date afterwards
  // Its group gets SIGKILL at this time, also when this program stands still by then; each call takes the place of the
  // one before. Time is the clock's.
  virtual void end_by(Instant time) { (void)time; }
  // Completes when the main process has ended; what is left of its group is then killed.
  virtual Task<ExitStatus> wait() = 0;
  // What comes through the pipes of out/err; closed after both ended.
  virtual Channel<OutputChunk>& output() = 0;

  // For InputSource::kPipe. Completes when the pipe has taken all bytes, after those of earlier calls; throws
  // kUnavailable when the process has ended or closed its input before. Whole or not at all: once begun, a write that
  // is cancelled still gives all its bytes.
  virtual Task<void> write(std::string bytes) = 0;
  // The process reads end-of-file after what was written. Twice is once.
  virtual void close_input() = 0;
};

struct PrewarmSpec {
  std::vector<std::string> interpreter;  // argv prefix, e.g. {"/usr/bin/python3", "-u"}
  std::vector<std::string> modules;
  std::vector<std::string> env;
  std::optional<PythonMain> main;  // checked for what would make a warm start differ from a cold one
};

class Processes {
 public:
  virtual ~Processes() = default;

  // Throws an Error (kUsage for a program that is not there or cannot run) with the program's name.
  virtual std::unique_ptr<Process> spawn(const SpawnSpec& spec) = 0;

  // Starts the interpreter that later warm spawns are forked from. Returns at once: until it is ready, and if it
  // cannot be used, spawns are cold. `on_state` gets "" when it is ready (again after each restart of it), and the
  // reason, once, when it is given up.
  virtual void prewarm(const PrewarmSpec& spec, std::function<void(std::string)> on_state) = 0;
};

}  // namespace rubato
