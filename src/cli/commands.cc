#include "cli/commands.h"

#include <algorithm>

#include "cli/allocate_command.h"
#include "cli/aws_command.h"
#include "cli/common_flags.h"
#include "cli/dataset_command.h"
#include "cli/gcp_command.h"
#include "cli/kubernetes_command.h"
#include "cli/petctl_command.h"
#include "cli/pod_command.h"

namespace rubato::cli {

const Command& doctor_table() {
  static const Command table{
      .name = "doctor",
      .summary = "check this machine, or the hosts of a cluster file, and say what to fix",
      .usage = "rubato doctor [CLUSTER.yaml] [--endpoint HOST:PORT] [--python PATH] [--json]",
      .about =
          "With a cluster file: every step of the way to each host (name, port, key, user, disk, clock, sudo,\n"
          "docker, Python, PyTorch, GPU). Of a cluster in a cloud (aws, gcp): credentials, region, network,\n"
          "images, permissions, quotas. Nothing is changed there. Exit code 1 when something is broken.",
      .positional = {.name = "CLUSTER.yaml", .help = "a cluster file whose hosts are checked", .at_most = 1},
      .flags = {{.name = "endpoint",
                 .kind = FlagKind::kValue,
                 .value = "HOST:PORT",
                 .help = "also check that this rendezvous endpoint can be reached, or hosted here"},
                {.name = "python",
                 .kind = FlagKind::kValue,
                 .value = "PATH",
                 .help = "the interpreter to check",
                 .default_text = "$PYTHON_EXEC, python3 or python in PATH"},
                {.name = "json", .help = "print JSON"}},
      .examples = {{"this machine", "rubato doctor"},
                   {"can it meet the others?", "rubato doctor --endpoint node0:29400"},
                   {"the hosts of a cluster", "rubato doctor cluster.yaml"}}};
  return table;
}

const Command& version_table() {
  static const Command table{.name = "version",
                             .summary = "print version, commit and build",
                             .usage = "rubato version [--json]",
                             .flags = {{.name = "json", .help = "print JSON"}}};
  return table;
}

const Command& completion_table() {
  static const Command table{
      .name = "completion",
      .summary = "print a completion script for your shell",
      .usage = "rubato completion bash|zsh|fish",
      .positional = {.name = "SHELL", .help = "bash, zsh or fish", .choices = "bash zsh fish", .at_most = 1},
      .examples = {{"bash", "rubato completion bash > ~/.local/share/bash-completion/completions/rubato"},
                   {"zsh", "rubato completion zsh > ~/.zfunc/_rubato   # with ~/.zfunc in $fpath"},
                   {"fish", "rubato completion fish > ~/.config/fish/completions/rubato.fish"}}};
  return table;
}

const Command& complete_table() {
  static const Command table{
      .name = "complete",
      .summary = "print names for a completion script",
      .usage = "rubato complete jobs|nodes|subjects|clusters",
      .positional = {.name = "WHAT", .help = "jobs, nodes, both (subjects) or clusters", .at_most = 1},
      .flags = {cluster_flag()},
      .hidden = true};
  return table;
}

const Command& help_table() {
  static const Command table{
      .name = "help",
      .summary = "explain a command",
      .usage = "rubato help [COMMAND]",
      .positional = {.name = "COMMAND",
                     .help = "the command to explain",
                     .choices = "up submit jobs job logs stop rerun fetch status clusters top why "
                                "events replay node request audit exec attach rsync-up rsync-down "
                                "get-head-ip get-worker-ips monitor down plan allocate run config cp dataset aws "
                                "petctl operator k8s simulate doctor version completion",
                     .at_most = 2}};
  return table;
}

const Command& docs_table() {
  static const Command table{.name = "docs",
                             .summary = "print the reference of all commands as Markdown",
                             .usage = "rubato docs [--openapi [--json]]",
                             .flags = {{.name = "openapi", .help = "print docs/openapi.yaml instead"},
                                       {.name = "json", .help = "that as JSON"}},
                             .hidden = true};
  return table;
}

const std::vector<const Command*>& all_commands() {  // tidy: long: a table
  static const std::vector<const Command*> commands{&up_table(),
                                                    &submit_table(),
                                                    &jobs_table_command(),
                                                    &job_show_table(),
                                                    &logs_table(),
                                                    &stop_table(),
                                                    &rerun_table(),
                                                    &fetch_table(),
                                                    &status_table(),
                                                    &clusters_table(),
                                                    &top_table(),
                                                    &why_table(),
                                                    &events_table(),
                                                    &replay_table(),
                                                    &drain_table(),
                                                    &node_lost_table(),
                                                    &request_table(),
                                                    &audit_table(),
                                                    &exec_table(),
                                                    &connect_table(),
                                                    &attach_table(),
                                                    &rsync_up_table(),
                                                    &rsync_down_table(),
                                                    &get_head_ip_table(),
                                                    &get_worker_ips_table(),
                                                    &monitor_table(),
                                                    &down_table(),
                                                    &run_table(),
                                                    &plan_table(),
                                                    &allocate_table(),
                                                    &config_check_table(),
                                                    &config_show_table(),
                                                    &config_explain_table(),
                                                    &config_migrate_table(),
                                                    &config_schema_table(),
                                                    &cp_table(),
                                                    &dataset_get_table(),
                                                    &aws_whoami_table(),
                                                    &aws_policy_table(),
                                                    &aws_bake_table(),
                                                    &aws_run_job_table(),
                                                    &aws_status_table(),
                                                    &aws_logs_table(),
                                                    &aws_resize_table(),
                                                    &aws_kill_job_table(),
                                                    &gcp_whoami_table(),
                                                    &gcp_policy_table(),
                                                    &petctl_run_job_table(),
                                                    &petctl_list_hosts_table(),
                                                    &petctl_upload_table(),
                                                    &petctl_kill_job_table(),
                                                    &operator_table(),
                                                    &k8s_install_table(),
                                                    &k8s_uninstall_table(),
                                                    &k8s_manifests_table(),
                                                    &k8s_logs_table(),
                                                    &k8s_scale_table(),
                                                    &simulate_table(),
                                                    &doctor_table(),
                                                    &version_table(),
                                                    &completion_table(),
                                                    &complete_table(),
                                                    &help_table(),
                                                    &docs_table(),
                                                    &head_table(),
                                                    &agent_table(),
                                                    &daemon_table(),
                                                    &supervise_table(),
                                                    &launch_table(),
                                                    &while_heard_table(),
                                                    &aws_host_table(),
                                                    &rendezvous_table(),
                                                    &k8s_copy_binary_table(),
                                                    &k8s_shell_table(),
                                                    &k8s_forward_table(),
                                                    &k8s_relay_table()};
  return commands;
}

FoundCommand find_command(const std::vector<std::string>& arguments) {
  for (size_t count = std::min<size_t>(arguments.size(), 2); count > 0; --count) {
    std::string name = count == 2 ? arguments[0] + " " + arguments[1] : arguments[0];
    std::replace(name.begin(), name.end(), '_', '-');
    for (const Command* command : all_commands()) {
      if (command->name == name) return {command, count};
    }
  }
  return {};
}

}  // namespace rubato::cli
