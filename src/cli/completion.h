// Completion scripts for shells, made from the tables of commands.
#pragma once

#include <string>
#include <string_view>

namespace rubato::cli {

// Throws a usage Error for another shell than bash, zsh or fish.
std::string completion_script(std::string_view shell);

}  // namespace rubato::cli
