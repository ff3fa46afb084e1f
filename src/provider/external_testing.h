// For tests: the real world, and a provider's program driven in it.
#pragma once

#include <fmt/format.h>

#include "os/files.h"
#include "os/network.h"
#include "os/process_fixture.h"
#include "provider/external_instances.h"

namespace rubato::provider {

// A call's outcome, as words: what a machine is, "-" for nothing, or the error.
inline std::string words_of(const Machine& machine) {
  std::string out = to_string(machine.host);
  if (!machine.address.empty()) out += " " + machine.address;
  for (const NodeRemoval& each : machine.leftovers) out += " leftover " + each.node.value;
  return out;
}

inline NodeOrder external_order(const std::string& node, const std::string& type = "worker") {
  NodeOrder order;
  order.node.value = node;
  order.type.name = type;
  order.of_head = node == "head";
  order.type.resources.set(kCpu, 2000);
  order.launch_hash = "launch";
  order.type.node_config = order.of_head ? R"({"size": "s"})" : R"({"size": "l"})";
  if (!order.of_head) order.type.labels["zone"] = "a";
  return order;
}

class ExternalFixture : public os::ProcessFixture {
 protected:
  std::string write_program(const std::string& name, const std::string& text) {
    const std::string path = folder.write(name, text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  Log log() {
    return Log([this](LogLevel, std::string_view line) { logged += std::string(line) + "\n"; },
               [] { return WallTime{}; });
  }

  os::RealNetwork network{runtime};
  os::RealFiles files;
  os::RealConsole console;
  Random random{1};
  MachineFacts machine;
  World world{runtime, network, processes, files, console, random, machine};
  std::string logged;
};

}  // namespace rubato::provider
