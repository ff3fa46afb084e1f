// For tests: real processes in a folder of their own, and loops that end on what they wait for, never on a guess of
// how long it takes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "os/processes.h"

extern char** environ;

namespace rubato::os {

constexpr auto kTestPatience = 60s;  // only a failing test waits so long

inline std::vector<std::string> own_environment() {
  std::vector<std::string> env;
  for (char** entry = environ; *entry; ++entry) env.emplace_back(*entry);
  return env;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Neither gone nor a zombie.
inline bool is_running(pid_t pid) {
  const std::string stat = read_text("/proc/" + std::to_string(pid) + "/stat");
  const size_t end_of_name = stat.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 2 >= stat.size()) return false;
  return stat[end_of_name + 2] != 'Z' && stat[end_of_name + 2] != 'X';
}

// Looks again and again until the condition holds; for what happens in other processes.
inline bool eventually(const std::function<bool()>& condition) {
  for (Duration waited{}; waited < kTestPatience; waited += 1ms) {
    if (condition()) return true;
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return false;
}

class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/rubato-test-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

struct Finished {
  ExitStatus status;
  std::string out, err;
  bool warm = false;
};

class ProcessFixture : public ::testing::Test {
 protected:
  static Task<int> collect(Process& process, Finished& finished) {
    while (std::optional<OutputChunk> chunk = co_await process.output().pop()) {
      (chunk->is_stderr ? finished.err : finished.out) += chunk->bytes;
    }
    finished.status = co_await process.wait();
    co_return 0;
  }
  static Task<int> turn_until(Runtime& runtime, const std::function<bool()>& condition) {
    const Instant deadline = runtime.now() + kTestPatience;
    while (runtime.now() < deadline) {
      if (condition()) co_return 1;
      co_await Sleep(runtime, runtime.now() + 1ms);
    }
    co_return 0;
  }

  // Turns the loop until the condition holds.
  bool turn_until(const std::function<bool()>& condition) {
    Task<int> task = turn_until(runtime, condition);
    return runtime.run(std::move(task)) == 1;
  }
  Finished finish(Process& process) {
    Finished finished;
    finished.warm = process.warm();
    Task<int> task = collect(process, finished);
    runtime.run(std::move(task));
    return finished;
  }
  Finished run(const SpawnSpec& spec) {
    std::unique_ptr<Process> process = processes.spawn(spec);
    return finish(*process);
  }

  static SpawnSpec spec_of(std::vector<std::string> argv) {
    SpawnSpec spec;
    spec.argv = std::move(argv);
    spec.env = own_environment();
    spec.out.kind = spec.err.kind = OutputTarget::Kind::kPipe;
    return spec;
  }
  static SpawnSpec shell(const std::string& text) { return spec_of({"/bin/sh", "-c", text}); }

  TempFolder folder;
  Runtime runtime;
  RealProcesses processes{runtime};
};

}  // namespace rubato::os
