// LocalNetwork: `isolation: netns`: each node of a cluster in a network namespace of its own, all on one bridge.
//
//   this machine ── bridge rb<cluster> 10.a.b.1/24 ──┬── veth ── eth0 10.a.b.2 in namespace rubato-<cluster>-<node>
//                                                    └── veth ── eth0 10.a.b.3 ...
//
// Made and removed with ip(8), which needs root. Names of interfaces have 15 bytes at most, so they are hashes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/task.h"
#include "model/ids.h"
#include "world/world.h"

namespace rubato::provider {

class LocalNetwork {
 public:
  static constexpr std::string_view kInterface = "eth0";  // of a node in its namespace

  LocalNetwork(World& world, std::string cluster);

  std::string namespace_of(const NodeId& node) const;
  const std::string& bridge() const { return bridge_; }
  std::string bridge_address() const { return subnet_ + "1"; }  // where the head is reached from the nodes
  std::string address(int number) const;                        // of the number-th node, 0 to 252

  // Makes the namespace anew, with this address. Throws kUsage when this machine cannot.
  Task<void> add(NodeId node, std::string address);
  // Nothing happens when there is none.
  Task<void> remove(NodeId node);
  Task<void> remove_bridge();

 private:
  std::string link_of(const NodeId& node) const;
  Task<std::string> try_ip(std::vector<std::string> arguments);  // what it said; empty: it worked
  Task<void> ip(std::vector<std::string> arguments);             // throws when it did not work

  World& world_;
  const std::string cluster_;
  std::string bridge_, subnet_;
};

}  // namespace rubato::provider
