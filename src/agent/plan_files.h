// The documents that an agent and its workers exchange where the group changes in place: docs/training.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/group_plan.h"
#include "model/ids.h"

namespace rubato::agent {

// plan.json. `lost`: members of earlier plans that died or fell silent.
std::string plan_document(const elastic::GroupPlan& plan, Generation generation, const std::vector<std::string>& lost);

// worker-ID.json.
struct WorkerReport {
  enum class State { kReady, kTraining, kBroken, kLeft };
  State state = State::kReady;
  Generation generation = 0;
  std::string reason;
};
// nullopt: it is no report. The worker is the user's program: nothing that it writes is trusted.
std::optional<WorkerReport> parse_worker_report(std::string_view text);

// The members of `before` that are neither in `after` nor leave it in peace.
std::vector<std::string> lost_between(const elastic::GroupPlan& before, const elastic::GroupPlan& after);

}  // namespace rubato::agent
