// The tables of the commands about jobs.
#include "cli/commands.h"
#include "cli/common_flags.h"

namespace rubato::cli {
namespace {

constexpr auto kValue = FlagKind::kValue;
constexpr std::string_view kSize = "Size";
constexpr std::string_view kSubmitProgram = "The program";
constexpr std::string_view kEnds = "Faults and ends";
constexpr std::string_view kAfter = "After submitting";
constexpr std::string_view kAdaptDl = "AdaptDL's names";

std::vector<Flag> size_flags() {
  return {
      {.name = "workers",
       .short_name = 'w',
       .kind = kValue,
       .value = "N|MIN:MAX[:STEP]",
       .help = "how many worker processes; a range is elastic, in steps of STEP",
       .group = kSize,
       .default_text = "1"},
      {.name = "cpus",
       .kind = kValue,
       .value = "N",
       .help = "CPUs of each worker; fractions work",
       .group = kSize,
       .default_text = "1"},
      {.name = "gpus",
       .kind = kValue,
       .value = "N",
       .help = "GPUs of each worker",
       .group = kSize,
       .default_text = "0"},
      {.name = "memory", .kind = kValue, .value = "SIZE", .help = "memory of each worker: 4GiB, 512M", .group = kSize},
      {.name = "resource",
       .kind = FlagKind::kRepeat,
       .value = "NAME=N",
       .help = "a custom resource of each worker",
       .group = kSize},
      {.name = "priority",
       .kind = kValue,
       .value = "N",
       .help = "higher goes first; -1000 to 1000",
       .group = kSize,
       .default_text = "0"},
      {.name = "weight",
       .kind = kValue,
       .value = "W",
       .help = "of an adaptive job, among others of its priority; 0.01 to 100",
       .group = kSize,
       .default_text = "1"},
      {.name = "deadline",
       .kind = kValue,
       .value = "TIME",
       .help = "an adaptive job is to end within this time after its submission: 6h",
       .group = kSize},
  };
}

std::vector<Flag> submit_program_flags() {
  return {
      {.name = "name",
       .kind = kValue,
       .value = "NAME",
       .help = "name of the job",
       .group = kSubmitProgram,
       .default_text = "the script's"},
      {.name = "working-dir",
       .short_name = 'd',
       .kind = kValue,
       .value = "DIR",
       .help = "the folder that is sent and that workers start in",
       .group = kSubmitProgram,
       .default_text = "the script's, when it is a project or small"},
      {.name = "env",
       .short_name = 'e',
       .kind = FlagKind::kRepeat,
       .value = "NAME[=VALUE]",
       .help = "a variable for the workers; without a value it is copied from here",
       .group = kSubmitProgram},
      {.name = "env-file",
       .kind = FlagKind::kRepeat,
       .value = "FILE",
       .help = "variables from a file, one NAME=VALUE a line",
       .group = kSubmitProgram},
      {.name = "adaptdl",
       .kind = kValue,
       .value = "auto|rubato",
       .help = "whose names `import adaptdl` finds: rubato's also where that package is installed",
       .group = kSubmitProgram,
       .default_text = "auto"},
      {.name = "module",
       .kind = kValue,
       .value = "NAME",
       .help = "run a Python module, as python -m does; what follows are its arguments",
       .group = kSubmitProgram},
      {.name = "no-python", .help = "the program is started as it is, without Python", .group = kSubmitProgram},
      {.name = "python",
       .kind = kValue,
       .value = "PATH",
       .help = "the interpreter",
       .group = kSubmitProgram,
       .default_text = "the node's python3 or python"},
      {.name = "prewarm",
       .kind = kValue,
       .value = "MODULES",
       .help = "import these once (torch,numpy) and fork workers from there: fast restarts",
       .group = kSubmitProgram},
  };
}

std::vector<Flag> end_flags() {
  return {
      {.name = "max-restarts",
       .kind = kValue,
       .value = "N",
       .help = "how often a failed group is started again",
       .group = kEnds,
       .default_text = "3"},
      {.name = "timeout",
       .kind = kValue,
       .value = "TIME",
       .help = "stop the job this long after its first start",
       .group = kEnds,
       .default_text = "none"},
      {.name = "grace",
       .kind = kValue,
       .value = "TIME",
       .help = "between SIGTERM and SIGKILL when it is stopped",
       .group = kEnds,
       .default_text = "30s"},
      {.name = "checkpoint-timeout",
       .kind = kValue,
       .value = "TIME",
       .help = "between SIGTERM and SIGKILL when it is rescaled: time for a checkpoint",
       .group = kEnds,
       .default_text = "120s"},
      {.name = "cluster-rescale-timeout",
       .kind = kValue,
       .value = "TIME",
       .help = "how long a rescale waits for nodes that do not answer",
       .group = kEnds,
       .default_text = "60s"},
      {.name = "lease",
       .kind = kValue,
       .value = "TIME",
       .help = "how long it may train on nodes that do not reach the head",
       .group = kEnds,
       .default_text = "the cluster's: 2m"},
  };
}

std::vector<Flag> after_flags() {
  return {
      {.name = "follow", .help = "print the log until the job ends, then exit with its result", .group = kAfter},
      {.name = "wait", .help = "wait until the job ends, then exit with its result", .group = kAfter},
      json_flag(kAfter),
      cluster_flag(kAfter),
  };
}

std::vector<Flag> adaptdl_flags() {
  return {
      {.name = "file", .short_name = 'f', .kind = kValue, .value = "SCRIPT", .help = "the script", .group = kAdaptDl},
      {.name = "max-cluster-size",
       .short_name = 'm',
       .kind = kValue,
       .value = "N",
       .help = "the same as --workers 1:N",
       .group = kAdaptDl},
      {.name = "uri",
       .short_name = 'u',
       .kind = kValue,
       .value = "URI",
       .help = "not needed: --cluster names the cluster",
       .group = kAdaptDl},
  };
}

std::vector<Flag> manifest_flags() {
  constexpr std::string_view kKubernetes = "On Kubernetes";
  return {
      {.name = "manifest",
       .kind = kValue,
       .value = "FILE",
       .help = "apply this manifest (an ElasticJob and what it needs), as kubectl apply -f does; - is the input",
       .group = kKubernetes},
      {.name = "namespace",
       .kind = kValue,
       .value = "NS",
       .help = "of what the manifest does not say",
       .group = kKubernetes,
       .default_text = "the context's"},
      {.name = "kubeconfig",
       .kind = kValue,
       .value = "FILE",
       .help = "instead of KUBECONFIG and ~/.kube/config",
       .group = kKubernetes},
      {.name = "context", .kind = kValue, .value = "NAME", .help = "instead of the current one", .group = kKubernetes},
  };
}

}  // namespace

Flag cluster_flag(std::string_view group) {
  return {.name = "cluster",
          .kind = kValue,
          .value = "NAME",
          .help = "which cluster",
          .group = group,
          .default_text = "the only one, or local",
          .env = "RUBATO_CLUSTER",
          .names = "clusters"};
}

Flag json_flag(std::string_view group) { return {.name = "json", .help = "print JSON", .group = group}; }

const Command& submit_table() {
  static const Command table = [] {
    Command made{
        .name = "submit",
        .summary = "send a program to the cluster",
        .usage =
            "rubato submit [flags] SCRIPT [args...]  |  DIR SCRIPT [args...]  |  FILE.tar.gz SCRIPT [args...]\n"
            "  rubato submit CLUSTER.yaml [--start] [--stop] [--screen | --tmux] [-p PORT] SCRIPT [args...]\n"
            "  rubato submit --manifest JOB.yaml",
        .about =
            "Prints the job's id. The working folder is sent once, less what .gitignore and .rubatoignore name.\n"
            "Workers get torchrun's environment, and $RUBATO_OUTPUT for what 'rubato fetch' brings back.\n"
            "With a cluster file in front, as Ray has it: the script is copied to the head's ~/ and run\n"
            "there with python. SCRIPT, DIR/ and FILE.tar.gz may be s3://BUCKET/KEY or gs://BUCKET/KEY.",
        .positional = {.name = "SCRIPT [args...]", .help = "what to run, and its arguments", .remainder = true},
        .examples = {
            {"two workers with a GPU each, and their output",
             "rubato submit --workers 2 --gpus 1 --follow train.py --epochs 3"},
            {"elastic: starts at 2, grows to 8", "rubato submit --workers 2:8 --name big project/ train.py"},
            {"a module, with a variable copied from here", "rubato submit --env WANDB_API_KEY --module mypkg.train"}}};
    for (const auto& group :
         {size_flags(), submit_program_flags(), end_flags(), after_flags(), adaptdl_flags(), manifest_flags()}) {
      made.flags.insert(made.flags.end(), group.begin(), group.end());
    }
    return made;
  }();
  return table;
}

const Command& jobs_table_command() {
  static const Command table{
      .name = "jobs",
      .summary = "list the jobs",
      .usage = "rubato jobs [--all] [--json]",
      .flags = {{.name = "all", .short_name = 'a', .help = "also those that have ended"}, json_flag(), cluster_flag()}};
  return table;
}

const Command& job_show_table() {
  static const Command table{
      .name = "job show",
      .summary = "show everything about a job",
      .usage = "rubato job show ID [--json]",
      .positional = {.name = "ID", .help = "id, the start of it, or name of the job", .names = "jobs", .at_most = 1},
      .flags = {json_flag(), cluster_flag()}};
  return table;
}

const Command& logs_table() {
  static const Command table{
      .name = "logs",
      .summary = "print what a job's workers wrote, or how a node was set up",
      .usage = "rubato logs ID [-f] [--rank R] [--since TIME] [--tail N]  |  --node NODE",
      .about =
          "Each line is prefixed with [rank@node]. The head keeps the log: it survives the node, and 'down'.\n"
          "With -f the exit code is the job's result: 0 when it succeeded, 1 when it failed or was stopped.",
      .positional = {.name = "ID", .help = "id, the start of it, or name of the job", .names = "jobs", .at_most = 1},
      .flags = {{.name = "follow",
                 .short_name = 'f',
                 .help = "go on until the job has ended, then tell how; Ctrl-C detaches"},
                {.name = "rank", .short_name = 'r', .kind = kValue, .value = "R", .help = "only this rank"},
                {.name = "since",
                 .kind = kValue,
                 .value = "TIME",
                 .help = "only lines after it: 10m for ten minutes ago, or 2026-11-15T03:54:46Z"},
                {.name = "tail", .short_name = 'n', .kind = kValue, .value = "N", .help = "only the last N lines"},
                {.name = "no-prefix", .help = "without [rank@node]"},
                {.name = "node",
                 .kind = kValue,
                 .value = "NODE",
                 .help = "instead: the log of this node's set-up",
                 .names = "nodes"},
                {.name = "json", .help = "one JSON object a line"},
                cluster_flag()},
      .examples = {{"what rank 0 says now", "rubato logs train -f --rank 0 --tail 20"}}};
  return table;
}

const Command& stop_table() {
  static const Command table{.name = "stop",
                             .summary = "end jobs: SIGTERM, their grace, SIGKILL",
                             .usage = "rubato stop ID... [--wait]",
                             .positional = {.name = "ID...",
                                            .help = "id, the start of it, or name of each job",
                                            .names = "jobs",
                                            .at_most = 1000},
                             .flags = {{.name = "wait", .help = "until they have ended"}, json_flag(), cluster_flag()}};
  return table;
}

const Command& rerun_table() {
  static const Command table{
      .name = "rerun",
      .summary = "submit a job once more, as it was",
      .usage = "rubato rerun ID",
      .positional = {.name = "ID", .help = "id, the start of it, or name of the job", .names = "jobs", .at_most = 1},
      .flags = {json_flag(), cluster_flag()}};
  return table;
}

const Command& fetch_table() {
  static const Command table{
      .name = "fetch",
      .summary = "copy a job's output folder to this machine",
      .usage = "rubato fetch ID DIR [--force]",
      .about =
          "What the workers wrote into $RUBATO_OUTPUT, on whatever machine. Of a job that has ended it waits\n"
          "for what is still on its way from there. Where several machines wrote the same file, that of the\n"
          "lowest rank counts; the others are in DIR/rubato-others. What cannot be had is named.",
      .positional = {.name = "ID DIR", .help = "the job, and the folder to make", .names = "jobs", .at_most = 2},
      .flags = {{.name = "force", .help = "also into a folder that exists; files of the same name are replaced"},
                json_flag(),
                cluster_flag()},
      .examples = {{"after the end", "rubato fetch train ./results"}}};
  return table;
}

}  // namespace rubato::cli
