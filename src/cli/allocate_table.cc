// The table of `rubato allocate`.
#include "cli/allocate_command.h"
#include "cli/common_flags.h"

namespace rubato::cli {

const Command& allocate_table() {
  static const Command table{
      .name = "allocate",
      .summary = "decide how many workers each adaptive job gets, where, and why",
      .usage = "rubato allocate --state FILE|- [--policy adaptive|fair] [--json]",
      .about =
          "Decides on a state that is given as JSON: nodes, and jobs with what is known of their speed, their\n"
          "gradients and their progress. It touches nothing. docs/allocate.md\n"
          "has the fields and how it is decided.",
      .flags = {{.name = "state",
                 .kind = FlagKind::kValue,
                 .value = "FILE|-",
                 .help = "the state to decide on; - is standard input"},
                {.name = "policy",
                 .kind = FlagKind::kValue,
                 .value = "NAME",
                 .help = "adaptive: least work left first; fair: Pollux' objective",
                 .default_text = "adaptive",
                 .choices = "adaptive fair"},
                {.name = "max-slowdown",
                 .kind = FlagKind::kValue,
                 .value = "X",
                 .help = "a job that is slower than its fair share by more than X comes first"},
                {.name = "budget",
                 .kind = FlagKind::kValue,
                 .value = "DOLLARS",
                 .help = "desired_nodes: spend at most this much an hour"},
                {.name = "utility-band",
                 .kind = FlagKind::kValue,
                 .value = "LOW:HIGH",
                 .help = "desired_nodes: AdaptDL's rule, instead of speed for the money"},
                json_flag()},
      .examples = {{"a state in a file", "rubato allocate --state state.json"},
                   {"for a program", "rubato allocate --state - --json < state.json"}}};
  return table;
}

}  // namespace rubato::cli
