// credential_process: credentials that a program of the person's own prints, as their profile says.
#pragma once

#include <string>

#include "rest/environment.h"
#include "world/world.h"

namespace rubato::aws {

// What the program prints, started by a shell. It is given no input, and a minute. Throws kAuth with what it said when
// it fails.
Task<std::string> run_credential_process(World& world, rest::Environment env, rest::Sourced program);

}  // namespace rubato::aws
