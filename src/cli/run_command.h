// `rubato run` after its flags are read: builds the World of this machine and runs the agent in it.
#pragma once

#include <optional>
#include <string>

#include "model/launch_spec.h"

namespace rubato::cli {

// Returns the exit code of the process. Throws an Error for what it cannot go on after.
int run_command(const LaunchSpec& spec);

// PyTorch before 2.2 reads NCCL_ASYNC_ERROR_HANDLING; one that cannot be found is taken for an old one.
bool is_old_torch(const std::optional<std::string>& version);

}  // namespace rubato::cli
