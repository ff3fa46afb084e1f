// `rubato run` after its flags are read: builds the World of this machine and runs the agent in it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/error.h"
#include "model/launch_spec.h"

namespace rubato::cli {

// Returns the exit code of the process. Throws an Error for what it cannot go on after.
int run_command(const LaunchSpec& spec);

// For whoever started us with TORCHELASTIC_ERROR_FILE, as torchrun's @record does: why nothing was run.
void write_launcher_error(const Error& error, const std::map<std::string, std::string>& environment);

// PyTorch before 2.2 reads NCCL_ASYNC_ERROR_HANDLING; one that cannot be found is taken for an old one.
bool is_old_torch(const std::optional<std::string>& version);

// What torch.distributed.launch of that version hands to scripts: before 2.0 it is written with an underscore.
std::string local_rank_flag(const std::optional<std::string>& version);

}  // namespace rubato::cli
