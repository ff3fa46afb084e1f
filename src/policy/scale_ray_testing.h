// For tests: Ray's two planners, written down plainly from how Ray behaves, knowing nothing of our code; and random
// small states in Ray's vocabulary.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "policy/scale.h"

namespace rubato::policy {

struct RayAnswer {
  std::map<std::string, int> launch;
  int64_t unfulfilled = 0;    // bundles of demands, gangs and requests
  bool partial_gang = false;  // some gang got a part of its bundles: no plan of ours does that

  double cost(const ScaleInput& input) const;
};

RayAnswer ray_v1(const ScaleInput& input);
RayAnswer ray_v2(const ScaleInput& input);

// A state with these of AWS' types at their prices ("m5.large", "p3.8xlarge", ...), and no nodes.
ScaleInput aws_types(std::initializer_list<std::string_view> names);

// Few nodes, few types, few bundles; limits, partial load, gangs, requests.
ScaleInput random_ray_state(Random& random);

// The least that any launches cost that leave nothing of the demands unfulfilled; for tiny states without gangs and
// requests. nullopt: there are none, or the search takes too long.
std::optional<double> least_cost(const ScaleInput& input);

}  // namespace rubato::policy
