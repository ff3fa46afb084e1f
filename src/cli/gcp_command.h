// `rubato gcp …`: who we are to Google, and what Rubato must be allowed there.
#pragma once

#include "cli/cli.h"
#include "terminal/flags.h"

namespace rubato::cli {

const Command& gcp_whoami_table();
const Command& gcp_policy_table();

int gcp_whoami_command(const ParsedCommand& parsed, const Shell& shell);
int gcp_policy_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli
