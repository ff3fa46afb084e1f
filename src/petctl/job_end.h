// Removes what was made for a job. What does not carry its tag is never touched.
#pragma once

#include <string>
#include <vector>

#include "petctl/job_surroundings.h"
#include "petctl/job_view.h"

namespace rubato::petctl {

struct EndOrder {
  std::string name;
  std::string place;  // as in JobQuery
  bool all = true;    // the status of its hosts in S3 too; not after a job that has ended by itself
  OnProgress on_progress;
};

// Returns when its machines are gone. What was removed, for people; empty: there was nothing. May be repeated.
Task<std::vector<std::string>> end_job(aws::Client& client, EndOrder order);

}  // namespace rubato::petctl
