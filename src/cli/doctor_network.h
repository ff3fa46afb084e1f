// The network part of `rubato doctor`. Pure.
#pragma once

#include <vector>

#include "cli/doctor.h"

namespace rubato::cli {

std::vector<Finding> judge_network(const os::ProbeFacts& facts);

}  // namespace rubato::cli
