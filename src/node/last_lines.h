// The lines that a dead agent has left in its node's folder: printed by its workers, and not acknowledged by a head.
#pragma once

#include <functional>
#include <string>

#include "core/task.h"
#include "elastic/node_wire.h"
#include "world/world.h"

namespace rubato::node {

// Gives them all to `keep`, which returns the number up to which they may be forgotten, as a head does for an agent.
// Waits a while for the dead agent's guard, which may still be saving what was in the pipes. May be cancelled and
// repeated: the lines have the numbers that the agent gave or would have given them.
using KeepLines = std::function<Task<uint64_t>(elastic::LogLines lines)>;
Task<void> send_last_lines(World& world, std::string node_folder, KeepLines keep);

}  // namespace rubato::node
