// From a draft to what is done now: whose bundle sits where, which of the new nodes may be asked for at once, and which
// idle nodes go.
#pragma once

#include "policy/scale_draft.h"

namespace rubato::policy {

struct Seated {
  size_t node = 0;  // of the packing
  int gang = -1;    // -1: a demand
  size_t bundles = 0;
  int64_t count = 0;
};

struct Outcome {
  std::vector<Seated> seated;        // in the order of the nodes
  std::vector<char> launched;        // by node of the packing: opened, and asked for now
  std::vector<ScaleLimit> deferred;  // by node of the packing: what an opened one waits for, or kNone
};

// Gangs get the first places; then nodes beyond upscaling_speed and launch_concurrency have to wait. As in Ray, nodes
// for min_workers, requests and gangs do not wait for upscaling_speed.
Outcome outcome_of(const ScaleProblem& problem, const Draft& draft);

// At most so many launches of a type under way.
int pending_max(const ScaleInput& input, const std::string& type);

struct IdleDecisions {
  std::vector<PlannedTermination> terminations;
  std::vector<ScaleReason> reasons;
};
IdleDecisions decide_idle(const ScaleProblem& problem, const Draft& draft, const Outcome& outcome);

}  // namespace rubato::policy
