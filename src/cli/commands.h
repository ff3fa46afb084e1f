// The tables of all commands: what can be typed, in one place.
#pragma once

#include <vector>

#include "cli/flags.h"

namespace rubato::cli {

const Command& run_table();
const Command& doctor_table();
const Command& version_table();
const Command& completion_table();
const Command& help_table();
const Command& docs_table();

// In the order of help, hidden ones last.
const std::vector<const Command*>& all_commands();

}  // namespace rubato::cli
