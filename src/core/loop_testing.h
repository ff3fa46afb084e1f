// For tests of coroutines: a loop whose time moves only when the test says so, and a mark of who died when.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/scope.h"

namespace rubato {

class ManualLoop final : public Scheduler {
 public:
  Instant now() const override { return now_; }

  // Lets everything run that can, stopping at each timer on the way, up to now + d.
  void advance(Duration d) {
    const Instant end = now_ + d;
    drain();
    while (next_due() && *next_due() <= end) {
      now_ = std::max(now_, *next_due());
      fire_due(now_);
      drain();
    }
    now_ = end;
  }

 private:
  Instant now_{};
};

using Trace = std::vector<std::string>;

// Writes "~name" when it is destroyed.
class Mark {
 public:
  Mark(Trace& trace, std::string name) : trace_(trace), name_(std::move(name)) {}
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() { trace_.push_back("~" + name_); }

 private:
  Trace& trace_;
  std::string name_;
};

}  // namespace rubato
