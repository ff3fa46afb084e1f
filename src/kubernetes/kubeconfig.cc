#include "kubernetes/kubeconfig.h"

#include <fmt/format.h>

#include "core/text.h"
#include "core/yaml.h"
#include "rest/base64.h"

namespace rubato::kubernetes {
namespace {

constexpr std::string_view kPemBegin = "-----BEGIN";

std::string text_of(const Yaml& node, std::string_view key) {
  const auto found = node.is_mapping() ? node.find(key) : std::nullopt;
  return found && found->is_scalar() ? found->as_string() : "";
}

std::string path_of(const std::string& path, const std::string& file) {
  if (path.empty() || path.starts_with('/')) return path;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? path : file.substr(0, slash + 1) + path;
}

// Base64 that was wrapped to lines, as by `base64` without -w0.
std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
  return text;
}

// `NAME-data` in base64 comes before `NAME`, a path.
std::string data_or_path(const Yaml& node, std::string_view key, const std::string& file) {
  const std::string data_key = std::string(key) + "-data";
  if (const std::string data = without_spaces(text_of(node, data_key)); !data.empty()) {
    const std::optional<std::string> text = rest::unbase64(data);
    // Tools write what a certificate says in front of it.
    const size_t begin = text ? text->find(kPemBegin) : std::string::npos;
    if (begin == std::string::npos)
      node.find(data_key)->fail(fmt::format("{} is not PEM in base64", data_key),
                                "write the file again, or use " + std::string(key));
    return text->substr(begin);
  }
  return path_of(text_of(node, key), file);
}

ClusterEntry read_cluster(const Yaml& node, const std::string& file) {
  ClusterEntry out;
  out.where = node.where();
  out.server = text_of(node, "server");
  out.ca = data_or_path(node, "certificate-authority", file);
  out.tls_server_name = text_of(node, "tls-server-name");
  out.proxy_url = text_of(node, "proxy-url");
  if (const auto insecure = node.find("insecure-skip-tls-verify"); insecure && !insecure->is_null())
    out.insecure = insecure->as_bool();
  return out;
}

ExecEntry read_exec(const Yaml& node, const std::string& file) {
  ExecEntry out;
  out.command = text_of(node, "command");
  if (out.command.empty()) node.fail("the exec plugin has no command", "write command: PROGRAM");
  // As kubectl: a name is searched in PATH, a path is relative to the file.
  if (out.command.find('/') != std::string::npos) out.command = path_of(out.command, file);
  if (const auto args = node.find("args")) out.args = args->as_strings();
  if (const auto env = node.find("env")) {
    for (const Yaml& one : env->items()) out.env.emplace_back(text_of(one, "name"), text_of(one, "value"));
  }
  out.api_version = text_of(node, "apiVersion");
  out.install_hint = text_of(node, "installHint");
  const auto wants = node.find("provideClusterInfo");
  out.wants_cluster = wants && !wants->is_null() && wants->as_bool();
  out.needs_person = text_of(node, "interactiveMode") == "Always";
  return out;
}

std::vector<std::string> texts_of(const Yaml& node, std::string_view key) {
  const auto found = node.find(key);
  return found && !found->is_null() ? found->as_strings() : std::vector<std::string>();
}

Impersonation read_impersonation(const Yaml& node) {
  Impersonation out;
  out.user = text_of(node, "as");
  out.uid = text_of(node, "as-uid");
  out.groups = texts_of(node, "as-groups");
  if (const auto extra = node.find("as-user-extra"); extra && extra->is_mapping()) {
    for (const Yaml::Entry& one : extra->entries()) {
      const std::string key = one.key.as_string();
      out.extra[key] = texts_of(*extra, key);
    }
  }
  const bool only_more = !out.uid.empty() || !out.groups.empty() || !out.extra.empty();
  if (out.user.empty() && only_more)
    node.fail("as-uid, as-groups and as-user-extra say more about `as`, which is not there", "write as: USER");
  return out;
}

UserEntry read_user(const Yaml& node, const std::string& file) {
  UserEntry out;
  out.where = node.where();
  if (!node.is_mapping()) return out;
  out.certificate = data_or_path(node, "client-certificate", file);
  out.key = data_or_path(node, "client-key", file);
  out.token = text_of(node, "token");
  out.token_file = path_of(text_of(node, "tokenFile"), file);
  out.username = text_of(node, "username");
  out.password = text_of(node, "password");
  if (const auto exec = node.find("exec"); exec && exec->is_mapping()) out.exec = read_exec(*exec, file);
  out.as = read_impersonation(node);
  if (const auto provider = node.find("auth-provider"); provider && provider->is_mapping()) out.auth_provider = true;
  return out;
}

ContextEntry read_context(const Yaml& node) {
  ContextEntry out;
  out.where = node.where();
  out.cluster = text_of(node, "cluster");
  out.user = text_of(node, "user");
  out.namespace_name = text_of(node, "namespace");
  return out;
}

// The entries of `clusters:` and its kin: [{name: N, cluster: {...}}].
template <class Entry, class Read>
void read_entries(const Yaml& root, std::string_view list, std::string_view kind, std::map<std::string, Entry>& out,
                  Read read) {
  const auto entries = root.find(list);
  if (!entries || entries->is_null()) return;
  for (const Yaml& entry : entries->items()) {
    const std::string name = text_of(entry, "name");
    if (name.empty()) entry.fail(fmt::format("an entry of {} has no name", list), "write name: NAME");
    const auto body = entry.find(kind);
    if (!body || body->is_null()) continue;
    if (!body->is_mapping()) body->fail(fmt::format("{} is not a mapping", kind), "see kubectl config view");
    out.emplace(name, read(*body));
  }
}

template <class Entry>
const Entry& require(const std::map<std::string, Entry>& entries, const std::string& name, std::string_view kind,
                     const std::string& where) {
  const auto found = entries.find(name);
  if (found != entries.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, entry] : entries) names.push_back(known);
  throw Error(ErrorCode::kUsage, fmt::format("the kubeconfig has no {} '{}'", kind, name), where,
              names.empty() ? fmt::format("it has no {} at all: kubectl config view", kind)
                            : fmt::format("it has: {}", join(names, ", ")));
}

