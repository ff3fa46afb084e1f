// What resources are worth while a plan is being made.
#pragma once

#include <vector>

namespace rubato::policy {

// One column of supply: what a node has, and its price per hour.
struct PricedRoom {
  std::vector<double> room;  // by dimension
  double price = 0;
};

// The prices per unit of each dimension that make `demand` worth the most while no node is worth more than it costs:
// the dual of the linear program "fewest dollars of fractional nodes that hold the demand". So the sum of value times
// demand is a lower bound of any plan's cost, and a node is well used when what it holds is worth its price.
// A dimension that no node has is worth nothing.
std::vector<double> resource_values(const std::vector<PricedRoom>& nodes, const std::vector<double>& demand);

// x >= 0 that makes gain * x the largest while rows * x <= bound (each bound >= 0). The problem must have a largest
// one.
std::vector<double> maximise(std::vector<std::vector<double>> rows, std::vector<double> bound,
                             std::vector<double> gain);

}  // namespace rubato::policy
