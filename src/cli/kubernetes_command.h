// `rubato operator` and `rubato k8s …`: elastic jobs on Kubernetes.
#pragma once

#include "cli/cli.h"
#include "terminal/flags.h"

namespace rubato::cli {

const Command& operator_table();
const Command& k8s_install_table();
const Command& k8s_uninstall_table();
const Command& k8s_manifests_table();
const Command& k8s_logs_table();
const Command& k8s_scale_table();
const Command& k8s_copy_binary_table();

int operator_command(const ParsedCommand& parsed, const Shell& shell);
int k8s_install_command(const ParsedCommand& parsed, const Shell& shell);
int k8s_uninstall_command(const ParsedCommand& parsed, const Shell& shell);
int k8s_manifests_command(const ParsedCommand& parsed, const Shell& shell);
int k8s_logs_command(const ParsedCommand& parsed, const Shell& shell);
int k8s_scale_command(const ParsedCommand& parsed, const Shell& shell);
int k8s_copy_binary_command(const ParsedCommand& parsed, const Shell& shell);
int why_kubernetes_command(const ParsedCommand& parsed, const Shell& shell);   // `rubato why --kubernetes`
int submit_manifest_command(const ParsedCommand& parsed, const Shell& shell);  // `rubato submit --manifest`

}  // namespace rubato::cli
