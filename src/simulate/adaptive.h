// Adaptive jobs of a scenario: what they are like, how fast they are with so many workers, what they tell.
//
// As trainings of the library do, such a job times its steps, measures the noise of its gradients, and tells both to
// the supervisor of its node; the head sizes it by that (reconcile/resize.h). How fast it really is follows from the
// same model (policy/goodput.h), without the errors of measuring.
#pragma once

#include "core/random.h"
#include "core/time.h"
#include "model/job_profile.h"

namespace rubato::simulate {

struct AdaptiveJob {
  JobProfile profile;  // as it is; `max_profiled_replicas` and progress are those of the moment
  Duration tells_every = 30s;
  double error = 0;      // of what it measures, each time anew: 0.05 is up to 5 %
  bool declares = true;  // how much work it is
};

// How many times as fast as one worker it is; never nothing.
double speed(const AdaptiveJob& job, int workers);

// Where it has done `done_s` of `work_s` seconds of one worker, and was seen with at most so many workers.
JobProfile measured(const AdaptiveJob& job, double done_s, double work_s, int most_workers, Random& random);

}  // namespace rubato::simulate
