#include "cli/commands.h"
#include "cli/common_flags.h"

namespace rubato::cli {

const Command& simulate_table() {  // tidy: long: a table of flags
  static const Command table{
      .name = "simulate",
      .summary = "play a cluster, its jobs and faults in virtual time",
      .usage =
          "rubato simulate SCENARIO.yaml [--seed N | --seeds A..B] [--html FILE]\n"
          "       rubato simulate --replay JOURNAL [--change KEY=VALUE ...]\n"
          "       rubato simulate --pollux DIR --workload FILE [--policy NAME] [--json]",
      .about =
          "The real head, agents and policies run on simulated machines; the same seed gives the same run.\n"
          "Invariants are checked after each event: exit code 1 when one is broken, with the command that\n"
          "replays it.\n"
          "--replay plays your own history again, with a changed cluster file: what if?",
      .positional = {.name = "SCENARIO", .help = "a YAML file: see docs/simulate.md, or --example", .at_most = 1},
      .flags =
          {{.name = "example", .help = "print a scenario to begin with"},
           {.name = "seed", .kind = FlagKind::kValue, .value = "N", .help = "the seed of one run", .default_text = "1"},
           {.name = "seeds", .kind = FlagKind::kValue, .value = "A..B", .help = "many runs, one for each seed"},
           {.name = "jobs-trace",
            .kind = FlagKind::kValue,
            .value = "FILE",
            .help = "jobs of a CSV file, besides those of the scenario"},
           {.name = "agents",
            .kind = FlagKind::kValue,
            .value = "real|light",
            .help = "instead of what the scenario says; light is for thousands of nodes",
            .choices = "real light"},
           {.name = "html", .kind = FlagKind::kValue, .value = "FILE", .help = "write a page with plots"},
           {.name = "svg", .kind = FlagKind::kValue, .value = "FOLDER", .help = "write the plots as SVG files"},
           {.name = "samples", .help = "with --json: also what was sampled over time"},
           json_flag(),
           {.name = "replay",
            .kind = FlagKind::kValue,
            .value = "JOURNAL",
            .help = "the journal of a cluster (its folder, or journal.db), instead of a scenario",
            .group = "Your own history"},
           {.name = "change",
            .kind = FlagKind::kRepeat,
            .value = "KEY=VALUE",
            .help = "change the cluster file: max_workers=8, available_node_types.gpu.max_workers=4",
            .group = "Your own history"},
           {.name = "pollux",
            .kind = FlagKind::kValue,
            .value = "DIR",
            .help = "the traces of Pollux' artifact, instead of a scenario",
            .group = "Pollux' traces"},
           {.name = "workload",
            .kind = FlagKind::kValue,
            .value = "FILE",
            .help = "with --pollux: the jobs, workloads/workload-1.csv",
            .group = "Pollux' traces"},
           {.name = "policy",
            .kind = FlagKind::kValue,
            .value = "NAME",
            .help = "adaptive, fifo, tiresias, optimus or pollux (its objective, solved exactly)",
            .group = "Pollux' traces",
            .default_text = "adaptive",
            .choices = "adaptive fifo tiresias optimus pollux"},
           {.name = "conventions",
            .kind = FlagKind::kValue,
            .value = "pollux|rubato",
            .help = "a decision each 60 s and restarts of 30 s; or also on events, and rescales of 1 s",
            .group = "Pollux' traces",
            .default_text = "pollux",
            .choices = "pollux rubato"},
           {.name = "undeclared",
            .help = "adaptive: jobs do not say how many epochs they run",
            .group = "Pollux' traces"},
           {.name = "nodes",
            .kind = FlagKind::kValue,
            .value = "N",
            .help = "nodes of the cluster",
            .group = "Pollux' traces",
            .default_text = "16"},
           {.name = "gpus",
            .kind = FlagKind::kValue,
            .value = "N",
            .help = "GPUs of a node, at most 4",
            .group = "Pollux' traces",
            .default_text = "4"}},
      .examples = {
          {"begin", "rubato simulate --example > day.yaml"},
          {"one run, with plots", "rubato simulate day.yaml --html report.html"},
          {"many seeds", "rubato simulate day.yaml --seeds 1..100"},
          {"what if?", "rubato simulate --replay ~/.local/state/rubato/clusters/local --change max_workers=8"}}};
  return table;
}

}  // namespace rubato::cli
