#include "cli/config_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "client/session.h"
#include "client/user_file.h"
#include "core/text.h"
#include "model/config_schema.h"
#include "model/provider_kind.h"
#include "model/yaml_value.h"
#include "os/files.h"
#include "terminal/render_findings.h"

namespace rubato::cli {
namespace {

using nlohmann::ordered_json;

ClusterFile read_file(const std::string& path) {
  os::RealFiles files;
  return read_cluster_file(read_user_file(files, "the cluster file", path), path);
}

// "c.yaml is fine: the aws cluster 'default', 2 node types, up to 2 workers"
std::string verdict(const ClusterFile& file, const std::string& path) {
  if (const size_t errors = count_of(file, Severity::kError)) {
    return fmt::format("{} has {}\n", path, counted(errors, "error", "errors"));
  }
  if (const size_t text = count_of(file, Severity::kUnfilled)) {
    return fmt::format("{} can be read; {} to fill in before rubato up\n", path,
                       counted(text, "placeholder", "placeholders"));
  }
  const bool hosts = file.provider.head.has_value();
  const std::string nodes = hosts ? "hosts of your own" : counted(file.types.size(), "node type", "node types");
  return fmt::format("{} is fine: the {} cluster '{}', {}, up to {}\n", path, file.provider.type, file.name, nodes,
                     counted(static_cast<size_t>(file.autoscaling.max_workers), "worker", "workers"));
}

ordered_json findings_document(const ClusterFile& file) {
  ordered_json list = ordered_json::array();
  for (const Finding& one : file.findings) {
    list.push_back({{"severity", to_string(one.severity)},
                    {"message", one.message},
                    {"where", one.where},
                    {"line", one.line},
                    {"column", one.column},
                    {"hint", one.hint}});
  }
  return {{"ok", !file.has(Severity::kError)},
          {"ready", !file.has(Severity::kError) && !file.has(Severity::kUnfilled)},
          {"findings", std::move(list)}};
}

// What the file itself cannot tell: whether the program that it names is there. Its path is meant from the file's
// folder; a bare name is looked for in PATH where it runs, which may be another machine.
void look_for_program(ClusterFile& file, const std::string& path) {
  if (!provider_kind(file.provider.type).runs_program || file.provider.command.empty()) return;
  const std::string& word = file.provider.command.front();
  if (word.find('/') == std::string::npos || word.starts_with('~')) return;
  const auto program = (std::filesystem::absolute(path).parent_path() / word).lexically_normal();
  std::error_code ignored;
  if (std::filesystem::exists(program, ignored)) return;
  Finding finding;
  finding.severity = Severity::kWarning;
  finding.message = fmt::format("the provider's program {} is not there", program.string());
  finding.where = file.place("provider.command");
  finding.hint = "its path is meant from the file's folder";
  file.findings.push_back(std::move(finding));
}

}  // namespace

std::optional<ClusterFile> usable_cluster_file(const std::string& path, const Shell& shell) {
  ClusterFile file = read_file(path);
  if (!file.has(Severity::kError)) return file;
  shell.err(findings_text(file, false, false) + verdict(file, path));
  return std::nullopt;
}

int config_check_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string path = require_word(parsed, 0, "the cluster file", "rubato config check FILE");
  ClusterFile file = read_file(path);
  look_for_program(file, path);
  if (parsed.has("json")) {
    shell.out(findings_document(file).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } else {
    shell.out(findings_text(file, true, shell.colour) + verdict(file, path));
  }
  return file.has(Severity::kError) ? 2 : 0;
}

int config_show_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string path = require_word(parsed, 0, "the cluster file", "rubato config show FILE");
  const auto file = usable_cluster_file(path, shell);
  if (!file) return 2;
  const ordered_json values = parsed.has("resolved") ? resolved_values(*file) : given_values(*file);
  shell.out(parsed.has("json") ? values.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n"
                               : yaml_text(values));
  return 0;
}

namespace {

// "autoscaling.idle_timeout, node_types.*.idle_timeout" for "idle".
std::string keys_with(std::string_view word) {
  constexpr size_t kMost = 5;
  std::vector<std::string> found;
  for (const ConfigKey& key : config_keys()) {
    const std::string path(key.our_path());  // old spellings have the same
    if (found.size() == kMost || word.size() < 3 || path.find(word) == std::string::npos) continue;
    if (std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
  }
  return join(found, ", ");
}

}  // namespace

int config_explain_command(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.has("markdown")) {
    shell.out(config_keys_markdown());
    return 0;
  }
  if (parsed.positionals.empty()) {
    shell.out(list_keys());
    return 0;
  }
  const std::string& word = parsed.positionals.front();
  const auto found = config_keys_called(word);
  if (found.empty()) {
    const auto near = nearest_config_key(word);
    const std::string within = keys_with(word);
    throw Error(ErrorCode::kUsage, fmt::format("there is no key '{}' in a cluster file", word), "",
                near              ? fmt::format("did you mean {}?", *near)
                : !within.empty() ? fmt::format("did you mean one of: {}?", within)
                                  : "see 'rubato config explain' for all keys");
  }
  std::string out;
  for (const ConfigKey* key : found) out += (out.empty() ? "" : "\n") + explain_key(*key);
  shell.out(out);
  return 0;
}

int config_migrate_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string path = require_word(parsed, 0, "the cluster file", "rubato config migrate FILE");
  const auto file = usable_cluster_file(path, shell);
  if (!file) return 2;
  shell.out("# Made by 'rubato config migrate'.\n" + yaml_text(given_values(*file)));
  for (const Finding& one : file->findings) {
    if (one.severity == Severity::kUnfilled) shell.err(fmt::format("{}: {}; {}\n", one.where, one.message, one.hint));
  }
  return 0;
}

int config_schema_command(const ParsedCommand&, const Shell& shell) {
  shell.out(config_schema().dump(2) + "\n");
  return 0;
}

}  // namespace rubato::cli
