// The tables of the commands about the cluster.
#include "cli/commands.h"
#include "cli/common_flags.h"

namespace rubato::cli {
namespace {

constexpr auto kTaken = FlagKind::kValue;

}  // namespace

const Command& up_table() {
  static const Command table{
      .name = "up",
      .summary = "start a cluster, or change it to what a file says",
      .usage = "rubato up [FILE] [-y] [--dry-run]",
      .about =
          "Without a file: one node with all of this machine. Hosts in the file become the cluster over SSH.\n"
          "Run it again after an edit: only what differs is changed. From then on a head that\n"
          "dies is started again by itself, and takes over its agents and jobs.",
      .positional = {.name = "FILE", .help = "the cluster file, Ray's or ours; http(s) works", .at_most = 1},
      .flags = {{.name = "yes", .short_name = 'y', .help = "do not ask before machines are paid for or nodes removed"},
                {.name = "dry-run", .help = "show what would change, and change nothing"},
                {.name = "min-workers", .kind = kTaken, .value = "N", .help = "instead of the file's"},
                {.name = "max-workers", .kind = kTaken, .value = "N", .help = "instead of the file's"},
                {.name = "no-restart", .help = "update files and set-up, but leave agents and jobs running"},
                {.name = "restart-only", .help = "restart the nodes' agents, without their set-up"},
                {.name = "cluster-name",
                 .short_name = 'n',
                 .kind = kTaken,
                 .value = "NAME",
                 .help = "instead of the file's cluster_name"},
                {.name = "store",
                 .kind = kTaken,
                 .value = "URL",
                 .help = "where the journal is kept: etcd://HOST:PORT[,HOST:PORT...]",
                 .default_text = "SQLite in the cluster's folder"},
                {.name = "listen",
                 .kind = kTaken,
                 .value = "ADDRESS",
                 .help = "serve the API at this address of this machine, with TLS off loopback",
                 .default_text = "127.0.0.1, for this machine only"},
                {.name = "accept-journal-loss",
                 .help = "go on without the records that a damaged journal lacks; it is kept aside"},
                {.name = "timeout",
                 .kind = kTaken,
                 .value = "TIME",
                 .help = "how long to wait until the nodes are up",
                 .default_text = "60s; 30m on hosts of your own"},
                json_flag(),
                cluster_flag(),
                {.name = "use-login-shells",
                 .help = "run set-up commands in a login shell, with the profile there (the default)"},
                {.name = "use-normal-shells", .help = "run them without it"},
                // Ray's; nothing is cached, and the commands' output is always in a log.
                {.name = "no-config-cache", .help = "", .hidden = true},
                {.name = "redirect-command-output", .help = "", .hidden = true},
                {.name = "here", .hidden = true},
                {.name = "files-hash", .kind = kTaken, .value = "HASH", .hidden = true},
                {.name = "head-address", .kind = kTaken, .value = "ADDRESS", .hidden = true},
                {.name = "said-file", .kind = kTaken, .value = "PATH", .hidden = true}},
      .examples = {{"this machine", "rubato up"},
                   {"what a file says", "rubato up cluster.yaml"},
                   {"other limits, and nothing else", "rubato up cluster.yaml --max-workers 8 --no-restart"}}};
  return table;
}

const Command& down_table() {
  static const Command table{
      .name = "down",
      .summary = "end a cluster: its jobs, nodes and head",
      .usage = "rubato down [CLUSTER] [-y] [--purge] [--workers-only [--keep-min-workers]]",
      .about = "The journal, logs and outputs stay, for 'rubato up' to find again; --purge removes them.",
      .positional = {.name = "CLUSTER",
                     .help = "a cluster file, or the name of a cluster",
                     .names = "clusters",
                     .at_most = 1},
      .flags = {{.name = "yes", .short_name = 'y', .help = "do not ask"},
                {.name = "workers-only", .help = "end the workers; the head stays"},
                {.name = "keep-min-workers", .help = "of each type, keep as many as its min_workers"},
                {.name = "cluster-name",
                 .short_name = 'n',
                 .kind = kTaken,
                 .value = "NAME",
                 .help = "instead of the file's cluster_name"},
                {.name = "purge", .help = "also remove the journal, logs, outputs and packages"},
                {.name = "timeout",
                 .kind = kTaken,
                 .value = "TIME",
                 .help = "how long jobs and nodes may take to end",
                 .default_text = "120s"},
                cluster_flag(),
                {.name = "here", .hidden = true}}};
  return table;
}

const Command& status_table() {
  static const Command table{.name = "status",
                             .summary = "show the cluster, its nodes, jobs and last events",
                             .usage = "rubato status [CLUSTER] [--json]",
                             .positional = {.name = "CLUSTER",
                                            .help = "a cluster file, or the name of a cluster",
                                            .names = "clusters",
                                            .at_most = 1},
                             .flags = {json_flag(), cluster_flag()}};
  return table;
}

const Command& top_table() {
  static const Command table{
      .name = "top",
      .summary = "watch jobs, nodes and events on a live screen",
      .usage = "rubato top",
      .about =
          "Keys: j k arrows move · enter or d describes · l logs · y why · ctrl-d stops · / filters ·\n"
          ":jobs :nodes :events change the view · ? help · q quits",
      .flags = {cluster_flag()}};
  return table;
}

const Command& events_table() {
  static const Command table{
      .name = "events",
      .summary = "print what happened in the cluster",
      .usage = "rubato events [-f] [--limit N] [--json]",
      .flags = {{.name = "follow", .short_name = 'f', .help = "go on as they come; Ctrl-C ends it"},
                {.name = "limit",
                 .short_name = 'n',
                 .kind = kTaken,
                 .value = "N",
                 .help = "the last N",
                 .default_text = "50"},
                {.name = "json", .help = "one JSON object a line"},
                cluster_flag()}};
  return table;
}

const Command& why_table() {
  static const Command table{
      .name = "why",
      .summary = "explain why a job or node is as it is, or the autoscaler's last decision",
      .usage = "rubato why JOB|NODE [--json]  |  why --last [-n N]  |  why --kubernetes JOB [--namespace NS]",
      .about = "What is wanted, what stands against it, and what would change it: from the recorded decision.",
      .positional = {.name = "JOB|NODE", .help = "id, the start of it, or name", .names = "subjects", .at_most = 1},
      .flags = {{.name = "last", .help = "the autoscaler's last decision: a launch, a removal, or why there is none"},
                {.name = "limit",
                 .short_name = 'n',
                 .kind = kTaken,
                 .value = "N",
                 .help = "with --last: the last N",
                 .default_text = "1"},
                json_flag(),
                cluster_flag(),
                {.name = "kubernetes",
                 .help = "JOB is an elastic job of Kubernetes (docs/kubernetes.md)",
                 .group = "Kubernetes"},
                {.name = "namespace",
                 .kind = kTaken,
                 .value = "NS",
                 .help = "the job's; as the context says",
                 .group = "Kubernetes"},
                {.name = "kubeconfig",
                 .kind = kTaken,
                 .value = "FILE",
                 .help = "instead of KUBECONFIG and ~/.kube/config",
                 .group = "Kubernetes"},
                {.name = "context",
                 .kind = kTaken,
                 .value = "NAME",
                 .help = "instead of the current one",
                 .group = "Kubernetes"}},
      .examples = {{"why does it not start?", "rubato why train"},
                   {"an ElasticJob", "rubato why --kubernetes mnist"},
                   {"why was that node launched?", "rubato why small-3"}}};
  return table;
}

const Command& drain_table() {
  static const Command table{
      .name = "drain",
      .summary = "move the jobs of a node elsewhere, then remove it",
      .usage = "rubato drain NODE [--deadline 120s | --undo]",
      .about =
          "Its workers get SIGTERM, save and end; their jobs go on with fewer workers or on other nodes, and\n"
          "the node is removed when it is empty. With a deadline a replacement is launched at once, and\n"
          "workers that are still there then are killed. A notice of a cloud does the same.",
      .positional = {.name = "NODE",
                     .help = "the node's name, as rubato status has it",
                     .names = "nodes",
                     .at_most = 1},
      .flags = {{.name = "deadline",
                 .kind = kTaken,
                 .value = "TIME",
                 .help = "it is empty by then, whether its workers have saved or not"},
                {.name = "undo", .help = "keep it after all; not where its machine goes away by itself"},
                json_flag(),
                cluster_flag()},
      .examples = {{"its machine is needed for something else", "rubato drain gpu-3 --deadline 5m"}}};
  return table;
}

const Command& node_lost_table() {
  static const Command table{
      .name = "node lost",
      .summary = "say that a silent node is dead: its jobs need not wait for their lease",
      .usage = "rubato node lost NODE",
      .about =
          "Workers of a node that nobody hears may go on until their job's lease is over; until then the\n"
          "job is not started elsewhere. Say this only if its machine is off: else two generations of a job\n"
          "may train at once.",
      .positional = {.name = "NODE",
                     .help = "the node's name, as rubato status has it",
                     .names = "nodes",
                     .at_most = 1},
      .flags = {json_flag(), cluster_flag()},
      .examples = {{"its power supply has failed", "rubato node lost gpu-3"}}};
  return table;
}

const Command& request_table() {
  static const Command table{
      .name = "request",
      .summary = "have the cluster keep room for something, whatever runs",
      .usage = "rubato request [--cpus N] [--gpus N] [--bundle NAME=AMOUNT,...[xN]]... | --clear",
      .about =
          "Nodes are launched at once, within the limits of the cluster file, and kept until the request is\n"
          "cleared. A request replaces the one before; it takes no room away from jobs.",
      .flags = {{.name = "cpus", .kind = kTaken, .value = "N", .help = "room for N workers of one CPU"},
                {.name = "gpus", .kind = kTaken, .value = "N", .help = "room for N workers of one GPU"},
                {.name = "bundle",
                 .kind = FlagKind::kRepeat,
                 .value = "CPU=4,GPU=1x8",
                 .help = "room for N workers of this size, each on one node"},
                {.name = "clear", .help = "nothing is requested any more"},
                json_flag(),
                cluster_flag()},
      .examples = {{"before a deadline", "rubato request --cpus 64 --gpus 8"}, {"after it", "rubato request --clear"}}};
  return table;
}

const Command& audit_table() {
  static const Command table{
      .name = "audit",
      .summary = "list every machine that is owned or leaked, and what it has cost",
      .usage = "rubato audit [CLUSTER.yaml] [--json]",
      .about =
          "Asks the head. Exit code 1 when there are machines of this cluster that it does not know: the head\n"
          "removes them.\n"
          "With the file of a cluster in a cloud (aws, gcp): asks the cloud itself, whether its head lives or\n"
          "not, for everything that carries the cluster's mark, in all zones: machines, disks, groups, keys,\n"
          "roles. Exit code 1 when some of it is left over; says what it costs, and how to remove it.",
      .positional = {.name = "CLUSTER.yaml", .help = "a cluster file, or the name of a cluster", .at_most = 1},
      .flags = {json_flag(), cluster_flag()},
      .examples = {{"of the cluster that is up", "rubato audit"},
                   {"what a cloud still has", "rubato audit cluster.yaml"}}};
  return table;
}

const Command& replay_table() {
  static const Command table{
      .name = "replay",
      .summary = "rebuild the cluster's state at an earlier time from the journal",
      .usage = "rubato replay [--until TIME | --offset N] [--json]",
      .flags = {{.name = "until",
                 .kind = kTaken,
                 .value = "TIME",
                 .help = "10m for ten minutes ago, or 2026-11-15T03:54:46Z",
                 .default_text = "now"},
                {.name = "offset", .kind = kTaken, .value = "N", .help = "after this record of the journal"},
                json_flag(),
                cluster_flag()}};
  return table;
}

const Command& head_table() {
  static const Command table{.name = "head",
                             .summary = "be the head of a cluster (started by 'rubato up')",
                             .usage = "rubato head --dir DIR",
                             .flags = {{.name = "dir", .kind = kTaken, .value = "DIR", .help = "the cluster's folder"},
                                       {.name = "accept-journal-loss", .help = "as of rubato up"},
                                       {.name = "restarted-after",
                                        .kind = kTaken,
                                        .value = "END",
                                        .help = "how the head before ended (from its supervisor)"}},
                             .hidden = true};
  return table;
}

const Command& daemon_table() {
  static const Command table{
      .name = "daemon",
      .summary = "start, find or stop a head or an agent on this machine (used by 'rubato up' over SSH)",
      .usage = "rubato daemon [--grace TIME] start|running|stop FOLDER [COMMAND...]",
      .positional = {.name = "start|running|stop FOLDER [COMMAND...]", .help = "what to do", .remainder = true},
      .flags = {{.name = "grace",
                 .kind = FlagKind::kValue,
                 .value = "TIME",
                 .help = "from SIGTERM to SIGKILL",
                 .default_text = "45s"}},
      .hidden = true};
  return table;
}

const Command& while_heard_table() {
  static const Command table{
      .name = "while-heard",
      .summary = "run a command until nobody reads its output any more (used by 'rubato exec' over SSH)",
      .usage = "rubato while-heard COMMAND [ARGUMENT...]",
      .positional = {.name = "COMMAND...", .help = "the program and its arguments", .remainder = true},
      .flags = {},
      .hidden = true};
  return table;
}

const Command& supervise_table() {
  static const Command table{.name = "supervise",
                             .summary = "keep the head of a cluster alive (started by 'rubato up')",
                             .usage = "rubato supervise --dir DIR",
                             .flags = {{.name = "dir", .kind = kTaken, .value = "DIR", .help = "the cluster's folder"}},
                             .hidden = true};
  return table;
}

const Command& agent_table() {
  static const Command table{
      .name = "agent",
      .summary = "be the agent of a node (started by the head)",
      .usage = "rubato agent --dir DIR",
      .flags = {{.name = "dir", .kind = kTaken, .value = "DIR", .help = "the node's folder"},
                {.name = "deliver", .help = "only bring what a dead agent has left to the head"}},
      .hidden = true};
  return table;
}

}  // namespace rubato::cli
