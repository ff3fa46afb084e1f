#include "head/log_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"

namespace rubato::head {

using nlohmann::json;

namespace {

constexpr uint64_t kReadBytes = uint64_t{1} << 20;
constexpr size_t kBlocksAtOnce = 8;

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// The value behind a key; in a text its quotes would be escaped. Empty: the line has none.
std::string_view value_of(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = line.substr(at + key.size());
  const size_t end = rest.starts_with('"') ? rest.find('"', 1) : rest.find_first_of(",}");
  if (end == std::string_view::npos) return {};
  return rest.starts_with('"') ? rest.substr(1, end - 1) : rest.substr(0, end);
}

// With its last key; in a text the quotes would be escaped.
bool is_whole(std::string_view line) {
  constexpr size_t kTimeMax = 48;
  if (!line.starts_with('{') || !line.ends_with("\"}")) return false;
  return line.substr(line.size() - std::min(line.size(), kTimeMax)).find(",\"time\":\"") != std::string_view::npos;
}

bool matches(std::string_view line, const LogFilter& filter) {
  if (!is_whole(line)) return false;
  if (filter.rank) {
    int rank = 0;
    if (!read_number(value_of(line, ",\"rank\":"), rank) || rank != *filter.rank) return false;
  }
  if (filter.since.empty()) return true;
  const size_t at = line.rfind(",\"time\":\"");  // the last key
  return at != std::string_view::npos && value_of(line.substr(at), ",\"time\":") >= filter.since;
}

// As nlohmann writes a string; bytes that are not UTF-8 as U+FFFD.
void append_text(std::string& out, std::string_view text) {
  const auto plain = [](unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; };
  if (std::ranges::all_of(text, plain)) {
    out += '"';
    out += text;
    out += '"';
    return;
  }
  out += json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

bool can_match(const LogBlock& block, const LogFilter& filter) {
  if (filter.rank && !block.ranks.contains(*filter.rank)) return false;
  return filter.since.empty() || block.to >= filter.since;
}

// How many lines match, when that is known without reading them.
std::optional<uint64_t> known_matches(const LogBlock& block, const LogFilter& filter) {
  if (!can_match(block, filter)) return 0;
  if (!filter.since.empty() && block.from < filter.since) return std::nullopt;
  return filter.rank ? block.ranks.at(*filter.rank) : block.lines;
}

std::string line_sum(std::string_view text) {
  RunningHash hash;
  hash.add(text);
  return fmt::format("{:016x}", hash.value());
}

std::optional<LogBlock> read_index_line(std::string_view line) {
  const size_t last = line.rfind(' ');
  if (last == std::string_view::npos || line.substr(last + 1) != line_sum(line.substr(0, last))) return std::nullopt;
  const auto parts = split(line.substr(0, last), ' ');
  LogBlock block;
  if (parts.size() != 5 || !read_number(parts[0], block.end) || !read_number(parts[1], block.lines)) return {};
  block.from = parts[2];
  block.to = parts[3];
  for (const std::string_view one : split(parts[4], ',')) {
    if (one.empty()) continue;
    const auto pair = split(one, ':');
    int rank = 0;
    uint64_t lines = 0;
    if (pair.size() != 2 || !read_number(pair[0], rank) || !read_number(pair[1], lines)) return std::nullopt;
    block.ranks[rank] = lines;
  }
  return block;
}

// Calls `each` with the whole lines of [begin, end) and where they end. Returns the end of the last one.
template <class Each>
uint64_t for_each_line(Files& files, const std::string& log, uint64_t begin, uint64_t end, Each each) {
  std::string rest;
  uint64_t at = begin;  // of what is read next
  uint64_t done = begin;
  while (at < end) {
    const std::string bytes = files.read_range(log, at, static_cast<size_t>(std::min(kReadBytes, end - at)));
    if (bytes.empty()) break;
    at += bytes.size();
    const size_t before = rest.size();
    rest += bytes;
    size_t from = 0;
    for (size_t stop = rest.find('\n', before); stop != std::string::npos; stop = rest.find('\n', from)) {
      done += stop + 1 - from;
      if (!each(std::string_view(rest).substr(from, stop - from), done)) return done;
      from = stop + 1;
    }
    rest.erase(0, from);
  }
  return done;
}

}  // namespace

void LogBlock::add(int rank, std::string_view time) {
  ++lines;
  ++ranks[rank];
  if (from.empty() || time < from) from = time;
  if (time > to) to = time;
}

LogFilter log_filter(std::optional<int> rank, std::optional<WallTime> since) {
  LogFilter filter;
  filter.rank = rank;
  // Lines have milliseconds: what is after a moment between two of them begins with the next.
  if (since) filter.since = format_time(std::chrono::ceil<std::chrono::milliseconds>(*since));
  return filter;
}

std::string log_entry(const NodeId& node, const AgentId& agent, const elastic::LogLine& line) {
  std::string out = "{\"agent\":";
  append_text(out, agent.value);
  if (line.continues) out += ",\"continues\":true";
  fmt::format_to(std::back_inserter(out), ",\"generation\":{}", line.generation);
  if (line.missing_lines > 0) {
    fmt::format_to(std::back_inserter(out), ",\"missing\":{{\"bytes\":{},\"lines\":{}}}", line.missing_bytes,
                   line.missing_lines);
  }
  out += ",\"node\":";
  append_text(out, node.value);
  fmt::format_to(std::back_inserter(out), ",\"rank\":{},\"sequence\":{},\"stream\":\"{}\",\"text\":", line.rank,
                 line.sequence, line.is_stderr ? "err" : "out");
  append_text(out, line.text);
  out += ",\"time\":\"";
  out += format_time(WallTime(std::chrono::microseconds(line.time_us)));
  out += "\"}\n";
  return out;
}

std::optional<LogFacts> log_facts(std::string_view line) {
  if (!is_whole(line)) return std::nullopt;
  LogFacts facts;
  facts.agent = value_of(line, "{\"agent\":");
  const size_t at = line.rfind(",\"time\":\"");
  if (at == std::string_view::npos) return std::nullopt;
  facts.time = value_of(line.substr(at), ",\"time\":");
  if (!read_number(value_of(line, ",\"rank\":"), facts.rank)) return std::nullopt;
  if (!read_number(value_of(line, ",\"sequence\":"), facts.sequence)) return std::nullopt;
  return facts;
}

std::string index_path(const std::string& log) { return log + ".index"; }

uint64_t file_size(Files& files, const std::string& path) {
  try {
    return files.open_read(path)->size();
  } catch (const Error&) {
    return 0;
  }
}

std::string index_line(const LogBlock& block) {
  std::string ranks;
  for (const auto& [rank, lines] : block.ranks) ranks += fmt::format("{}{}:{}", ranks.empty() ? "" : ",", rank, lines);
  const std::string text = fmt::format("{} {} {} {} {}", block.end, block.lines, block.from, block.to, ranks);
  return text + " " + line_sum(text) + "\n";
}

LogIndex read_index(Files& files, const std::string& log, uint64_t size, bool& damaged) {
  LogIndex index;
  const std::string text = files.read(index_path(log)).value_or("");
  damaged = text.empty() && size >= 2 * kLogBlock;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::optional<LogBlock> block = read_index_line(rest.substr(0, end));
    if (end == std::string_view::npos || !block || block->end <= index.end() || block->end > size) {
      damaged = true;
      break;
    }
    index.blocks.push_back(*block);
    rest.remove_prefix(end + 1);
  }
  // Of another log, if its last block does not end with a line.
  if (!index.blocks.empty() && files.read_range(log, index.end() - 1, 1) != "\n") {
    damaged = true;
    index.blocks.clear();
  }
  return index;
}

LogBlock extend_index(Files& files, const std::string& log, LogIndex& index) {
  LogBlock block;
  uint64_t begin = index.end();
  const auto each = [&](std::string_view line, uint64_t end) {
    if (const auto facts = log_facts(line)) block.add(facts->rank, facts->time);
    block.end = end;
    if (end - begin >= kLogBlock) {
      index.blocks.push_back(std::exchange(block, {}));
      begin = end;
    }
    return true;
  };
  for_each_line(files, log, begin, file_size(files, log), each);
  return block;
}

void write_index(Files& files, const std::string& log, const LogIndex& index) {
  std::string text;
  for (const LogBlock& block : index.blocks) text += index_line(block);
  const std::string draft = index_path(log) + ".draft";
  files.remove_tree(draft);
  files.open_append(draft)->append(text);
  files.move(draft, index_path(log));
}

std::vector<LogRange> log_ranges(const LogIndex& index, const LogFilter& filter, uint64_t from) {
  constexpr uint64_t kNoEnd = std::numeric_limits<uint64_t>::max();
  std::vector<LogRange> ranges;
  const auto add = [&](uint64_t begin, uint64_t end) {
    begin = std::max(begin, from);
    if (begin >= end) return;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = end;
    } else {
      ranges.push_back({begin, end});
    }
  };
  uint64_t begin = 0;
  for (const LogBlock& block : index.blocks) {
    if (can_match(block, filter)) add(begin, block.end);
    begin = block.end;
  }
  add(begin, kNoEnd);
  return ranges;
}