void refuse_unsupported(const ChosenContext& chosen) {
  const ClusterEntry& cluster = chosen.cluster;
  if (cluster.server.empty())
    throw Error(ErrorCode::kUsage, fmt::format("cluster '{}' has no server", chosen.context.cluster), cluster.where,
                "write server: https://HOST:6443");
  if (cluster.insecure)
    throw Error(ErrorCode::kUsage,
                fmt::format("cluster '{}' says insecure-skip-tls-verify: whoever stands in between could read your "
                            "credentials",
                            chosen.context.cluster),
                cluster.where, "give certificate-authority instead; rubato always verifies the server");
  if (chosen.user.exec && chosen.user.exec->needs_person)
    throw Error(ErrorCode::kUsage,
                fmt::format("user '{}' has an exec plugin that wants a terminal (interactiveMode: Always)",
                            chosen.context.user),
                chosen.user.where, "write interactiveMode: IfAvailable, and log in with the plugin by hand first");
  if (chosen.user.auth_provider)
    throw Error(ErrorCode::kUsage,
                fmt::format("user '{}' says auth-provider, which kubectl dropped with 1.26", chosen.context.user),
                chosen.user.where, "use its exec plugin: gke-gcloud-auth-plugin, kubelogin, aws eks get-token");
}

}  // namespace

void add_kubeconfig(Kubeconfig& config, std::string_view text, const std::string& file) {
  const Yaml root = Yaml::parse(text, file);
  config.files.push_back(file);
  if (root.is_null()) return;
  if (!root.is_mapping()) root.fail("this is no kubeconfig", "see kubectl config view");
  if (config.current_context.empty()) config.current_context = text_of(root, "current-context");
  read_entries(root, "clusters", "cluster", config.clusters,
               [&](const Yaml& body) { return read_cluster(body, file); });
  read_entries(root, "users", "user", config.users, [&](const Yaml& body) { return read_user(body, file); });
  read_entries(root, "contexts", "context", config.contexts, [&](const Yaml& body) { return read_context(body); });
}

ChosenContext choose_context(const Kubeconfig& config, const std::string& name) {
  const std::string files = join(config.files, ", ");
  ChosenContext out;
  out.name = name.empty() ? config.current_context : name;
  if (out.name.empty())
    throw Error(ErrorCode::kUsage, "the kubeconfig has no current-context", files,
                "kubectl config use-context NAME, or give --context NAME");
  out.context = require(config.contexts, out.name, "context", files);
  out.cluster = require(config.clusters, out.context.cluster, "cluster", out.context.where);
  if (!out.context.user.empty()) out.user = require(config.users, out.context.user, "user", out.context.where);
  refuse_unsupported(out);
  return out;
}

}  // namespace rubato::kubernetes
