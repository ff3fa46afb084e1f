// A node_config by the cloud's own model of the request that it becomes; each problem at its place.
#pragma once

#include <span>
#include <string_view>

#include "core/yaml.h"
#include "model/finding.h"
#include "rest/shape.h"

namespace rubato::clouds {

struct ShapeRules {
  rest::Shape shape;
  std::string_view request;                  // for people: "EC2's RunInstances"
  std::span<const std::string_view> ours;    // decided by us for each machine: refused
  std::span<const std::string_view> texts;   // Ray's own keys beside the request's: a text, or a list of them
  std::span<const std::string_view> in_list;  // structures that Ray's files write as a list of one
  bool numbers_as_texts = false;             // 64-bit numbers travel as texts there
};

void check_shape(const Yaml& config, const ShapeRules& rules, Findings& findings);

// A node type without `resources` whose machine, at `key` of its node_config, is not in the cloud's table: nobody knows
// what jobs it could take before there is one.
void warn_of_unknown_machine(const Yaml& type, std::string_view key, bool (*is_known)(std::string_view),
                             Findings& findings);

}  // namespace rubato::clouds
