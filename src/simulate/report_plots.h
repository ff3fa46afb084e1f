// The plots of a run, from its samples.
#pragma once

#include <vector>

#include "simulate/outcome.h"
#include "simulate/plot.h"

namespace rubato::simulate {

// Nodes, queue, workers, use, and cost where there are prices.
std::vector<Plot> plots_of(const Outcome& outcome);

bool has_gpus(const Outcome& outcome);

}  // namespace rubato::simulate
