// `rubato simulate --pollux DIR`: Pollux' traces under one of the policies.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

int pollux_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli
