// What a person meant who typed a command that there is not. Pure.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace rubato::cli {

// `words`: the whole command line without the program's name; no command begins it.
Error unknown_command(const std::vector<std::string>& arguments);

}  // namespace rubato::cli
