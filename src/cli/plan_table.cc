// The table of `rubato plan`.
#include "cli/commands.h"
#include "cli/common_flags.h"

namespace rubato::cli {

const Command& plan_table() {
  static const Command table{
      .name = "plan",
      .summary = "show what the autoscaler would do, why, and what it costs",
      .usage = "rubato plan CLUSTER.yaml [--json]  |  plan --state FILE|- [--json]",
      .about =
          "With a cluster file: what 'rubato up' and the autoscaler would do, for the queue of the cluster\n"
          "if it is up. With --state: decides on a state that is given as JSON: node types, nodes, and what\n"
          "waits. Touches nothing. docs/autoscaler.md has the fields; lists of bundles may be run-length\n"
          "encoded as [[bundle, count], ...].",
      .positional = {.name = "CLUSTER.yaml", .help = "the cluster file", .at_most = 1},
      .flags = {{.name = "state",
                 .kind = FlagKind::kValue,
                 .value = "FILE|-",
                 .help = "the state to decide on; - is standard input"},
                json_flag()},
      .examples = {{"before rubato up", "rubato plan cluster.yaml"},
                   {"a state in a file", "rubato plan --state state.json"},
                   {"for a program", "rubato plan --state - --json < state.json"}}};
  return table;
}

}  // namespace rubato::cli
