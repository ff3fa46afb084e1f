// `rubato aws …` and `rubato cp`: AWS without a cluster.
#pragma once

#include "aws/settings.h"
#include "cli/cli.h"
#include "terminal/flags.h"

namespace rubato::cli {

const Command& aws_whoami_table();
const Command& aws_policy_table();
const Command& cp_table();

int aws_whoami_command(const ParsedCommand& parsed, const Shell& shell);
int aws_policy_command(const ParsedCommand& parsed, const Shell& shell);
int cp_command(const ParsedCommand& parsed, const Shell& shell);

// --profile, --region and the environment.
aws::Settings aws_settings(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli
