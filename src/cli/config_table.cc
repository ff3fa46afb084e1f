// The tables of `rubato config ...`.
#include "cli/commands.h"
#include "cli/common_flags.h"

namespace rubato::cli {

const Command& config_check_table() {
  static const Command table{
      .name = "config check",
      .summary = "check a cluster file, Ray's or ours",
      .usage = "rubato config check FILE [--json]",
      .about =
          "Prints all errors at once, each with its place and its fix, and one line for each key of old Ray.\n"
          "Exit code 2 with errors. Placeholders of a template (YOUR_USERNAME) are named, but are not errors.",
      .positional = {.name = "FILE", .help = "the cluster file", .at_most = 1},
      .flags = {json_flag()},
      .examples = {{"a file of Ray's", "rubato config check cluster.yaml"}}};
  return table;
}

const Command& config_show_table() {
  static const Command table{
      .name = "config show",
      .summary = "print what a cluster file says, in our form",
      .usage = "rubato config show FILE [--resolved] [--json]",
      .positional = {.name = "FILE", .help = "the cluster file", .at_most = 1},
      .flags = {{.name = "resolved", .help = "also what it does not say: the defaults"}, json_flag()},
      .examples = {{"with the defaults", "rubato config show --resolved cluster.yaml"}}};
  return table;
}

const Command& config_explain_table() {
  static const Command table{
      .name = "config explain",
      .summary = "explain a key of the cluster file",
      .usage = "rubato config explain [KEY]",
      .about = "Without a key: all keys, one line each.",
      .positional = {.name = "KEY", .help = "max_workers, files.mounts, file_mounts, ...", .at_most = 1},
      .flags = {{.name = "markdown", .help = "all keys as Markdown: docs/config-keys.md"}},
      .examples = {{"what is it?", "rubato config explain idle_timeout_minutes"}}};
  return table;
}

const Command& config_migrate_table() {
  static const Command table{
      .name = "config migrate",
      .summary = "turn a cluster file of Ray's into our form",
      .usage = "rubato config migrate FILE",
      .about = "Prints YAML that means the same. Ray's start commands and comments are left out.",
      .positional = {.name = "FILE", .help = "the cluster file", .at_most = 1},
      .examples = {{"into a file", "rubato config migrate ray.yaml > cluster.yaml"}}};
  return table;
}

const Command& config_schema_table() {
  static const Command table{.name = "config schema",
                             .summary = "print the JSON Schema of cluster files, for editors",
                             .usage = "rubato config schema",
                             .examples = {{"for an editor", "rubato config schema > cluster.schema.json"}}};
  return table;
}

}  // namespace rubato::cli
