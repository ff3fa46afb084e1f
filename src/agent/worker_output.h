// Where the output of one worker goes: the terminal, files, or both with a prefix (torchrun's -r and -t).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/launch_spec.h"
#include "world/world.h"

namespace rubato::agent {

// The two targets for spawn(), as the choices say. `folder` holds stdout.log and stderr.log; empty: no files are wanted
// (--log-dir /dev/null), and what would go there is shown as it comes, as torchrun does.
struct OutputPlan {
  OutputTarget out, err;
  bool piped() const { return out.kind == OutputTarget::Kind::kPipe || err.kind == OutputTarget::Kind::kPipe; }
};
OutputPlan plan_output(const LaunchSpec& spec, int local_rank, const std::string& folder);

// Cuts what comes in pieces into lines, without their ends. One longer than kLineMax is cut, between two characters.
class LineSplitter {
 public:
  static constexpr size_t kLineMax = 64 * 1024;
  struct Line {
    std::string text;
    uint64_t end = 0;        // how many bytes of the stream were taken with it, its line end among them
    bool continues = false;  // it was cut: the next one goes on with it
  };
  std::vector<Line> take(std::string_view bytes);
  std::vector<Line> flush();  // the last line, if it has no end

 private:
  std::string rest_;
  uint64_t taken_ = 0;
};

// The line's `end` is in the file that keeps the worker's output (OutputTarget); 0 when none does.
using LineSink = std::function<void(int rank, bool is_stderr, LineSplitter::Line line)>;

// Closed: what comes is not taken for now, and whoever prints waits, as with a pipe.
struct LineGate {
  std::function<bool()> open;
  Event* changed = nullptr;  // it may be open now
};

// As people see it: "\r\n" ends a line too.
std::string without_return(LineSplitter::Line line);

// Gives a worker's lines to the sink as they come and the gate lets them; those of one that has ended go through. Ends
// when the pipes do.
Task<void> take_lines(Loop& loop, Process& process, int rank, LineSink sink, LineGate gate);

}  // namespace rubato::agent
