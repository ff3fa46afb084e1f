#include "head/job_logs.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"

namespace rubato::head {

using nlohmann::json;

namespace {
// More than agents may have sent without an acknowledgement: enough to know what is kept already.
constexpr uint64_t kTail = uint64_t{16} << 20;
constexpr size_t kBlock = size_t{256} << 10;
}  // namespace

JobLogs::JobLogs(Loop& loop, Files& files, std::string jobs_folder)
    : files_(files), folder_(std::move(jobs_folder)), grown_(loop) {}

std::string JobLogs::path(const JobId& job) const { return folder_ + "/" + job.value + "/log"; }

JobLogs::OpenLog& JobLogs::open(const JobId& job) {
  const auto found = open_.find(job);
  if (found != open_.end()) return found->second;
  files_.make_folders(folder_ + "/" + job.value);
  OpenLog& log = open_[job];
  uint64_t size = 0;
  for (const Files::Entry& entry : files_.list(folder_ + "/" + job.value)) {
    if (entry.name == "log") size = entry.size;
  }
  uint64_t offset = size > kTail ? size - kTail : 0;
  bool torn = false;
  while (offset < size) {
    const uint64_t before = offset;
    for (const std::string& line : read(job, offset)) {
      const json entry = json::parse(line, nullptr, false);
      if (!entry.is_object() || !entry.contains("agent") || !entry.contains("sequence"))
        continue;  // the tail's first line
      uint64_t& kept = log.kept[AgentId{entry["agent"].get<std::string>()}];
      kept = std::max(kept, entry["sequence"].get<uint64_t>());
    }
    torn = offset == before;
    if (torn) break;
  }
  log.file = files_.open_append(path(job));
  // A head that died in the middle of a line: end it, so that the next one is whole.
  if (torn) log.file->append("\n");
  return log;
}

uint64_t JobLogs::append(const JobId& job, const NodeId& node, const AgentId& agent,
                         const std::vector<elastic::LogLine>& lines) {
  OpenLog& log = open(job);
  uint64_t& kept = log.kept[agent];
  std::string bytes;
  uint64_t last = kept;
  for (const elastic::LogLine& line : lines) {
    if (line.sequence <= last) continue;
    json entry = {{"time", format_time(WallTime(std::chrono::microseconds(line.time_us)))},
                  {"rank", line.rank},
                  {"node", node.value},
                  {"generation", line.generation},
                  {"stream", line.is_stderr ? "err" : "out"},
                  {"text", line.text},
                  {"agent", agent.value},
                  {"sequence", line.sequence}};
    bytes += entry.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    last = line.sequence;
  }
  if (bytes.empty()) return kept;
  log.file->append(bytes);
  kept = last;
  grown_.notify();
  return kept;
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
