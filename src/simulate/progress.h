// Progress: how far each job's training is. Real and light agents ask it how long their workers have to run.
//
// Training goes on from what was saved: all of it when workers were told to end (SIGTERM), else up to the last
// checkpoint.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/random.h"
#include "model/ids.h"
#include "simulate/workload.h"

namespace rubato::simulate {

class Progress {
 public:
  explicit Progress(Random random) : random_(random) {}

  void add(const JobId& job, const PlannedJob& plan);  // which outlives this

  // For workers of this generation, from the moment at which all of them train; they may crash before that.
  struct Run {
    Duration lasts{};
    std::optional<Duration> crashes_after;
  };
  Run run_of(const JobId& job, Generation generation, int workers);

  // How long the last of these was to last; zero: none was drawn.
  Duration lasts(const JobId& job) const;

  // Of the work of one worker, in seconds, when so many have trained for so long since the last start.
  double done_s(const JobId& job, int workers, Duration trained) const;

  // The first word about a generation's end counts: its workers have trained so long. Returns the worker-seconds of it
  // that are to be done again.
  enum class End { kDone, kSaved, kCrashed };
  double ended(const JobId& job, Generation generation, int workers, Duration trained, End end);

  // Worker-seconds: paid for, and of them those that were of use.
  double trained_s() const { return trained_s_; }
  double lost_s() const { return lost_s_; }

 private:
  struct Job {
    const PlannedJob* plan = nullptr;
    double left_s = 0;
    Generation ended = 0;
    Generation drawn = 0;
    Run run;
  };
  std::map<JobId, Job> jobs_;
  Random random_;
  double trained_s_ = 0, lost_s_ = 0;
};

}  // namespace rubato::simulate
