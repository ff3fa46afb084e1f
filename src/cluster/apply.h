// apply: the effect of one record. Never throws for a record that a head has written, never decides anything.
#pragma once

#include "cluster/state.h"

namespace rubato::cluster {

void apply(State& state, const Record& record);

}  // namespace rubato::cluster
