#include "agent/worker_output.h"

#include <algorithm>

#include "core/turns.h"

namespace rubato::agent {

namespace {

// For the end of a worker whose lines wait at a closed gate.
constexpr Duration kLookAgain = 250ms;

bool shown(const LaunchSpec& spec, int local_rank) {
  const auto& filter = spec.local_ranks_filter;
  return !filter || std::ranges::find(*filter, local_rank) != filter->end();
}

OutputTarget plan_stream(const LaunchSpec& spec, int local_rank, const std::string& path, int bit) {
  if (path.empty()) return {shown(spec, local_rank) ? OutputTarget::Kind::kInherit : OutputTarget::Kind::kNull, ""};
  if (spec.tee.of(local_rank) & bit) return {OutputTarget::Kind::kPipe, ""};
  if (spec.redirects.of(local_rank) & bit) return {OutputTarget::Kind::kFile, path};
  // A rank that is filtered out still has its output, in its file.
  if (!shown(spec, local_rank)) return {OutputTarget::Kind::kFile, path};
  return {OutputTarget::Kind::kInherit, ""};
}

// The first bytes of a UTF-8 character at the end of a text, if there is more of it to come: taken off.
std::string cut_off_part(std::string& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const unsigned char c = byte(text.size() - back);
    if ((c & 0xc0) == 0x80) continue;
    const size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    if (length <= back) return "";
    std::string part = text.substr(text.size() - back);
    text.resize(text.size() - back);
    return part;
  }
  return "";
}

}  // namespace

OutputPlan plan_output(const LaunchSpec& spec, int local_rank, const std::string& folder) {
  const auto file = [&](const char* name) { return folder.empty() ? "" : folder + name; };
  return {plan_stream(spec, local_rank, file("/stdout.log"), 1), plan_stream(spec, local_rank, file("/stderr.log"), 2)};
}

std::vector<LineSplitter::Line> LineSplitter::take(std::string_view bytes) {
  std::vector<Line> lines;
  const auto add = [&](std::string_view piece) {
    while (rest_.size() + piece.size() > kLineMax) {
      const size_t room = kLineMax - rest_.size();
      rest_ += piece.substr(0, room);
      taken_ += room;
      piece.remove_prefix(room);
      std::string begun = cut_off_part(rest_);
      lines.push_back({std::exchange(rest_, begun), taken_ - begun.size(), true});
    }
    rest_ += piece;
    taken_ += piece.size();
  };
  for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    add(bytes.substr(0, end));
    lines.push_back({std::exchange(rest_, {}), ++taken_});
    bytes.remove_prefix(end + 1);
  }
  add(bytes);
  return lines;
}

std::vector<LineSplitter::Line> LineSplitter::flush() {
  if (rest_.empty()) return {};
  return {{std::exchange(rest_, {}), taken_}};
}

std::string without_return(LineSplitter::Line line) {
  if (!line.continues && line.text.ends_with('\r')) line.text.pop_back();
  return std::move(line.text);
}

Task<void> take_lines(Loop& loop, Process& process, int rank, LineSink sink, LineGate gate) {
  struct Side {
    LineSplitter lines;
    uint64_t end = 0;  // of what is kept: less than what came once the disk was full
  };
  Side out, err;
  const auto give = [&](bool is_stderr, std::vector<LineSplitter::Line> lines) {
    const uint64_t kept = (is_stderr ? err : out).end;
    for (LineSplitter::Line& line : lines) {
      line.end = std::min(line.end, kept);
      line.text = without_return(line);
      sink(rank, is_stderr, std::move(line));
    }
  };
  Turns turns(loop);
  while (true) {
    while (gate.open && !gate.open() && !process.status()) co_await gate.changed->wait_until(loop.now() + kLookAgain);
    const std::optional<OutputChunk> chunk = co_await process.output().pop();
    if (!chunk) break;
    Side& side = chunk->is_stderr ? err : out;
    side.end = chunk->end;
    give(chunk->is_stderr, side.lines.take(chunk->bytes));
    co_await turns.step();
  }
  give(false, out.lines.flush());
  give(true, err.lines.flush());
}

}  // namespace rubato::agent
