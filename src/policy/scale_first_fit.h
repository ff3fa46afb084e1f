// First fit: plans as Ray's two autoscalers make them. They are candidates beside our own, so that a plan is never
// dearer than Ray's for the same demands, and never leaves more bundles waiting.
#pragma once

#include <optional>

#include "policy/scale_draft.h"

namespace rubato::policy {

enum class FirstFitRule {
  kInOrder,  // bundles from the largest to the smallest, each on the first node that has room; then new nodes by score
  kByScore,  // the node that the bundles use best, again and again, among those that are there; then new nodes
};

// Which of new nodes with equal scores is taken. Ray takes the one that its file or its name puts first; the state does
// not say which that is.
enum class FirstFitTie { kCheapest, kDearest, kFirst, kLast };

struct FirstFitOptions {
  FirstFitRule rule = FirstFitRule::kInOrder;
  bool coming_apart = false;  // nodes that are coming are chosen by score, as new ones are: they were new a moment ago
  FirstFitTie tie = FirstFitTie::kCheapest;
  bool* tied = nullptr;  // set when equal scores were met: another way to break them gives another plan
};

// From `start` (nodes that are there, coming, or wanted for min_workers). nullopt when it would leave a gang with a
// part of its bundles, or a job behind another that came later: Ray has no such rules.
std::optional<Draft> first_fit_draft(const ScaleProblem& problem, const Draft& start, const FirstFitOptions& options);

// Whether it takes next to no time.
bool first_fit_is_quick(const ScaleProblem& problem, const Draft& start, FirstFitRule rule);

}  // namespace rubato::policy
