// The last words: what the console has not taken yet is given a bounded chance at the end.
#pragma once

#include <functional>

#include "world/outlet.h"
#include "world/world.h"

namespace rubato::agent {

// Waits until both standard streams have taken all, as long as they take something within `patience`. Ends early when
// `hurry` says so. Returns how many bytes are left, which nobody will see.
Task<size_t> flush(World& world, Outlets& outlets, Duration patience, std::function<bool()> hurry);

}  // namespace rubato::agent