LogPiece read_lines(Files& files, const std::string& log, const LogFilter& filter, uint64_t offset, uint64_t end,
                    size_t bytes_max) {
  LogPiece piece;
  piece.next = offset;
  const uint64_t size = file_size(files, log);
  const auto each = [&](std::string_view line, uint64_t line_end) {
    if (matches(line, filter)) {
      piece.lines += line;
      piece.lines += '\n';
    }
    return line_end - offset < bytes_max;
  };
  if (offset < size) piece.next = for_each_line(files, log, offset, std::min(size, end), each);
  return piece;
}

LogTail begin_tail(Files& files, const std::string& log, const LogIndex& index, const LogFilter& filter,
                   uint64_t wanted) {
  LogTail tail;
  tail.wanted = wanted;
  tail.block = index.blocks.size();
  tail.begin = index.end();
  // What the index does not know is little, or this would have made it anew.
  std::vector<uint64_t> begins;
  uint64_t begin = tail.begin;
  const auto each = [&](std::string_view line, uint64_t end) {
    if (matches(line, filter)) begins.push_back(begin);
    begin = end;
    return true;
  };
  for_each_line(files, log, tail.begin, file_size(files, log), each);
  if (wanted <= begins.size()) {
    tail.begin = wanted == 0 ? begin : begins[begins.size() - wanted];
    tail.done = true;
  } else {
    tail.wanted -= begins.size();
  }
  return tail;
}

