// Tee: the output of one worker that comes to us through pipes: into its files at once, to the console as fast as that
// is read.
//
//   pipe ──▶ file
//     └────▶ backlog ──▶ console       the backlog is full: the pipe is not read, and the worker alone waits
//
// A worker whose output cannot be kept (a full disk) has failed, as one that writes to the file itself has.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/worker_output.h"
#include "core/scope.h"
#include "world/outlet.h"

namespace rubato::agent {

// What of a stream people see: each line with a prefix. A line ends at "\n" or, as a progress bar's does, at "\r".
class ConsoleLines {
 public:
  explicit ConsoleLines(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string take(std::string_view bytes);
  std::string flush();  // what has no end yet, as a line of its own
  bool partial() const { return !rest_.empty(); }

 private:
  void end_line(std::string& out);

  std::string prefix_;
  std::string rest_;
  bool shown_ = false;  // the line that goes on has been shown up to here
};

struct TeeStream {
  std::string file;                  // empty: none
  bool show = false;                 // on our own stream of that kind
  std::vector<std::string> filters;  // a line that has one of them also goes to filtered_file
  std::string filtered_file;
};

struct TeeSpec {
  std::string prefix;
  TeeStream out, err;
};

class Tee {
 public:
  // `outlets` and `process` outlive it. `on_failure` is called once, when failure() is set.
  Tee(World& world, Outlets& outlets, Process& process, TeeSpec spec, std::function<void()> on_failure);

  // Ends when the pipes have ended and the files have what came. What the console has not taken by then is its own.
  Task<void> run();

  // From now on nobody waits for the console: the worker is to end, or has ended.
  void hurry();

  // Why its output could not be kept; empty: it was.
  const std::string& failure() const { return failure_; }

 private:
  struct Stream {
    Stream(bool is_stderr_in, TeeStream plan_in, const std::string& prefix)
        : is_stderr(is_stderr_in), plan(std::move(plan_in)), lines(prefix) {}
    bool is_stderr;
    TeeStream plan;
    std::unique_ptr<Outlet> file, filtered;
    ConsoleLines lines;
    LineSplitter whole;  // for the filters
  };
  struct Piece {
    bool is_stderr = false;
    std::string text;
  };

  void open(Stream& stream);
  Task<bool> take_next();  // false: the pipes have ended
  void take(Stream& stream, const std::string& bytes);
  void filter(Stream& stream, const std::vector<LineSplitter::Line>& lines);
  void show(const Stream& stream, std::string text);
  void show_partial();
  Task<void> wait_for_room();
  Task<void> print();
  Task<void> watch_files();
  Task<void> finish_files();
  void fail(const std::string& reason);
  Outlet& console(bool is_stderr) { return is_stderr ? outlets_.err() : outlets_.out(); }
  std::vector<Outlet*> files() const;

  World& world_;
  Outlets& outlets_;
  Process& process_;
  TeeSpec spec_;
  Stream out_, err_;
  bool hurry_ = false;
  std::deque<Piece> backlog_;
  size_t backlog_bytes_ = 0;
  std::string failure_;
  std::function<void()> on_failure_;
  Event changed_;  // the backlog, or hurry_
  Event written_;  // something was given to a file
};

}  // namespace rubato::agent
