#include "model/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "model/cluster_file_readers.h"
#include "model/cluster_name.h"
#include "model/limits.h"
#include "model/placeholders.h"

namespace rubato {
namespace {

// Ten thousand hosts with room to spare; what is walked stays small.
constexpr size_t kFileNodesMax = 50'000;
// A head takes it as JSON, where a line end or a quote has two bytes, with room for the rest of the request.
constexpr size_t kFileBytesMax = (kClusterFileBodyMax - (size_t{64} << 10)) / 2;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // some editors begin a file with it

// Notes what is wrong with the text itself. nullopt when there is no tree.
std::optional<Yaml> parse_leniently(std::string_view text, const std::string& file, Findings& findings) {
  if (text.size() > kFileBytesMax) {
    findings.error(Error(ErrorCode::kUsage,
                         fmt::format("the cluster file has {} KiB; it may have {} at most", (text.size() + 1023) / 1024,
                                     kFileBytesMax / 1024),
                         file + ":1:1", "keep data and long scripts in files of their own: see file_mounts"));
    return std::nullopt;
  }
  YamlLimits limits;
  limits.nodes_max = kFileNodesMax;
  std::vector<Error> duplicates;
  std::optional<Yaml> document;
  try {
    document = Yaml::parse_last_wins(text, file, duplicates, limits);
  } catch (const Error& error) {
    Findings own;
    own.error(error);
    const size_t line = own.sorted().front().line;
    if (!find_broken_placeholders(text, file, line, findings)) findings.error(error);
    return std::nullopt;
  }
  for (const Error& error : duplicates) {
    Findings own;
    own.error(error);
    Finding finding = own.sorted().front();
    finding.severity = Severity::kWarning;
    finding.hint = "the last one counts; remove the other";
    findings.add(std::move(finding));
  }
  if (!document->is_mapping()) {
    findings.error(*document, "the cluster file is empty, or not a mapping", "it begins with cluster_name: NAME");
    return std::nullopt;
  }
  return document;
}

// Other files that people give us by mistake.
bool is_something_else(const Yaml& document, Findings& findings) {
  const auto kind = document.find("kind");
  if (!kind || !document.find("apiVersion")) return false;
  findings.error(*kind,
                 fmt::format("this is a Kubernetes manifest ({}), not a cluster file",
                             kind->is_scalar() ? kind->as_string() : "?"),
                 "give a file with provider and node types");
  return true;
}

bool is_empty(const Yaml& value) {
  if (value.is_mapping()) return value.entries().empty();
  return value.is_null() || (value.is_sequence() && value.items().empty());
}

void read_name(const ConfigSection& top, ClusterFile& out) {
  const auto name = top.text("cluster_name");
  if (!name) return;
  out.name = *name;
  const auto* given = top.find("cluster_name");
  const auto fine = [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  const auto edge = [](char c) { return c != '.' && c != '-' && c != '_'; };
  if (name->empty() || name->size() > 63 || !std::all_of(name->begin(), name->end(), fine) || !edge(name->front()) ||
      !edge(name->back())) {
    top.findings().error(given->value, fmt::format("'{}' is not a name for a cluster", *name),
                         "use up to 63 letters, digits and ._-; the first and last one a letter or digit");
  } else if (!is_cluster_name(*name)) {
    out.name = cluster_name_from(*name);
    top.findings().note(given->value, fmt::format("the cluster '{}' is called '{}' here", *name, out.name),
                        "names become folders, host names and names of containers: " + std::string(kClusterNameRule));
  }
}

// Nodes of this machine are processes beside the head: there is nothing to reach, to copy to, or to set up.
void check_this_machine(const ConfigSection& top, const ClusterFile& file, Findings& findings) {
  for (const std::string& path : top.paths()) {
    const std::string_view section = std::string_view(path).substr(0, path.find('.'));
    const bool elsewhere = section == "auth" || section == "docker" || section == "files" || section == "setup" ||
                           section == "start" || section == "head_type" || section == "login_shells";
    const auto* given = top.find(path);
    if (!elsewhere || given == nullptr || is_empty(given->value)) continue;
    findings.error(given->key, fmt::format("\"{}\" has no meaning for nodes on this machine", given->row->path),
                   "remove it, or name hosts with head_ip and worker_ips in provider");
  }
  if (file.types.empty() && !findings.has_errors()) {
    findings.error(top.node(), "the file has no node types",
                   "add node_types: {NAME: {resources: {CPU: 4}, min_workers: 1}}");
  }
}

}  // namespace

bool ClusterFile::has(Severity severity) const {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& one) { return one.severity == severity; });
}

