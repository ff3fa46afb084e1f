#include "agent/worker_output.h"

#include <algorithm>

namespace rubato::agent {

namespace {

bool shown(const LaunchSpec& spec, int local_rank) {
  const auto& filter = spec.local_ranks_filter;
  return !filter || std::ranges::find(*filter, local_rank) != filter->end();
}

OutputTarget plan_stream(const LaunchSpec& spec, int local_rank, const std::string& path, int bit) {
  if (spec.tee.of(local_rank) & bit) return {OutputTarget::Kind::kPipe, ""};
  if (spec.redirects.of(local_rank) & bit) return {OutputTarget::Kind::kFile, path};
  // A rank that is filtered out still has its output, in its file.
  if (!shown(spec, local_rank)) return {OutputTarget::Kind::kFile, path};
  return {OutputTarget::Kind::kInherit, ""};
}

// Whole lines of one stream with a prefix; a last line without an end gets one.
class LinePrinter {
 public:
  explicit LinePrinter(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string take(std::string_view bytes) {
    std::string lines;
    for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
      lines += prefix_;
      lines += std::exchange(rest_, {});
      lines += bytes.substr(0, end + 1);
      bytes.remove_prefix(end + 1);
    }
    rest_ += bytes;
    if (rest_.size() > kLineMax) lines += flush();
    return lines;
  }
  std::string flush() {
    if (rest_.empty()) return "";
    return prefix_ + std::exchange(rest_, {}) + "\n";
  }

 private:
  static constexpr size_t kLineMax = 64 * 1024;
  std::string prefix_;
  std::string rest_;
};

}  // namespace

OutputPlan plan_output(const LaunchSpec& spec, int local_rank, const std::string& folder) {
  return {plan_stream(spec, local_rank, folder + "/stdout.log", 1),
          plan_stream(spec, local_rank, folder + "/stderr.log", 2)};
}

Task<void> tee_output(World& world, Process& process, std::string prefix, std::string folder, bool show) {
  LinePrinter out(prefix), err(prefix);
  std::unique_ptr<Appender> out_file, err_file;
  while (true) {
    const std::optional<OutputChunk> chunk = co_await process.output().pop();
    if (!chunk) break;
    std::unique_ptr<Appender>& file = chunk->is_stderr ? err_file : out_file;
    if (!file) file = world.files.open_append(folder + (chunk->is_stderr ? "/stderr.log" : "/stdout.log"));
    file->append(chunk->bytes);
    if (!show) continue;
    const std::string lines = (chunk->is_stderr ? err : out).take(chunk->bytes);
    if (!lines.empty()) chunk->is_stderr ? world.console.err(lines) : world.console.out(lines);
  }
  if (show) {
    world.console.out(out.flush());
    world.console.err(err.flush());
  }
}

}  // namespace rubato::agent
