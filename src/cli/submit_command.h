// `rubato submit`: packs, sends what the head does not have, submits, and follows.
#pragma once

#include "cli/cli.h"

namespace rubato::cli {

int submit_command(const ParsedCommand& parsed, const Shell& shell);

// Sends the bytes of a package that the head does not have yet, in chunks, from where an earlier try ended.
void upload_package(Api& api, const Shell& shell, const std::string& file, const std::string& hash, uint64_t size);

}  // namespace rubato::cli
