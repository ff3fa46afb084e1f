#include "head/job_logs.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "core/turns.h"

namespace rubato::head {

using nlohmann::json;

namespace {
// More than agents may have sent without an acknowledgement: enough to know what is kept already.
constexpr uint64_t kTail = uint64_t{16} << 20;
constexpr size_t kBlock = size_t{256} << 10;

// A line as the API gives it. `text` may be any bytes.
std::string log_entry(const NodeId& node, const AgentId& agent, const elastic::LogLine& line) {
  const json entry = {{"time", format_time(WallTime(std::chrono::microseconds(line.time_us)))},
                      {"rank", line.rank},
                      {"node", node.value},
                      {"generation", line.generation},
                      {"stream", line.is_stderr ? "err" : "out"},
                      {"text", line.text},
                      {"agent", agent.value},
                      {"sequence", line.sequence}};
  return entry.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

elastic::LogLine missing_before(const elastic::LogLine& line, uint64_t lost) {
  elastic::LogLine words = line;
  words.is_stderr = true;
  words.text = fmt::format("rubato: {} lines are missing here: the head's disk did not take them", lost);
  return words;
}

}  // namespace

JobLogs::JobLogs(Loop& loop, Files& files, std::string jobs_folder)
    : loop_(loop), files_(files), folder_(std::move(jobs_folder)), grown_(loop) {}

std::string JobLogs::path(const JobId& job) const { return folder_ + "/" + job.value + "/log"; }

JobLogs::OpenLog& JobLogs::open(const JobId& job) {
  const auto found = open_.find(job);
  if (found != open_.end()) return found->second;
  OpenLog& log = open_[job];
  if (!files_.exists(path(job))) return log;
  uint64_t size = 0;
  for (const Files::Entry& entry : files_.list(folder_ + "/" + job.value)) {
    if (entry.name == "log") size = entry.size;
  }
  uint64_t offset = size > kTail ? size - kTail : 0;
  log.unread = offset;
  while (offset < size) {
    const uint64_t before = offset;
    for (const std::string& line : read(job, offset)) {
      const json entry = json::parse(line, nullptr, false);
      if (!entry.is_object() || !entry.contains("agent") || !entry.contains("sequence"))
        continue;  // the tail's first line
      uint64_t& kept = log.kept[AgentId{entry["agent"].get<std::string>()}];
      kept = std::max(kept, entry["sequence"].get<uint64_t>());
    }
    log.torn = offset == before;
    if (log.torn) break;
  }
  return log;
}

Task<void> JobLogs::recall(JobId job, AgentId agent) {
  if (open(job).kept.contains(agent)) co_return;
  // Keys are in alphabetical order, so this is how its lines begin; in a text the quotes would be escaped.
  const std::string beginning = fmt::format("{{\"agent\":\"{}\"", agent.value);
  uint64_t last = 0;
  Turns turns(loop_);
  for (uint64_t end = open(job).unread; end > 0;) {
    const uint64_t begin = end > kBlock ? end - kBlock : 0;
    const std::string block = files_.read_range(path(job), begin, end - begin + beginning.size());
    const size_t found = block.rfind(beginning);
    if (found != std::string::npos) {
      uint64_t offset = begin + found;
      const std::vector<std::string> lines = read(job, offset);
      const json entry = lines.empty() ? json() : json::parse(lines.front(), nullptr, false);
      if (entry.is_object()) last = entry.value("sequence", uint64_t{0});
      break;
    }
    end = begin;
    co_await turns.step();
  }
  uint64_t& kept = open(job).kept[agent];
  kept = std::max(kept, last);
}

uint64_t JobLogs::append(const JobId& job, const NodeId& node, const AgentId& agent,
                         const std::vector<elastic::LogLine>& lines) {
  OpenLog& log = open(job);
  uint64_t last = log.kept[agent];
  uint64_t fresh = 0;
  std::string bytes = log.torn ? "\n" : "";
  for (const elastic::LogLine& line : lines) {
    if (line.sequence <= last) continue;
    if (fresh++ == 0 && log.lost > 0) bytes += log_entry(node, agent, missing_before(line, log.lost));
    bytes += log_entry(node, agent, line);
    last = line.sequence;
  }
  if (fresh == 0) return last;
  try {
    files_.make_folders(folder_ + "/" + job.value);
    // Opened each time: a thousand running jobs are not a thousand open files.
    files_.open_append(path(job))->append(bytes);
    log.lost = 0;
    log.torn = false;
  } catch (const Error&) {
    log.lost += fresh;
    log.torn = true;
  }
  log.kept[agent] = last;
  grown_.notify();
  return last;
}

std::vector<std::string> JobLogs::read(const JobId& job, uint64_t& offset) const {
  std::vector<std::string> lines;
  if (!files_.exists(path(job))) return lines;
  std::string block = files_.read_range(path(job), offset, kBlock);
  // A line may be longer than a block, but not than a few.
  while (block.find('\n') == std::string::npos) {
    const std::string more = files_.read_range(path(job), offset + block.size(), kBlock);
    if (more.empty()) return lines;
    block += more;
  }
  const size_t whole = block.rfind('\n') + 1;
  offset += whole;
  for (const std::string_view line : split(std::string_view(block).substr(0, whole - 1), '\n')) {
    if (!line.empty()) lines.emplace_back(line);
  }
  return lines;
}

}  // namespace rubato::head
