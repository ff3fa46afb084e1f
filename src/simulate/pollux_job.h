// A training job of Pollux' simulator while it runs, and the policies that it is compared with.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "policy/goodput_fit.h"
#include "simulate/pollux_run.h"

namespace rubato::simulate {

class RunningJob {
 public:
  // With a batch size, it is kept; else the job takes the best one.
  RunningJob(const PolluxJob& job, const PolluxApplication& application, std::optional<double> batch_size)
      : job_(&job), application_(&application), fixed_batch_(batch_size) {}

  const PolluxJob& job() const { return *job_; }
  const PolluxApplication& application() const { return *application_; }
  bool done() const { return completed_s_.has_value(); }
  double completed_s() const { return *completed_s_; }
  double progress() const { return progress_; }
  double total_progress() const { return application_->progress_after(application_->epochs()); }
  double attained_service_s() const { return attained_service_s_; }
  int64_t restarts() const { return std::max<int64_t>(starts_ - 1, 0); }
  int most_profiled_replicas() const;
  const std::optional<policy::PerfParams>& perf() const { return perf_; }
  const policy::GradStats& grad() const { return grad_; }
  const std::vector<int>& seats() const { return seats_; }

  void give(std::vector<int> seats, int delay_s);  // node of each replica; empty: none
  void advance(double now_s, int seconds);         // from now_s on; choose_batch when an epoch ends
  void choose_batch();

 private:
  void measure();

  const PolluxJob* job_;
  const PolluxApplication* application_;
  std::optional<double> fixed_batch_;
  std::vector<int> seats_, placement_;
  int64_t atomic_bsz_ = 0, accum_steps_ = 0;
  int replicas_ = 0, epoch_ = 0, delay_s_ = 0;
  int64_t starts_ = 0;
  double progress_ = 0, attained_service_s_ = 0;
  std::optional<double> completed_s_;
  std::map<std::tuple<int, int, int64_t>, policy::StepPoint> profile_;
  std::optional<policy::PerfParams> perf_;
  policy::GradStats grad_;
};

// Seats for the active jobs, in their order: a list of nodes each.
using PolluxSeats = std::vector<std::vector<int>>;

class PolluxScheduler {
 public:
  explicit PolluxScheduler(const PolluxScenario& scenario) : scenario_(scenario) {}

  PolluxSeats decide(double now_s, const std::vector<RunningJob*>& active);

 private:
  PolluxSeats decide_adaptive(double now_s, const std::vector<RunningJob*>& active) const;
  PolluxSeats decide_fifo(const std::vector<RunningJob*>& active) const;
  PolluxSeats decide_tiresias(double now_s, const std::vector<RunningJob*>& active);
  PolluxSeats decide_optimus(const std::vector<RunningJob*>& active) const;

  const PolluxScenario& scenario_;
  struct Waiting {
    double executed_s = 0;
    bool running = false, demoted = false;
    int64_t order = 0;
  };
  std::map<std::string, Waiting> tiresias_;
  int64_t orders_ = 0;
  double last_s_ = 0;
};

}  // namespace rubato::simulate
