// Work on whole folders that gives others a turn: a loop that is busy for seconds is taken for dead by its peers.
#pragma once

#include <string>

#include "core/task.h"
#include "world/world.h"

namespace rubato {

// Removes a file or a folder with all that is in it. What is not there is gone already. May be cancelled and repeated.
Task<void> remove_in_turns(World& world, std::string path);

}  // namespace rubato
