// The heads of clusters on this machine, as `rubato doctor` sees them: do they run, and who would start them again?
#pragma once

#include <vector>

#include "cli/cli.h"
#include "cli/doctor.h"

namespace rubato::cli {

// One finding for each cluster that is up and has its head here.
std::vector<Finding> judge_heads(const Environment& env);

}  // namespace rubato::cli
