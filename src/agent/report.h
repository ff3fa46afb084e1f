// What a person reads when a job has failed: the root cause first.
#pragma once

#include <string>

#include "elastic/view.h"

namespace rubato::agent {

// `logs` is where this agent's worker logs are, or empty.
std::string failure_report(const elastic::View& ended, const std::string& logs);

}  // namespace rubato::agent