std::string ClusterFile::place(std::string_view path) const {
  while (!path.empty()) {
    const auto found = places.find(std::string(path));
    if (found != places.end()) return found->second;
    const size_t dot = path.rfind('.');
    path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  }
  return "";
}

ClusterFile read_cluster_file(std::string_view text, const std::string& file) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  ClusterFile out;
  ConfigReading reading;
  const auto document = parse_leniently(text, file, reading.findings);
  if (document && !is_something_else(*document, reading.findings)) {
    find_placeholders(*document, text, reading.findings);
    // Which keys of provider are known depends on its type.
    if (const auto provider = document->find("provider"); provider && provider->is_mapping()) {
      const auto type = provider->find("type");
      if (type && type->is_scalar()) reading.provider_type = type->as_string();
    }
    ConfigSection top(*document, "", "", reading);
    read_name(top, out);
    read_provider_config(top, out);
    if (top.find("cluster_name") == nullptr) {
      if (out.provider.this_machine()) out.name = "local";
      reading.findings.warning(*document, fmt::format("the file has no cluster_name; '{}' is taken", out.name),
                               "add cluster_name: NAME; all files without one mean the same cluster");
    }
    read_auth(top, out);
    read_docker(top, out);
    read_nodes(top, reading, out);
    read_files(top, out);
    read_commands(top, out);
    read_jobs(top, out);
    if (auto metadata = top.opaque("metadata")) out.metadata = std::move(*metadata);
    if (out.provider.this_machine() && !reading.findings.has_errors()) check_this_machine(top, out, reading.findings);
  }
  out.findings = reading.findings.sorted();
  out.places = std::move(reading.places);
  return out;
}

NodeCommands commands_for(const ClusterFile& file, const std::string& type, bool head) {
  const auto found = file.types.find(type);
  CHECK(found != file.types.end());
  const CommandsConfig& commands = file.commands;
  NodeCommands out;
  out.host = found->second.setup_host.value_or(commands.setup_host);
  out.start = head ? commands.start_head : commands.start_worker;
  out.login_shells = commands.login_shells;
  if (!head && found->second.setup_worker) {
    out.setup = *found->second.setup_worker;
    return out;
  }
  out.setup = commands.setup_all;
  const auto& more = head ? commands.setup_head : commands.setup_worker;
  out.setup.insert(out.setup.end(), more.begin(), more.end());
  return out;
}

std::optional<NodeContainer> container_for(const ClusterFile& file, const std::string& type, bool head) {
  const DockerConfig& docker = file.docker;
  if (!docker.enabled()) return std::nullopt;
  const auto found = file.types.find(type);
  CHECK(found != file.types.end());
  const std::string& special = head ? docker.head_image : docker.worker_image;
  NodeContainer out{special.empty() ? docker.image : special, docker.container_name, docker.pull_before_run,
                    docker.run_options};
  const auto& more =
      head ? docker.head_run_options : found->second.worker_run_options.value_or(docker.worker_run_options);
  out.run_options.insert(out.run_options.end(), more.begin(), more.end());
  if (found->second.pull_before_run) out.pull_before_run = *found->second.pull_before_run;
  if (!head && found->second.worker_image) out.image = *found->second.worker_image;
  return out;
}

}  // namespace rubato
