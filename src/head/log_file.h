// A job's log as a file: a JSON object a line, and beside it an index, by which a question about a long log reads only
// the parts that can hold its answer.
//
//   log        {"agent":..,"generation":..,"node":..,"rank":..,"sequence":..,"stream":..,"text":..,"time":..}
//              "continues":true: this output's next line goes on with it
//   log.index  a line for each kBlock of the log: where it ends, how many lines, their times, the ranks with lines
//
// Keys are in alphabetical order, so that what is asked for can be found without a parser. An index that is missing,
// damaged or of another log is made anew; what it does not reach yet is read. Pure functions on files: they take long,
// and run beside the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "elastic/node_wire.h"
#include "world/files.h"

namespace rubato::head {

inline constexpr uint64_t kLogBlock = uint64_t{256} << 10;

// What is known of a stretch of the log, from the end of the one before.
struct LogBlock {
  uint64_t end = 0;
  uint64_t lines = 0;
  std::string from, to;           // the earliest and the latest time in it, as the lines have them
  std::map<int, uint64_t> ranks;  // lines by rank

  void add(int rank, std::string_view time);
};

struct LogIndex {
  std::vector<LogBlock> blocks;
  uint64_t end() const { return blocks.empty() ? 0 : blocks.back().end; }
};

// Of the lines in a log.
struct LogFilter {
  std::optional<int> rank;
  std::string since;  // as the lines have their times; empty: all
  bool all() const { return !rank && since.empty(); }
};
LogFilter log_filter(std::optional<int> rank, std::optional<WallTime> since);

// A line with its end, as the API gives it. Bytes that are not UTF-8 become U+FFFD.
std::string log_entry(const NodeId& node, const AgentId& agent, const elastic::LogLine& line);
// What a line says without being parsed; nullopt: it is not whole.
struct LogFacts {
  std::string_view agent, time;
  int rank = 0;
  uint64_t sequence = 0;
};
std::optional<LogFacts> log_facts(std::string_view line);

std::string index_line(const LogBlock& block);
std::string index_path(const std::string& log);
uint64_t file_size(Files& files, const std::string& path);  // 0 when there is none

// The index as far as it is good and fits the log, which has `size` bytes; `damaged`: something in it was not.
LogIndex read_index(Files& files, const std::string& log, uint64_t size, bool& damaged);
// Reads the log from the index's end on, adds the whole blocks to it, and returns the rest as a block.
LogBlock extend_index(Files& files, const std::string& log, LogIndex& index);
// Replaces the file.
void write_index(Files& files, const std::string& log, const LogIndex& index);

// Stretches of the log, [begin, end) each, that can hold lines for this filter; the last one has no end.
struct LogRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};
std::vector<LogRange> log_ranges(const LogIndex& index, const LogFilter& filter, uint64_t from = 0);

// Whole lines that match, from `offset` on and of at most about `bytes_max` bytes of the file; `next` is behind what
// was looked at, which is `offset` at the end of what is whole. Lines that a dead head has not finished are left out.
struct LogPiece {
  std::string lines;
  uint64_t next = 0;
};
LogPiece read_lines(Files& files, const std::string& log, const LogFilter& filter, uint64_t offset, uint64_t end,
                    size_t bytes_max);

// Going back from the end of the log, step by step: where the last `wanted` lines that match begin.
struct LogTail {
  uint64_t wanted = 0;
  size_t block = 0;    // blocks before this one were not looked at yet
  uint64_t begin = 0;  // of the tail, as far as it is known
  bool done = false;
};
LogTail begin_tail(Files& files, const std::string& log, const LogIndex& index, const LogFilter& filter,
                   uint64_t wanted);
// Looks at no more than a few blocks of the file.
void read_tail(Files& files, const std::string& log, const LogIndex& index, const LogFilter& filter, LogTail& tail);

// All of the above at once, for a log that nobody writes to: gives `sink` the lines that match, piece by piece.
void read_log(Files& files, const std::string& log, const LogFilter& filter, std::optional<uint64_t> tail,
              const std::function<void(std::string_view)>& sink);

}  // namespace rubato::head
