// Found again: nodes that are coming were chosen by an earlier decision, together with what goes on them. Packing that
// anew into the same nodes may need one more. So this decision asks once more what that one was asked, without those
// nodes, and takes them for the ones that it opens.
#pragma once

#include <optional>
#include <vector>

#include "policy/scale_draft.h"

namespace rubato::policy {

// What may have been asked before some of the launches were decided.
struct EarlierQuestion {
  ScaleInput input;
  std::vector<size_t> known;  // of the launching nodes of `input`: where they are in the input of now
  std::vector<char> since;    // by launching nodes of now: they were asked for since then
};

// Whether a decision with so many nodes, there, coming and new, is asked again.
bool is_asked_again(const ScaleProblem& problem, size_t nodes);

// The likely ones; none where asking them would take long.
std::vector<EarlierQuestion> earlier_questions(const ScaleProblem& problem);

// `found`, a draft for the earlier question, with nodes that are coming now for those that it opens. nullopt when it
// has work on a node that may take none now, or opens nodes that can no longer be had.
std::optional<Draft> found_again(const ScaleProblem& problem, const Draft& start, const EarlierQuestion& earlier,
                                 const Draft& found);

}  // namespace rubato::policy
