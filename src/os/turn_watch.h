// TurnWatch: how long the loop's turns are, in CPU time of its thread, so that a busy machine is not taken for a long
// turn. A turn is what runs between two moments at which the loop asks for what has come in.
//
//   production   every turn is observed (a metric), one over the limit is reported (a warning)
//   tests        RUBATO_TURN_LIMIT_MS sets the limit, and a report has the stack of what ran when it was passed
#pragma once

#include <ctime>
#include <functional>
#include <map>
#include <string>

#include "core/time.h"

namespace rubato::os {

struct LongTurn {
  Duration cpu{};
  std::string stack;  // addresses in the binary, for addr2line; empty unless stacks were asked for
};

struct TurnWatchSettings {
  Duration limit = 50ms;
  bool stacks = false;
  // RUBATO_TURN_LIMIT_MS, if it is there: a limit, and stacks.
  static TurnWatchSettings from(const std::map<std::string, std::string>& environment);
};

// Watches the loop of the thread that makes it, from start() on.
class TurnWatch {
 public:
  explicit TurnWatch(TurnWatchSettings settings);
  TurnWatch(const TurnWatch&) = delete;
  ~TurnWatch();

  // Called for every turn, and for every one over the limit, after it has ended.
  std::function<void(Duration cpu)> observe;
  std::function<void(const LongTurn&)> report;

  void start();
  void stop();

  // For the loop: around each turn, on its thread.
  static void begin_turn();
  static void end_turn();

 private:
  void begin();
  void end();
  void arm(Duration after);

  const TurnWatchSettings settings_;
  Duration began_{};
  timer_t timer_{};
  bool has_timer_ = false;
};

}  // namespace rubato::os
