#include "head/job_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "core/turns.h"

namespace rubato::head {

using nlohmann::json;

namespace {
// More than agents may have sent without an acknowledgement: enough to know what is kept already.
constexpr uint64_t kTail = uint64_t{16} << 20;
constexpr uint64_t kRecallBlock = uint64_t{1} << 20;
constexpr size_t kPiece = size_t{1} << 20;  // of a log, read at once
constexpr const char* kMissing = "/missing.json";
constexpr const char* kLog = "/log";

// The file beside a log, {"0":{"bytes":..,"lines":..},"counted":{"agent":12}}: by rank what is missing, and up to which
// line of each agent that is counted. It is written before the lines that say so: a head that dies between the two
// gets them again, and counts them once.
struct MissingSum {
  std::map<int, MissingLines> ranks;
  std::map<AgentId, uint64_t> counted;
};
constexpr const char* kCounted = "counted";

std::string missing_document(const MissingSum& sum) {
  json document = json::object();
  for (const auto& [rank, one] : sum.ranks)
    document[std::to_string(rank)] = {{"lines", one.lines}, {"bytes", one.bytes}};
  for (const auto& [agent, sequence] : sum.counted) document[kCounted][agent.value] = sequence;
  return document.dump() + "\n";
}

MissingSum read_missing(Files& files, const std::string& folder) {
  MissingSum sum;
  const json document = json::parse(files.read(folder + kMissing).value_or(""), nullptr, false);
  if (!document.is_object()) return sum;
  for (const auto& [key, one] : document.items()) {
    if (!one.is_object()) continue;
    if (key == kCounted) {
      for (const auto& [agent, sequence] : one.items()) {
        if (sequence.is_number_unsigned()) sum.counted[AgentId{agent}] = sequence.get<uint64_t>();
      }
      continue;
    }
    sum.ranks[std::atoi(key.c_str())] = {one.value("lines", uint64_t{0}), one.value("bytes", uint64_t{0})};
  }
  return sum;
}

const std::map<int, MissingLines> kNothing;

}  // namespace

// One write to a log: made on the loop, carried out beside it, taken note of on the loop.
struct JobLogs::Writing {
  std::string path, folder;
  NodeId node;
  AgentId agent;
  std::vector<elastic::LogLine> lines;
  std::optional<MissingSum> sum;  // for the file beside the log, if it changes
  bool sum_written = false;
  // The log as it was before, then as it is.
  uint64_t size = 0, block_begin = 0;
  LogBlock block;
  bool torn = false, index_lost = false;
  size_t kept = 0;  // so many of the lines are in the file

