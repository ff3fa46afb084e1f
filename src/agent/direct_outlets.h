// Outlets of a World whose console and files make nobody wait.
#pragma once

#include <memory>

#include "world/outlet.h"
#include "world/world.h"

namespace rubato::agent {

std::unique_ptr<Outlets> make_direct_outlets(World& world);

}  // namespace rubato::agent
