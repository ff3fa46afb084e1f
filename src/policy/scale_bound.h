// A lower bound of what any plan must cost: how good is ours?
#pragma once

#include "policy/scale.h"

namespace rubato::policy {

// Dollars per hour that no set of launches can go below that leaves nothing unfulfilled, whatever the limits: a linear
// relaxation, in which bundles and new nodes may be cut in pieces. Bundles that fit on no type, gangs and requests are
// left out. Takes longer than the plan itself.
double cost_lower_bound(const ScaleInput& input);

}  // namespace rubato::policy