void read_tail(Files& files, const std::string& log, const LogIndex& index, const LogFilter& filter, LogTail& tail) {
  for (size_t read = 0; read < kBlocksAtOnce && !tail.done;) {
    if (tail.block == 0) {
      tail.done = true;
      return;
    }
    const LogBlock& block = index.blocks[--tail.block];
    const uint64_t block_begin = tail.block == 0 ? 0 : index.blocks[tail.block - 1].end;
    const std::optional<uint64_t> known = known_matches(block, filter);
    if (known && *known < tail.wanted) {
      tail.wanted -= *known;
      if (*known > 0) tail.begin = block_begin;
      continue;
    }
    ++read;
    std::vector<uint64_t> begins;
    uint64_t begin = block_begin;
    const auto each = [&](std::string_view line, uint64_t end) {
      if (matches(line, filter)) begins.push_back(begin);
      begin = end;
      return true;
    };
    for_each_line(files, log, block_begin, block.end, each);
    if (begins.size() >= tail.wanted) {
      tail.begin = begins[begins.size() - tail.wanted];
      tail.done = true;
    } else {
      tail.wanted -= begins.size();
      if (!begins.empty()) tail.begin = begins.front();
    }
  }
}

void read_log(Files& files, const std::string& log, const LogFilter& filter, std::optional<uint64_t> tail,
              const std::function<void(std::string_view)>& sink) {
  bool damaged = false;
  LogIndex index = read_index(files, log, file_size(files, log), damaged);
  extend_index(files, log, index);
  uint64_t from = 0;
  if (tail) {
    LogTail place = begin_tail(files, log, index, filter, *tail);
    while (!place.done) read_tail(files, log, index, filter, place);
    from = place.begin;
  }
  for (LogRange range : log_ranges(index, filter, from)) {
    while (range.begin < range.end) {
      const LogPiece piece = read_lines(files, log, filter, range.begin, range.end, kReadBytes);
      if (!piece.lines.empty()) sink(piece.lines);
      if (piece.next == range.begin) break;
      range.begin = piece.next;
    }
  }
}

}  // namespace rubato::head
