#include "cli/doctor_network.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "world/network.h"

namespace rubato::cli {
namespace {

constexpr int kPortsMin = 1000;  // a worker of a large group holds hundreds of connections

bool is_loopback_address(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

Finding judge_host_name(const os::ProbeFacts& facts) {
  const auto& addresses = facts.own_name.addresses;
  if (addresses.empty()) {
    return {"host name", Health::kWarn, fmt::format("{} does not resolve: {}", facts.hostname, facts.own_name.error),
            fmt::format("add it to /etc/hosts, or give --local-addr ADDRESS and set GLOO_SOCKET_IFNAME")};
  }
  const std::string text = fmt::format("{} is {}", facts.hostname, join(addresses, ", "));
  const bool others = std::any_of(facts.addresses.begin(), facts.addresses.end(), [](auto& a) { return !a.loopback; });
  // Debian writes 127.0.1.1 into /etc/hosts; gloo then tells other machines to connect to themselves.
  if (others && std::all_of(addresses.begin(), addresses.end(), is_loopback_address)) {
    return {"host name", Health::kWarn, text + ": other machines cannot reach that, and gloo uses it",
            "give the name its real address in /etc/hosts, or set GLOO_SOCKET_IFNAME to the interface"};
  }
  return {"host name", Health::kOk, text, ""};
}

Finding judge_addresses(const os::ProbeFacts& facts) {
  std::vector<std::string> shown;
  for (const os::InterfaceAddress& entry : facts.addresses) {
    if (!entry.loopback) shown.push_back(fmt::format("{} {}", entry.interface, entry.address));
  }
  if (!shown.empty()) return {"addresses", Health::kOk, join(shown, ", "), ""};
  return {"addresses", Health::kWarn, "loopback only: other machines cannot be reached",
          "bring an interface up if you train on several machines: ip addr"};
}

Finding judge_loopback(const os::ProbeFacts& facts) {
  if (facts.loopback_error.empty()) return {"loopback", Health::kOk, "127.0.0.1 works", ""};
  return {"loopback", Health::kFail, fmt::format("127.0.0.1 does not work: {}", facts.loopback_error),
          "ip link set lo up; allow local traffic in the firewall"};
}

Finding judge_ports(const os::ProbeFacts& facts) {
  const std::string text = fmt::format("free ones from {} to {}", facts.port_low, facts.port_high);
  if (!facts.port_error.empty()) {
    return {"ports", Health::kFail, fmt::format("no port can be bound: {}", facts.port_error),
            "see who holds them: ss -tan; widen net.ipv4.ip_local_port_range"};
  }
  if (facts.port_low > 0 && facts.port_high - facts.port_low < kPortsMin) {
    return {"ports", Health::kWarn, text + ": few", "sysctl net.ipv4.ip_local_port_range='32768 60999'"};
  }
  return {"ports", Health::kOk, facts.port_low > 0 ? text : "a free one can be bound", ""};
}

Finding judge_endpoint(const os::EndpointProbe& probe) {
  using Result = os::EndpointProbe::Result;
  const std::string name = to_string(Endpoint{probe.host, probe.port});
  const std::string way = probe.source.empty()
                              ? probe.address
                              : fmt::format("{} from {}{}", probe.address, probe.source,
                                            probe.interface.empty() ? "" : fmt::format(" ({})", probe.interface));
  const auto finding = [&](Health health, const std::string& what, std::string fix) {
    return Finding{"endpoint", health, fmt::format("{}: {}", name, what), std::move(fix)};
  };
  switch (probe.result) {
    case Result::kNoSuchHost:
      return finding(Health::kFail, fmt::format("no such host: {}", probe.error),
                     fmt::format("check the name, or add it to /etc/hosts: getent hosts {}", probe.host));
    case Result::kConnected:
      return finding(Health::kOk, fmt::format("connected to {}", way), "");
    case Result::kRefused:
      return finding(Health::kWarn, fmt::format("{} answers, but nothing listens there", way),
                     fmt::format("start rubato run on {} first, and compare the ports", probe.host));
    case Result::kTimedOut:
      return finding(Health::kFail, fmt::format("no answer from {} within 3 s", way),
                     fmt::format("open port {} in the firewall or security group of {}; is that machine up?",
                                 probe.port, probe.host));
    case Result::kUnreachable:
      return finding(Health::kFail, fmt::format("cannot reach {}: {}", way, probe.error),
                     fmt::format("check the route: ip route get {}", probe.address));
    case Result::kPortFree:
      return finding(Health::kOk, fmt::format("{} is this machine, and the port is free to host", probe.address), "");
    case Result::kPortTaken:
      return finding(
          Health::kWarn, fmt::format("{} is this machine, and the port is taken: {}", probe.address, probe.error),
          fmt::format("fine if a job of yours runs here; else ss -tlnp 'sport = :{}' shows who", probe.port));
  }
  return {};
}

}  // namespace

std::vector<Finding> judge_network(const os::ProbeFacts& facts) {
  std::vector<Finding> out = {judge_host_name(facts), judge_addresses(facts), judge_loopback(facts),
                              judge_ports(facts)};
  if (facts.endpoint) out.push_back(judge_endpoint(*facts.endpoint));
  return out;
}

}  // namespace rubato::cli
