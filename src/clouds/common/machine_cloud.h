// MachineCloud: what a cloud's folder has to do so that CloudInstances (cloud_instances.h) makes nodes of its machines.
// Everything that is the same in all clouds is there, and nothing of it here.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/task.h"
#include "model/ids.h"
#include "provider/node_provider.h"

namespace rubato::clouds {

// Ray's names of what is written on machines, so that people's consoles and scripts find it; the second one is ours.
inline constexpr std::string_view kHashTag = "ray-launch-config";
inline constexpr std::string_view kNodeTag = "rubato-node";
inline constexpr std::string_view kStatusTag = "ray-node-status";

//   kStarting -> kRunning -> kStopping -> kStopped -> kStarting
//   any -> kEnding -> kEnded (some clouds forget it at once)
enum class MachineState { kStarting, kRunning, kStopping, kStopped, kEnding, kEnded };

struct CloudMachine {
  std::string id;  // the cloud's name of it; no other machine ever has it
  MachineState state = MachineState::kStarting;
  std::optional<NodeId> node;  // whose it is; nullopt: nothing on it says so
  std::string launch_hash, zone, network;
  std::string private_address, public_address;
  std::string user;           // who logs in; empty: the cluster file's
  std::optional<Error> no_user;  // why nobody can for now
  std::string end_reason;     // of an ended one; empty: not known
  bool lacked_stock = false;  // it ended before it ran because the cloud had none
  bool spot = false;
};

inline bool is_alive(const CloudMachine& one) {
  return one.state == MachineState::kStarting || one.state == MachineState::kRunning;
}
inline bool is_gone(const CloudMachine& one) {
  return one.state == MachineState::kEnding || one.state == MachineState::kEnded;
}

// Nodes that are asked for together: type, offering and hash are those of the sample.
struct LaunchOrder {
  provider::NodeOrder sample;
  std::vector<NodeId> nodes;
  std::string head_key;  // public: what the machines let in; empty: nobody's
};

// What the cluster file says that CloudInstances has to know.
struct CloudRules {
  std::string cluster;
  bool cache_stopped = false;  // on-demand workers are stopped instead of ended
  bool internal_head = false;  // a person reaches the head at its private address
};

class MachineCloud {
 public:
  virtual ~MachineCloud() = default;

  virtual std::string_view name() const = 0;  // "EC2"

  // ProviderKind::compile's description, parsed. Throws kUsage for what makes no sense, or moves the cluster.
  virtual CloudRules configure(const nlohmann::json& told) = 0;

  // Before any of the calls below, and as often as one likes: credentials, addresses.
  virtual Task<void> open() = 0;

  // All machines of the cluster, whatever their state.
  virtual Task<std::vector<CloudMachine>> list() = 0;

  // Whether one request can be made for all of them.
  virtual bool fit_together(const std::vector<NodeId>& nodes) const = 0;
  // How many places there are to try, in order; the next is for when the one before has no capacity. Throws kUsage for
  // what the file asks and cannot be, kNoCapacity when there is no place for the offering.
  virtual size_t count_places(const LaunchOrder& order) = 0;
  struct Launched {
    std::map<NodeId, std::string> ids;
    std::string place;           // for people: "eu-west-1a (subnet-1234)"
    std::optional<Error> error;  // why not all came; nullopt with nodes missing: the place has no more of them
  };
  // Repeated, also by another process after a crash, it gives the same machines.
  virtual Task<Launched> launch_at(LaunchOrder order, size_t place) = 0;

  // A stopped machine becomes that node's: what is written on it first, since a running machine that nobody knows would
  // be ended.
  virtual Task<void> start(std::string id, NodeId node) = 0;
  // Throws kFailed or kUsage where a machine cannot be stopped at all.
  virtual Task<void> stop(std::vector<std::string> ids) = 0;
  // What has ended already is no error.
  virtual Task<void> end(std::vector<std::string> ids) = 0;
  // What a machine in that zone has to do before its node is set up, and its container be given; empty zone: not known.
  struct Preparation {
    std::vector<std::string> host_commands, container_options;
  };
  virtual Preparation prepare(const std::string& zone) {
    (void)zone;
    return {};
  }
  virtual Task<void> write_status(std::vector<std::string> ids, std::string status) = 0;
};

}  // namespace rubato::clouds
