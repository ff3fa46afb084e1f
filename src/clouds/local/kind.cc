// local: processes of this machine, or hosts of one's own that the file names.
#include <fmt/format.h>

#include <array>
#include <set>

#include "clouds/kinds.h"
#include "model/cluster_file.h"

namespace rubato::clouds {
namespace {

constexpr std::array<ConfigKey, 5> kLocalKeys{{
    {"provider.isolation", KeyType::kText, "none",
     "none, or netns for a network namespace for each node of this machine", KeyEra::kOurs, "", "", "local"},
    {"provider.head_ip", KeyType::kHost, "", "the head's host: [user@]host[:port]", KeyEra::kShared, "", "", "local"},
    {"provider.worker_ips", KeyType::kHosts, "[]", "the workers' hosts: [user@]host[:port] each", KeyEra::kShared, "",
     "", "local"},
    {"provider.external_head_ip", KeyType::kText, "",
     "the head's address for people outside, when head_ip is a private one", KeyEra::kShared, "", "", "local"},
    {"provider.coordinator_address", KeyType::kText, "",
     "host:port of a server that lends hosts; it takes the place of head_ip and worker_ips", KeyEra::kShared, "", "",
     "local"},
}};

std::optional<HostAddress> read_host(const Yaml& node, Findings& findings) {
  if (findings.blames(node) || !node.is_scalar()) {
    attempt(findings, [&] { node.as_string(); });
    return node.is_scalar() ? std::optional(HostAddress{.host = node.as_string()}) : std::nullopt;
  }
  const auto address = parse_host_address(node.as_string());
  if (!address) {
    findings.error(node, fmt::format("'{}' is not a host", node.as_string()),
                   "write host, user@host or user@host:port");
  }
  return address;
}

void read_local(const ConfigSection& top, ProviderConfig& out) {
  Findings& findings = top.findings();
  if (const auto text = top.text("provider.isolation")) {
    out.isolation = *text;
    if (*text != "none" && *text != "netns") {
      findings.error(top.find("provider.isolation")->value, fmt::format("the isolation '{}' is unknown", *text),
                     "write none or netns");
    }
  }
  if (const auto* given = top.find("provider.head_ip")) out.head = read_host(given->value, findings);
  const auto* workers = top.find("provider.worker_ips");
  if (workers != nullptr) {
    attempt(findings, [&] {
      for (const Yaml& item : workers->value.items()) {
        if (const auto host = read_host(item, findings)) out.workers.push_back(*host);
      }
    });
  }
  out.external_head_ip = top.text("provider.external_head_ip").value_or("");
  out.coordinator_address = top.text("provider.coordinator_address").value_or("");
  if (!out.coordinator_address.empty()) {
    if (top.find("autoscaling.max_workers") == nullptr) {
      findings.error(top.find("provider.coordinator_address")->key,
                     "with a coordinator_address, max_workers is required", "add max_workers: N");
    }
    return;
  }
  if (workers != nullptr && top.find("provider.head_ip") == nullptr) {
    findings.error(workers->key, "worker_ips need a head_ip", "add head_ip: HOST, or name a coordinator_address");
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < out.workers.size(); ++i) {
    const std::string host = to_string(out.workers[i]);
    if (!seen.insert(host).second) {
      findings.error(workers->value.items()[i], fmt::format("the host {} is there twice", host));
    }
  }
}

nlohmann::json compile_local(const ClusterFile& file) {
  nlohmann::json out = {{"workers", nlohmann::json::array()}};
  if (file.provider.head) out["head"] = to_string(*file.provider.head);
  for (const HostAddress& worker : file.provider.workers) out["workers"].push_back(to_string(worker));
  return out;
}

}  // namespace

constexpr ProviderKind kLocal{.type = "local",
                              .supported_as = "local (this machine, or hosts of your own)",
                              .has_own_machines = true,
                              .names_hosts = true,
                              .keys = kLocalKeys,
                              .compile = compile_local,
                              .read = read_local};

}  // namespace rubato::clouds
