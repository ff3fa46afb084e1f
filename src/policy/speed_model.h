// The model of a job's speed, from what the job tells of itself (AdaptDL's hints).
#pragma once

#include "model/job_profile.h"
#include "policy/allocate.h"

namespace rubato::policy {

// `profile` has its `perf`. On devices that it has not been seen on, a job is taken to be as fast as where it runs now.
JobModel model_of(const JobProfile& profile);

}  // namespace rubato::policy
