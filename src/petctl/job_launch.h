// Makes what a plan names, each thing once: a command that was killed in the middle goes on when it is repeated.
#pragma once

#include <string>

#include "petctl/job_plan.h"
#include "petctl/job_surroundings.h"
#include "petctl/job_view.h"

namespace rubato::petctl {

struct LaunchOrder {
  JobPlan plan;
  std::string binary_path;  // ours
  std::string script_path;  // what is uploaded: the script, or an archive of the folder; empty: nothing
  std::string fresh_key;    // for a new job's rendezvous
  OnProgress on_progress;
};

// Returns when its groups are made and its hosts know where to meet. Throws kConflict when another job has the name.
Task<void> launch_job(aws::Client& client, LaunchOrder order);

}  // namespace rubato::petctl
