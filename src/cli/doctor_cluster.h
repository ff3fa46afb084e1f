// `rubato doctor cluster.yaml`: the way to each host of a cluster file, step by step. Nothing is changed on them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/doctor.h"
#include "core/error.h"
#include "core/time.h"
#include "model/cluster_file.h"

namespace rubato::cli {

// What one host said. Facts only; judge_host() judges them.
struct HostFacts {
  std::string name;  // "head 10.0.0.1"
  std::string host;
  int port = 22;
  bool direct = true;                     // no proxy in between: its name and port were tried from here
  os::ResolvedName resolved;              // of `host`
  std::optional<os::EndpointProbe> door;  // absent: the name has no address
  std::optional<Error> login;             // why ssh did not get in
  std::map<std::string, std::string> said;
  WallTime asked_at{}, answered_at{};  // by our clock
};

// `wants`: what of it the cluster file needs.
struct HostWants {
  bool docker = false, podman = false;
  std::string user;
  bool is_head = false;
};
std::vector<Finding> judge_host(const HostFacts& facts, const HostWants& wants);

int doctor_cluster(const ParsedCommand& parsed, const Shell& shell);

}  // namespace rubato::cli
