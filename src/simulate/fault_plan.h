// FaultPlan: strikes at a run as its scenario says. Every fault leaves a mark, so that a report shows what was reached.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "simulate/run.h"

namespace rubato::simulate {

class FaultPlan {
 public:
  explicit FaultPlan(Run& run);
  void begin();
  void calm();  // everything that lasts ends now

  void head_starts();                                   // it may be stopped in its first second
  void worker_failed(const sim::WorkerRecord& worker);  // an agent may be killed in the second after it

 private:
  void pace(const Pace& pace, std::function<void()> strike);
  void again(const Pace& pace, const std::function<void()>& strike);
  void for_a_while(Duration lasts, std::function<void()> undo);
  void note(std::string_view mark, std::string text);
  Instance* some_node();
  void stock_out(const Faults::StockOut& fault);
  void partition(Duration lasts);
  void head_partition(Duration lasts);
  void crash_agent();
  void freeze(Duration lasts);
  void pause_head(Duration lasts);
  void pause_agent(Duration lasts);
  void freeze_head(Duration lasts);
  Instance* hurt(Instance* node);  // nobody is surprised when it is given up
  void jump_clock();
  void fill_disk(Duration lasts);
  void fill_head_disk(Duration lasts);

  Run& run_;
  sim::Simulator& simulator_;
  Random random_;
  uint64_t next_ = 1;
  std::map<uint64_t, std::function<void()>> undo_;  // of what lasts
};

}  // namespace rubato::simulate
