// Ranges of addresses, as `ssh_from` and firewalls take them. Pure but for own_address().
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/yaml.h"
#include "model/finding.h"
#include "rest/environment.h"
#include "world/world.h"

namespace rubato::clouds {

// "203.0.113.7" is "203.0.113.7/32". nullopt: neither an address nor a range of them.
std::optional<std::string> normal_cidr(std::string_view text);

// provider.ssh_from: a range, or a list of them; each problem at its place.
void check_ranges(const Yaml& node, Findings& findings);

struct SshFrom {
  std::vector<std::string> given;  // of the file: ranges
  bool internal_only = false;      // the head is reached at its private address
  std::string provider_where;      // file:line:column of `provider`
  rest::Environment env;
  std::string own_server;  // host that is asked in place of the cloud's own; empty: none
};
// From where SSH to a cluster is allowed: what the file says, else the caller's own public address (asked of
// checkip.amazonaws.com, or RUBATO_CHECKIP) and never the whole world. Machines of a server in a private network are
// reached from there: then it is this machine's own addresses. Throws kUsage with the line to add.
Task<std::vector<std::string>> find_ssh_from(World& world, SshFrom asked);

}  // namespace rubato::clouds
