// LogPrinter: the lines of a log as people read them.
//
// A line of more than 64 KiB comes in pieces, and other workers' lines between them. Pieces are held until the line is
// whole, or longer than kHeldMax: then it is shown as it comes, and whoever prints between begins a line of his own.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <tuple>

#include "terminal/render_events.h"

namespace rubato::cli {

class LogPrinter {
 public:
  static constexpr size_t kHeldMax = size_t{4} << 20;  // of all workers together

  explicit LogPrinter(LogStyle look) : look_(look) {}

  // What is to be shown now, of an entry as the API gives it.
  std::string take(const nlohmann::json& entry);
  // No more comes: what is held of lines without an end.
  std::string flush();

 private:
  using Writer = std::tuple<std::string, int64_t, int64_t, std::string>;  // node, generation, rank, stream

  std::string end_open_line();
  std::string end_lines_of(int64_t generation, int64_t rank);

  const LogStyle look_;
  std::map<Writer, std::string> held_;  // with their prefixes
  size_t held_bytes_ = 0;
  std::optional<Writer> open_;  // the last thing shown is a piece of its line
};

}  // namespace rubato::cli
