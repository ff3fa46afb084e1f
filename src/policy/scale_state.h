// The state that `rubato plan --state` reads, and the plan that it prints, as JSON. docs/autoscaler.md has the fields.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "policy/scale.h"

namespace rubato::policy {

// Throws a usage Error that names the field, and the nearest known one when it is unknown. `file` is for errors.
ScaleInput read_scale_state(std::string_view text, const std::string& file);

// {"launch", "terminate", "unfulfilled", "cost_per_hour", "reasons"}
nlohmann::ordered_json to_json(const ScalePlan& plan);

}  // namespace rubato::policy
