// `rubato k8s shell`, `forward` and `relay`: what ssh is to hosts, for pods: said by one rubato to another.
#pragma once

#include "cli/cli.h"
#include "terminal/flags.h"

namespace rubato::cli {

const Command& k8s_shell_table();
const Command& k8s_forward_table();
const Command& k8s_relay_table();

int k8s_shell_command(const ParsedCommand& parsed, const Shell& shell);
int k8s_forward_command(const ParsedCommand& parsed, const Shell& shell);
int k8s_relay_command(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli
