// One process on this machine, from its start to its end, with its output as lines: what the runners are made of.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/line_buffer.h"
#include "provider/command_runner.h"
#include "world/world.h"

namespace rubato::provider {

struct RunnerSettings {
  std::vector<std::string> env;  // of ssh, rsync and what else is started here
  std::string scratch;           // a folder of 0700 for input that is on its way; made when needed
};

struct HereSpec {
  std::vector<std::string> argv;
  std::string input;
  std::string input_file, out_file;
  size_t out_max = size_t{256} << 10;
  std::function<void(std::string_view)> on_line;
};

struct HereResult {
  CommandResult command;
  std::string err;  // standard error, its last 16 KiB
};

// Cancelled, it kills the process group. What it leaves in the background goes on after it: a control master of ssh,
// a service that a set-up command started.
Task<HereResult> run_here(World& world, RunnerSettings settings, HereSpec spec);

// Lines out of the chunks of two streams, each with its own unfinished line.
class LineTail {
 public:
  explicit LineTail(std::function<void(std::string_view)> on_line) : on_line_(std::move(on_line)) {}
  void feed(bool is_stderr, std::string_view bytes);
  void finish();
  std::vector<std::string> take() { return std::move(last_); }

 private:
  void line(std::string_view text);

  std::function<void(std::string_view)> on_line_;
  LineBuffer lines_[2];
  std::vector<std::string> last_;
};

}  // namespace rubato::provider
