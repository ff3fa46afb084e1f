// provider: where machines come from.
#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "model/cluster_file_readers.h"
#include "model/provider_kind.h"
#include "model/yaml_value.h"

namespace rubato {
namespace {

using nlohmann::ordered_json;

// Returns false when there is no type that anything could be said about.
bool read_provider_type(const ConfigSection& top, ProviderConfig& out) {
  const std::optional<Yaml> provider = top.node().find("provider");
  if (!provider || provider->is_null()) {
    top.findings().unfilled(top.node(), "the file names no provider", "add provider: {type: local}, aws, gcp, ...");
    return false;
  }
  if (!provider->is_mapping()) return false;
  const auto type = top.text("provider.type");
  if (!type) {
    if (top.find("provider.type") == nullptr) {
      top.findings().error(*provider, "provider lacks the key \"type\"",
                           "write one of: " + join(provider_types(), ", "));
    }
    return false;
  }
  const auto types = provider_types();
  if (std::find(types.begin(), types.end(), *type) == types.end()) {
    const auto near = nearest(*type, types);
    top.findings().error(top.find("provider.type")->value, fmt::format("the provider type '{}' is unknown", *type),
                         near ? fmt::format("did you mean {}?", *near) : "write one of: " + join(types, ", "));
  }
  out.type = *type;
  return true;
}

void check_module(const ConfigSection& top, const ProviderConfig& out) {
  if (out.module.empty() || out.module.find('.') != std::string::npos) return;
  top.findings().error(top.find("provider.module")->value, fmt::format("the module '{}' names no class", out.module),
                       "write package.Class");
}

}  // namespace

bool ProviderConfig::this_machine() const {
  return provider_kind(type).names_hosts && !head && workers.empty() && coordinator_address.empty();
}

bool ProviderConfig::has_hosts() const { return provider_kind(type).names_hosts && !this_machine(); }

std::optional<HostAddress> parse_host_address(std::string_view text) {
  HostAddress out;
  if (const size_t at = text.rfind('@'); at != std::string_view::npos) {
    out.user = text.substr(0, at);
    text.remove_prefix(at + 1);
    if (out.user.empty() || out.user.front() == '-') return std::nullopt;
  }
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    port = text.substr(end + 1);
    if (!port.empty() && port.front() != ':') return std::nullopt;
    if (!port.empty()) port.remove_prefix(1);
    if (text.substr(end + 1) == ":") return std::nullopt;
    text = text.substr(1, end - 1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {  // more colons: an IPv6 address
    const size_t colon = text.find(':');
    port = text.substr(colon + 1);
    if (port.empty()) return std::nullopt;
    text = text.substr(0, colon);
  }
  const auto fine = [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') ||
           std::string_view("-._:%").find(c) != std::string_view::npos;
  };
  const auto user_fine = [&](char c) { return (fine(c) && c != ':') || c == '\\' || c == '+'; };
  if (text.empty() || text.front() == '-' || !std::all_of(text.begin(), text.end(), fine)) return std::nullopt;
  if (!std::all_of(out.user.begin(), out.user.end(), user_fine)) return std::nullopt;
  out.host = text;
  for (const char c : port) {
    if (c < '0' || c > '9') return std::nullopt;
    out.port = out.port * 10 + (c - '0');
    if (out.port > 65535) return std::nullopt;
  }
  if (!port.empty() && out.port == 0) return std::nullopt;
  return out;
}

std::string to_string(const HostAddress& address) {
  const bool brackets = address.host.find(':') != std::string::npos && address.port != 0;
  std::string out = address.user.empty() ? "" : address.user + "@";
  out += brackets ? "[" + address.host + "]" : address.host;
  return address.port == 0 ? out : fmt::format("{}:{}", out, address.port);
}

void read_provider_config(const ConfigSection& top, ClusterFile& file) {
  ProviderConfig& out = file.provider;
  if (!read_provider_type(top, out)) return;
  for (const Yaml::Entry& entry : top.node().find("provider")->entries()) {
    const std::string key = entry.key.as_string();
    if (key != "type") out.options[key] = value_of(entry.value);
  }
  out.module = top.text("provider.module").value_or("");
  out.command = top.texts("provider.command").value_or(std::vector<std::string>());
  out.use_internal_ips = top.flag("provider.use_internal_ips").value_or(false);
  out.use_external_head_ip = top.flag("provider.use_external_head_ip").value_or(false);
  out.disable_node_updaters = top.flag("provider.disable_node_updaters").value_or(false);
  const ProviderKind& kind = provider_kind(out.type);
  out.cache_stopped_nodes = top.flag("provider.cache_stopped_nodes").value_or(kind.caches_stopped_nodes);
  for (const char* path :
       {"provider.disable_launch_config_check", "provider.foreground_node_launch", "provider.worker_liveness_check"}) {
    top.flag(path);  // for its type; we have no other use for it than passing it on
  }
  out.region = top.text("provider.region").value_or(std::string(kind.region));
  const std::string_view home_zone = top.find("provider.region") == nullptr ? kind.zone : "";
  const std::string zone = top.text("provider.availability_zone").value_or(std::string(home_zone));
  for (const std::string_view one : split(zone, ',')) {
    if (!trim(one).empty()) out.zones.emplace_back(trim(one));
  }
  check_module(top, out);
  if (kind.read != nullptr) kind.read(top, out);
}

}  // namespace rubato
