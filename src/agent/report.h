// What a person reads when a job has failed: torchrun's summary, which people and programs look for, and what of it is
// ours.
#pragma once

#include <string>

#include "elastic/view.h"

namespace rubato::agent {

struct ReportContext {
  std::string program;  // as torchrun names it: the script, the module, or the program's name without its folder
  std::string logs;     // where this agent's worker logs are, or empty
  Instant now{};
  WallTime wall{};  // at the same moment
};

std::string failure_report(const elastic::View& ended, const ReportContext& context);

}  // namespace rubato::agent
