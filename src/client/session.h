// Session: a command's way to the cluster that it means, and the few things that all such commands do alike.
#pragma once

#include <memory>
#include <string>

#include "client/shell.h"
#include "terminal/layout.h"

namespace rubato::cli {

// What a shell returns for a command that Ctrl-C ended.
inline constexpr int kInterruptedExit = 130;
// A head that dies is restarted within seconds by whoever looks after it; commands that wait outlast that.
inline constexpr Duration kHeadPatience = 60s;

struct Session {
  ClusterPlace place;
  std::unique_ptr<Api> api;
  bool past = false;         // the cluster is down: its files answer
  std::string past_where;    // when they are not all here: " on 10.0.0.7"
  std::string cluster_flag;  // " --cluster NAME" when it was given: for commands that we suggest
};
Session open_session(const ParsedCommand& parsed, const Shell& shell);
// For commands that only read what happened: a cluster that is down is read from its files, and a note says so.
Session open_reading_session(const ParsedCommand& parsed, const Shell& shell);
// The same for a command whose first word may be a cluster file or a cluster's name.
Session open_named_session(const ParsedCommand& parsed, const Shell& shell);

Style style_of(const Shell& shell);

// Pretty, with a newline; bytes that are not UTF-8 are replaced.
std::string json_text(const nlohmann::json& document);

// The only positional, or the one at `index`. Throws a usage Error that says what is missing.
std::string require_word(const ParsedCommand& parsed, size_t index, std::string_view what, std::string_view usage);

// One line on standard error that is written over when it is a terminal, and not shown otherwise.
class LiveLine {
 public:
  explicit LiveLine(const Shell& shell) : shell_(shell) {}
  ~LiveLine() { clear(); }
  void show(const std::string& text);
  void clear();

 private:
  const Shell& shell_;
  bool shown_ = false;
};

// The same with several lines.
class LiveBlock {
 public:
  explicit LiveBlock(const Shell& shell) : shell_(shell) {}
  ~LiveBlock() { clear(); }
  void show(const std::vector<std::string>& lines);
  void clear();

 private:
  const Shell& shell_;
  size_t shown_ = 0;
};

// Whether the person says yes; true without asking where nobody can be asked.
bool confirmed(const Shell& shell, const std::string& question);

}  // namespace rubato::cli
