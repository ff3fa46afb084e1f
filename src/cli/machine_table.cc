// The tables of the commands that act on a cluster's machines: Ray's words, and what they mean on this machine too.
#include "cli/commands.h"
#include "cli/common_flags.h"

namespace rubato::cli {
namespace {

constexpr auto kGiven = FlagKind::kValue;
constexpr std::string_view kWhichCluster = "a cluster file, or the name of a cluster that is known here";

Flag name_flag() {
  return {.name = "cluster-name",
          .short_name = 'n',
          .kind = kGiven,
          .value = "NAME",
          .help = "instead of the file's cluster_name"};
}

Flag forward_flag() {
  return {.name = "port-forward",
          .short_name = 'p',
          .kind = FlagKind::kRepeat,
          .value = "PORT",
          .help = "reach this port of the head as the same port here; LOCAL:REMOTE for another"};
}

Flag start_flag() { return {.name = "start", .help = "start the cluster first, if it is not up"}; }
Flag screen_flag(std::string_view help) { return {.name = "screen", .help = help}; }
Flag tmux_flag(std::string_view help) { return {.name = "tmux", .help = help}; }

std::vector<Flag> run_flags_of_ray() {
  return {start_flag(),
          {.name = "stop", .help = "end the cluster after the command, whatever comes of it"},
          screen_flag("run it in a screen that goes on without you"),
          tmux_flag("run it in a tmux that goes on without you"),
          forward_flag(),
          {.name = "run-env",
           .kind = kGiven,
           .value = "WHERE",
           .help = "auto, host or docker",
           .default_text = "auto: in the container, if the cluster has one",
           .choices = "auto host docker"},
          name_flag(),
          cluster_flag()};
}

Command rsync_command_table(std::string_view name, std::string_view summary, std::string_view usage) {
  return {.name = name,
          .summary = summary,
          .usage = usage,
          .positional = {.name = "CLUSTER [SOURCE TARGET]", .help = kWhichCluster, .names = "clusters", .at_most = 3},
          .flags = {{.name = "run-env",
                     .kind = kGiven,
                     .value = "WHERE",
                     .help = "auto, host or docker: whose file system is meant",
                     .default_text = "auto",
                     .choices = "auto host docker"},
                    {.name = "delete", .help = "also remove what is only in the target"},
                    name_flag(),
                    cluster_flag()}};
}

}  // namespace

const Command& exec_table() {
  static const Command table{
      .name = "exec",
      .summary = "run a command on the cluster's head",
      .usage = "rubato exec CLUSTER 'COMMAND' [--start] [--stop] [-p PORT]...",
      .about =
          "The exit code is the command's. One argument is a line for bash, as at a terminal there; several\n"
          "are one program with its arguments (put -- before them when some begin with a dash).",
      .positional = {.name = "CLUSTER COMMAND", .help = kWhichCluster, .names = "clusters", .at_most = 1000},
      .flags = run_flags_of_ray(),
      .examples = {
          {"a command", "rubato exec cluster.yaml 'nvidia-smi'"},
          {"on a new cluster that ends with it",
           "rubato exec cluster.yaml 'python train.py' --start --stop --cluster-name experiment-1"},
          {"a notebook, at http://localhost:8899", "rubato exec cluster.yaml -p 8899 'jupyter lab --port=8899'"}}};
  return table;
}

const Command& submit_to_table() {
  static const Command table{
      .name = "submit",
      .summary = "copy a script to the cluster's head and run it there with python",
      .usage = "rubato submit CLUSTER.yaml [--start] [--stop] SCRIPT [args...]",
      .positional = {.name = "CLUSTER.yaml SCRIPT [args...]", .help = "what to run where", .remainder = true},
      .flags = run_flags_of_ray()};
  return table;
}

const Command& connect_table() {
  static const Command table{
      .name = "connect",
      .summary = "use a cluster that was started from another machine",
      .usage = "rubato connect FILE [--json]",
      .about =
          "Finds the head over SSH, as the file says, and fetches what is needed to talk to it. Nothing is\n"
          "changed there: the cluster stays as it is, whatever the file says.",
      .positional = {.name = "FILE", .help = "the cluster file, with the head's address", .at_most = 1},
      .flags = {json_flag(), name_flag()},
      .examples = {{"from a second laptop", "rubato connect cluster.yaml"}}};
  return table;
}

const Command& attach_table() {
  static const Command table{
      .name = "attach",
      .summary = "open a shell on the cluster's head, or on one of its nodes",
      .usage = "rubato attach CLUSTER [--node NODE] [--screen | --tmux] [--new]",
      .positional = {.name = "CLUSTER", .help = kWhichCluster, .names = "clusters", .at_most = 1},
      .flags =
          {start_flag(),
           screen_flag("in a screen that you find again"),
           tmux_flag("in a tmux that you find again"),
           {.name = "new", .short_name = 'N', .help = "with --screen or --tmux: a new one"},
           {.name = "node", .kind = kGiven, .value = "NODE", .help = "id or address of the node", .names = "nodes"},
           {.name = "node-ip", .kind = kGiven, .value = "ADDRESS", .help = "the same, by Ray's name"},
           forward_flag(),
           {.name = "run-env",
            .kind = kGiven,
            .value = "WHERE",
            .help = "auto, host or docker",
            .default_text = "auto",
            .choices = "auto host docker"},
           name_flag(),
           cluster_flag()},
      .examples = {{"the head", "rubato attach cluster.yaml"},
                   {"a worker", "rubato attach cluster.yaml --node worker-2"}}};
  return table;
}

const Command& rsync_up_table() {
  static const Command table = [] {
    Command made = rsync_command_table("rsync-up", "copy files from here to the cluster's head",
                                       "rubato rsync-up CLUSTER [SOURCE TARGET] [-A]");
    made.about =
        "A folder's contents appear in the folder TARGET, a file as TARGET (or in it, if it ends with /).\n"
        "Without SOURCE and TARGET: the file_mounts of the cluster file.";
    made.flags.insert(made.flags.begin(), {.name = "all-nodes", .short_name = 'A', .help = "to every node"});
    made.examples = {{"a file", "rubato rsync-up cluster.yaml data.tar /home/ubuntu/"}};
    return made;
  }();
  return table;
}

const Command& rsync_down_table() {
  static const Command table = [] {
    Command made = rsync_command_table("rsync-down", "copy files from the cluster's head to here",
                                       "rubato rsync-down CLUSTER [SOURCE TARGET]");
    made.about = "Without SOURCE and TARGET: what lies under the file_mounts comes back.";
    made.examples = {{"a folder", "rubato rsync-down cluster.yaml /home/ubuntu/results ./results"}};
    return made;
  }();
  return table;
}

const Command& get_head_ip_table() {
  static const Command table{
      .name = "get-head-ip",
      .summary = "print the address of the cluster's head",
      .usage = "rubato get-head-ip CLUSTER",
      .positional = {.name = "CLUSTER", .help = kWhichCluster, .names = "clusters", .at_most = 1},
      .flags = {name_flag(), cluster_flag()}};
  return table;
}

const Command& get_worker_ips_table() {
  static const Command table{
      .name = "get-worker-ips",
      .summary = "print the addresses of the cluster's workers, one a line",
      .usage = "rubato get-worker-ips CLUSTER",
      .positional = {.name = "CLUSTER", .help = kWhichCluster, .names = "clusters", .at_most = 1},
      .flags = {name_flag(), cluster_flag()}};
  return table;
}

const Command& monitor_table() {
  static const Command table{
      .name = "monitor",
      .summary = "follow what the cluster's head does",
      .usage = "rubato monitor CLUSTER [--lines N]",
      .about = "The last events, then each as it comes; Ctrl-C ends it. The same as 'rubato events -f'.",
      .positional = {.name = "CLUSTER", .help = kWhichCluster, .names = "clusters", .at_most = 1},
      .flags = {{.name = "lines", .kind = kGiven, .value = "N", .help = "begin with the last N", .default_text = "100"},
                {.name = "no-follow", .help = "print them, and end"},
                name_flag(),
                cluster_flag()}};
  return table;
}

const Command& clusters_table() {
  static const Command table{.name = "clusters",
                             .summary = "list the clusters that are known here, and how they are",
                             .usage = "rubato clusters [--json]",
                             .flags = {json_flag()}};
  return table;
}

}  // namespace rubato::cli
