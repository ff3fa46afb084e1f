// The state that `rubato allocate` reads, and the decision that it prints, as JSON. docs/allocate.md has the fields.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "policy/allocate.h"

namespace rubato::policy {

struct AllocateState {
  AllocateInput input;
  std::vector<bool> number_ids;  // nodes whose id was a number: it is one in the answer, too
};

// Throws a usage Error with file:line:column that names the field, and the nearest known one when it is unknown.
AllocateState read_allocate_state(std::string_view text, const std::string& file);

// {"allocations", "batch", "desired_nodes", "reasons"}
nlohmann::ordered_json to_json(const AllocateState& state, const AllocateDecision& decision);

// For people: a line for each job.
std::string allocate_text(const AllocateState& state, const AllocateDecision& decision);

}  // namespace rubato::policy