  void carry_out(Files& files);
  void write_sum(Files& files);
  void add_to_index(Files& files, const std::vector<uint64_t>& ends);
};

void JobLogs::Writing::carry_out(Files& files) {
  std::string bytes = torn ? "\n" : "";
  std::vector<uint64_t> ends;
  for (const elastic::LogLine& line : lines) {
    bytes += log_entry(node, agent, line);
    ends.push_back(size + bytes.size());
  }
  try {
    files.make_folders(folder);
    if (sum) write_sum(files);
  } catch (const Error&) {
    return;  // nothing was kept
  }
  try {
    // Opened each time: a thousand running jobs are not a thousand open files.
    files.open_append(path)->append(bytes);
    size += bytes.size();
    torn = false;
  } catch (const Error&) {
    size = file_size(files, path);
    torn = true;
  }
  // A disk that has become full has taken the first ones.
  kept = static_cast<size_t>(std::ranges::upper_bound(ends, size) - ends.begin());
  ends.resize(kept);
  try {
    add_to_index(files, ends);
  } catch (const Error&) {
    index_lost = true;
  }
}

void JobLogs::Writing::write_sum(Files& files) {
  const std::string draft = folder + kMissing + ".draft";
  files.remove_tree(draft);
  files.open_append(draft)->append(missing_document(*sum));
  files.move(draft, folder + kMissing);
  sum_written = true;
}

void JobLogs::Writing::add_to_index(Files& files, const std::vector<uint64_t>& ends) {
  if (index_lost) {
    LogIndex index;
    block = extend_index(files, path, index);
    block_begin = index.end();
    write_index(files, path, index);
    index_lost = false;
    return;
  }
  std::string text;
  for (size_t i = 0; i < ends.size(); ++i) {
    block.add(lines[i].rank, format_time(WallTime(std::chrono::microseconds(lines[i].time_us))));
    block.end = ends[i];
    if (block.end - block_begin < kLogBlock) continue;
    block_begin = block.end;
    text += index_line(std::exchange(block, {}));
  }
  if (!text.empty()) files.open_append(index_path(path))->append(text);
}

JobLogs::JobLogs(Loop& loop, Files& files, std::string jobs_folder, Offload offload)
    : loop_(loop),
      files_(files),
      folder_(std::move(jobs_folder)),
      offload_(offload),
      grown_(loop),
      chores_(loop, std::move(offload)) {}

std::string JobLogs::path(const JobId& job) const { return folder_ + "/" + job.value + kLog; }

// Beside the loop: what a log holds already, for whoever goes on with it.
void JobLogs::open_log(Files& files, const std::string& folder, OpenLog& log) {
  const std::string path = folder + kLog;
  log.counted = read_missing(files, folder).counted;
  log.size = file_size(files, path);
  if (log.size == 0) return;
  bool damaged = false;
  LogIndex index = read_index(files, path, log.size, damaged);
  const size_t known = index.blocks.size();
  log.block = extend_index(files, path, index);
  log.block_begin = index.end();
  if (damaged || index.blocks.size() != known) {
    try {
      write_index(files, path, index);
    } catch (const Error&) {
      // A full disk: the next one who opens it tries again.
    }
  }
  // From the beginning of a line on; the end of the file may be in the middle of one.
  uint64_t begin = log.size > kTail ? log.size - kTail : 0;
  log.unread = begin;
  while (begin < log.size) {
    const LogPiece piece = read_lines(files, path, LogFilter{}, begin, log.size, kPiece);
    for (const std::string_view line : split(piece.lines, '\n')) {
      const auto facts = log_facts(line);
      if (!facts) continue;  // the tail's first line
      uint64_t& kept = log.kept[AgentId{std::string(facts->agent)}];
      kept = std::max(kept, facts->sequence);
    }
    log.torn = piece.next == begin;
    if (log.torn) break;
    begin = piece.next;
  }
}

Task<std::shared_ptr<JobLogs::OpenLog>> JobLogs::open(JobId job) {
  co_await chores_.idle(job);
  const auto found = open_.find(job);
  if (found != open_.end()) co_return found->second;
  const auto log = std::make_shared<OpenLog>();
  std::function<void()> work = [&files = files_, folder = folder_ + "/" + job.value, log] {
    open_log(files, folder, *log);
  };
  std::function<void()> after = [this, job, log] { open_[job] = log; };
  co_await chores_.run(job, std::move(work), std::move(after));
  co_return log;
}

Task<void> JobLogs::recall(JobId job, AgentId agent) {
  const std::shared_ptr<OpenLog> log = co_await open(job);
  if (log->kept.contains(agent)) co_return;
  // This is how its lines begin; in a text the quotes would be escaped.
  const std::string beginning = fmt::format("{{\"agent\":\"{}\"", agent.value);
  const auto last = std::make_shared<uint64_t>(0);
  for (uint64_t end = log->unread; end > 0 && *last == 0;) {
    const uint64_t begin = end > kRecallBlock ? end - kRecallBlock : 0;
    std::function<void()> work = [&files = files_, path = path(job), beginning, begin, end, last] {
      const std::string block = files.read_range(path, begin, end - begin + beginning.size());
      const size_t found = block.rfind(beginning);
      if (found == std::string::npos) return;
      const LogPiece piece = read_lines(files, path, LogFilter{}, begin + found, UINT64_MAX, 1);
      if (const auto facts = log_facts(trim(piece.lines))) *last = facts->sequence;
    };
    co_await run_beside(offload_, std::move(work));
    end = begin;
  }
  uint64_t& kept = log->kept[agent];
  kept = std::max(kept, *last);
}

Task<uint64_t> JobLogs::append(JobId job, NodeId node, AgentId agent, std::vector<elastic::LogLine> lines,
                               uint64_t follows) {
  co_await recall(job, agent);  // others may have written more than the tail since its last line
  const std::shared_ptr<OpenLog> log = co_await open(job);
  co_await chores_.idle(job);
  const uint64_t before = log->kept[agent];
  if (follows > before) co_return before;
  std::erase_if(lines, [&](const elastic::LogLine& line) { return line.sequence <= before; });
  if (lines.empty()) co_return before;
  const auto writing = std::make_shared<Writing>();
  MissingSum sum{missing(job), log->counted};
  uint64_t& counted = sum.counted[agent];
  for (const elastic::LogLine& line : lines) {
    if (line.missing_lines == 0 || line.sequence <= counted) continue;
    counted = line.sequence;
    MissingLines& total = sum.ranks[line.rank];
    total.lines += line.missing_lines;
    total.bytes += line.missing_bytes;
    writing->sum = sum;
  }
  writing->node = std::move(node);
  writing->agent = agent;
  writing->lines = std::move(lines);
  co_await write(job, log, writing);
  co_return log->kept[agent];
}

// Nothing is under way for this job.
Task<void> JobLogs::write(JobId job, std::shared_ptr<OpenLog> log, std::shared_ptr<Writing> writing) {
  writing->path = path(job);
  writing->folder = folder_ + "/" + job.value;
  writing->size = log->size;
  writing->block_begin = log->block_begin;
  writing->block = log->block;
  writing->torn = log->torn;
  writing->index_lost = log->index_lost;
  std::function<void()> work = [&files = files_, writing] { writing->carry_out(files); };
  std::function<void()> after = [this, job, log, writing] { wrote(job, *log, *writing); };
  co_await chores_.run(job, std::move(work), std::move(after));
}

void JobLogs::wrote(const JobId& job, OpenLog& log, Writing& writing) {
  log.size = writing.size;
  log.block_begin = writing.block_begin;
  log.block = std::move(writing.block);
  log.torn = writing.torn;
  log.index_lost = writing.index_lost;
  if (writing.kept > 0) log.kept[writing.agent] = writing.lines[writing.kept - 1].sequence;
  if (writing.sum_written) {
    missing_[job] = std::move(writing.sum->ranks);
    log.counted = std::move(writing.sum->counted);
  }
  grown_.notify();
}

void JobLogs::close(const JobId& job) {
  open_.erase(job);
  grown_.notify();
}

Task<void> JobLogs::remember_missing(std::vector<JobId> jobs) {
  const auto found = std::make_shared<MissingByJob>();
  std::function<void()> work = [&files = files_, folder = folder_, jobs = std::move(jobs), found] {
    for (const JobId& job : jobs) {
      MissingSum sum = read_missing(files, folder + "/" + job.value);
      if (!sum.ranks.empty()) (*found)[job] = std::move(sum.ranks);
    }
  };
  co_await run_beside(offload_, std::move(work));
  missing_ = std::move(*found);
}

const std::map<int, MissingLines>& JobLogs::missing(const JobId& job) const {
  const auto found = missing_.find(job);
  return found == missing_.end() ? kNothing : found->second;
}

// A writer has seen to it that there is one; of a log that nobody writes to it may be missing or damaged.
Task<std::shared_ptr<LogIndex>> JobLogs::index(JobId job) {
  const auto index = std::make_shared<LogIndex>();
  if (!open_.contains(job)) co_await chores_.idle(job);
  const bool written = open_.contains(job);
  std::function<void()> work = [&files = files_, path = path(job), index, written] {
    const uint64_t size = file_size(files, path);
    if (size == 0) return;
    bool damaged = false;
    *index = read_index(files, path, size, damaged);
    const size_t known = index->blocks.size();
    if (written && size - index->end() < 4 * kLogBlock) return;
    extend_index(files, path, *index);
    if (written || (!damaged && index->blocks.size() == known)) return;
    try {
      write_index(files, path, *index);
    } catch (const Error&) {
      // A full disk: the next one who asks makes it again.
    }
  };
  if (written) {
    co_await run_beside(offload_, std::move(work));
  } else {
    std::function<void()> after = [] {};
    co_await chores_.run(job, std::move(work), std::move(after));
  }
  co_return index;
}

Task<JobLogs::Cursor> JobLogs::find(JobId job, LogFilter filter, std::optional<uint64_t> tail) {
  Cursor cursor;
  cursor.job = job;
  cursor.filter = filter;
  const std::shared_ptr<LogIndex> index = co_await this->index(job);
  uint64_t from = 0;
  if (tail) {
    const auto place = std::make_shared<LogTail>();
    std::function<void()> begin = [&files = files_, path = path(job), index, filter, place, wanted = *tail] {
      *place = begin_tail(files, path, *index, filter, wanted);
    };
    co_await run_beside(offload_, std::move(begin));
    Turns turns(loop_);
    while (!place->done) {
      std::function<void()> back = [&files = files_, path = path(job), index, filter, place] {
        read_tail(files, path, *index, filter, *place);
      };
      co_await run_beside(offload_, std::move(back));
      co_await turns.step();
    }
    from = place->begin;
  }
  cursor.ranges = log_ranges(*index, filter, from);
  co_return cursor;
}

Task<std::optional<std::string>> JobLogs::read(Cursor& cursor) {
  Turns turns(loop_);
  while (true) {
    const LogRange range = cursor.ranges.front();
    const auto piece = std::make_shared<LogPiece>();
    std::function<void()> work = [&files = files_, path = path(cursor.job), filter = cursor.filter, range, piece] {
      *piece = read_lines(files, path, filter, range.begin, range.end, kPiece);
    };
    co_await run_beside(offload_, std::move(work));
    const bool moved = piece->next > range.begin;
    const bool last = cursor.ranges.size() == 1;
    cursor.ranges.front().begin = piece->next;
    if (!last && (!moved || piece->next >= range.end)) cursor.ranges.erase(cursor.ranges.begin());
    if (!piece->lines.empty()) co_return std::move(piece->lines);
    if (!moved && last) co_return std::nullopt;
    co_await turns.step();
  }
}

bool JobLogs::at_end(const Cursor& cursor) const {
  const auto found = open_.find(cursor.job);
  return found != open_.end() && cursor.ranges.size() == 1 && cursor.ranges.front().begin >= found->second->size;
}

}  // namespace rubato::head
