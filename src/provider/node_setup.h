// From a machine that is on to a node whose agent runs. Every step may be done already, and a repetition finishes what
// was begun: nothing is remembered here, the machine itself is asked.
//
//   reachable ──> initialization ──> files ──> setup ──> agent          with a container (docker_runner.h)
//   reachable ──> files ──> initialization ──> setup ──> agent          without
//       │                                                  ^
//       └── the runtime hash recorded there is the wanted ─┘
//
// On the machine (in the container where there is one): ~/.rubato/clusters/NAME/nodes/ID with agent.json, ca.pem,
// node.pem, node.key, `runtime` (the hash of what set-up was made from), `program` (a link to the rubato that started
// the agent) and the agent's own files.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/cluster_file.h"
#include "provider/agent_file.h"
#include "provider/command_runner.h"
#include "provider/remote_binary.h"
#include "provider/run_here.h"
#include "world/world.h"

namespace rubato::provider {

enum class SetupStep { kReachable, kFiles, kInitialization, kSetup, kAgent };
std::string_view to_string(SetupStep step);  // "reachable", ...

struct NodeMount {
  std::string local;   // here
  std::string remote;  // there; "~/" is its home folder
};

using rubato::ContainerSpec;

// The agent's identity as text: it is made where the head is.
struct NodeIdentity {
  std::string ca, certificate, key;
};

struct SetupLimits {
  Duration reachable = 60s;  // until ssh answers; 10min for a machine that was just made
  Duration files = 900s;
  Duration command = 1800s;  // each of the person's commands
  Duration agent = 120s;
  Duration binary = 600s;
  int attempts = 3;           // of each step but the first
  Duration again_first = 5s;  // the pause before the second attempt; doubles
  Duration again_max = 60s;
};

struct NodeSetupSpec {
  std::string cluster;
  NodeId node;
  std::vector<NodeMount> mounts;
  SyncOptions sync;
  std::vector<std::string> host_commands;   // initialization: on the machine itself
  std::vector<std::string> setup_commands;  // in the container where there is one
  bool login_shells = true;                 // for the commands and the agent
  std::vector<std::string> before_agent;    // in the shell that starts the agent: its environment is the workers'
  std::vector<std::string> after_agent;     // when it has been started
  std::optional<ContainerSpec> container;
  std::map<std::string, std::string> env;  // of all commands and of the agent
  std::string runtime_hash;                // of all of the above and of the mounts' contents; empty: always set up
  AgentFile agent;                         // the paths in `identity` are set here
  NodeIdentity identity;
  std::string program;         // of rubato on the machine, when it need not be sent: the head's own machine
  std::string log_file;        // here; all output is added to it
  bool restart = false;        // start its agent anew though it runs
  bool keep_running = false;   // an agent that runs stays, whatever has changed
  bool fresh_machine = false;  // it may refuse logins for a while after its start
  SetupLimits limits;
};

// "~/.rubato/clusters/NAME/nodes/ID".
std::string node_folder(const std::string& cluster, const NodeId& node);

// Throws an Error that says node, step, command, exit code, the last lines and the fix: kUsage when it can never work,
// kUnavailable when the machine was not reached or was lost, kFailed for the rest. `on_step` is told of each step and
// of each new attempt; the detail is for people.
Task<void> set_up_node(World& world, RunnerSettings settings, CommandRunner& host, RemoteBinary& binary,
                       NodeSetupSpec spec, std::function<void(SetupStep, std::string)> on_step);

// What is needed to end a node.
struct NodeEnd {
  std::string cluster;
  NodeId node;
  std::optional<ContainerSpec> container;  // is removed too
  Duration grace = 45s;                    // from SIGTERM to SIGKILL
  Duration timeout = 90s;
  Duration salvage_max = 3600s;  // outputs may be large; who brings them gives up when nothing moves
};

// Stops its agent, and a set-up that is still running; then what the agent's folder still has for the head is brought
// there (`rubato agent --deliver`). Throws when that did not work. Nothing happens when there is no such folder.
Task<void> salvage_node(CommandRunner& host, NodeEnd end);

// Stops its agent, and a set-up that is still running, and removes its folder. Nothing happens when there is none.
Task<void> stop_node(CommandRunner& host, NodeEnd end);

Task<bool> is_running(CommandRunner& host, NodeEnd end);

}  // namespace rubato::provider
