// The table of `rubato plan`.
#include "cli/commands.h"
#include "cli/common_flags.h"

namespace rubato::cli {

const Command& plan_table() {
  static const Command table{
      .name = "plan",
      .summary = "say what the autoscaler would do, why, and what it costs",
      .usage = "rubato plan --state FILE|- [--json]",
      .about =
          "Decides on a state that is given as JSON: node types, nodes, and what waits. Touches nothing.\n"
          "docs/autoscaler.md has the fields; lists of bundles may be run-length encoded as [[bundle, count], ...].",
      .flags = {{.name = "state",
                 .kind = FlagKind::kValue,
                 .value = "FILE|-",
                 .help = "the state to decide on; - is standard input"},
                json_flag()},
      .examples = {{"a state in a file", "rubato plan --state state.json"},
                   {"for a program", "rubato plan --state - --json < state.json"}}};
  return table;
}

}  // namespace rubato::cli
