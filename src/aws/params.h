// Parameters of query requests from typed values, and from the user's own node_config.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aws/client.h"

namespace rubato::aws {

using Tags = std::vector<std::pair<std::string, std::string>>;

// {"tag:rubato-cluster", {"trainer"}}: one of the values.
struct Filter {
  std::string name;
  std::vector<std::string> values;
};

void add(Params& params, std::string name, std::string_view value);  // an empty value is left out
void add_list(Params& params, std::string_view name, const std::vector<std::string>& values);  // NAME.1, NAME.2, …
void add_filters(Params& params, const std::vector<Filter>& filters);
// TagSpecification.N with a resource type and its tags.
void add_tag_specification(Params& params, int number, std::string_view resource, const Tags& tags);

// A node_config as RunInstances takes it. Throws a usage Error with the path of a key that AWS does not know ("did you
// mean") or whose value is of the wrong type.
Params run_instances_params(const nlohmann::json& config);

}  // namespace rubato::aws
