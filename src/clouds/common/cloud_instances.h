// CloudInstances: machines of a cloud, one for each node, found by what is written on them.
//
//   launch, create:  has it one? -> a stopped one of the same hash? it is started -> a new one, place after place
//   remove:          it is ended, or stopped where stopped machines are kept
//
// Calls are few: a list of the cluster is one call, shared by all who wait for something on it at that time. What the
// cloud has not heard of yet, though we made it, is waited for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "clouds/common/machine_cloud.h"
#include "core/scope.h"
#include "provider/instances.h"

namespace rubato::clouds {

struct CloudInstancesSettings {
  std::string head_key;                  // public: what workers let in
  std::optional<provider::Machine> own;  // the head's machine, when we are on it
  bool public_head = false;              // who asks is outside: the head is reached at its public address
  Duration create_timeout = 15min;       // until its address is known
  Duration known_timeout = 60s;          // until the cloud lists what it has made
  Duration poll_min = 500ms, poll_max = 5s;
  Duration poll_boot = 1s, boot_usual = 60s;  // at most so long between two looks while a machine usually boots
};

class CloudInstances final : public provider::Instances {
 public:
  CloudInstances(World& world, std::unique_ptr<MachineCloud> cloud, CloudInstancesSettings settings, Log log);

  void configure(const std::string& provider_config) override;
  Task<provider::LaunchErrors> launch(std::vector<provider::NodeOrder> orders) override;
  Task<provider::Machine> create(provider::NodeOrder order) override;
  Task<std::optional<provider::Machine>> find(NodeId node) override;
  Task<void> remove(provider::NodeRemoval removal, bool cleaned) override;
  Task<std::vector<NodeId>> list() override;
  bool machines_stay() const override { return false; }
  void note_failure(const NodeId& node, const std::string& why) override;
  void note_step(const NodeId& node, const std::string& step) override;

  // Everything of the cluster that the cloud still has, stopped machines too; returns when all of it is gone for good.
  Task<size_t> end_all();
  std::string launch_hash_of(const std::string& id) const;  // as last listed; empty: not known

 private:
  struct Made {
    std::string id;
    Instant at{};
  };
  class Turn;  // of the one who lists

  Task<void> refresh(Instant not_before);
  const CloudMachine* alive(const NodeId& node) const;
  const CloudMachine* ended(const NodeId& node) const;
  const CloudMachine* listed(const std::string& id) const;
  std::string address_of(const CloudMachine& machine) const;
  Task<void> launch_group(std::vector<provider::NodeOrder> orders, provider::LaunchErrors& errors);
  Task<bool> start_stopped(const provider::NodeOrder& order);
  std::vector<CloudMachine> stopped_for(const provider::NodeOrder& order) const;
  Task<CloudMachine> wait_until_running(NodeId node);
  provider::Machine machine_of(const CloudMachine& machine) const;
  provider::Machine prepared(provider::Machine machine, const std::string& zone) const;
  bool is_own(const NodeId& node) const;
  Task<void> keep_status();

  World& world_;
  const std::unique_ptr<MachineCloud> cloud_;
  const CloudInstancesSettings settings_;
  const Log log_;
  std::string told_;
  std::optional<CloudRules> rules_;
  std::map<NodeId, Made> made_;         // what the cloud may not list yet
  std::set<std::string> claimed_;       // stopped machines that somebody is about to start
  std::vector<CloudMachine> machines_;  // of the cluster, as last listed
  Instant listed_at_{};                 // when that list was asked for
  bool has_list_ = false, listing_ = false;
  Event list_done_;
  std::map<NodeId, std::string> status_;  // to be written on the machines
  bool writing_status_ = false;
  Scope tasks_;  // what nobody waits for
};

// As a head's provider is made: on its own machine, in the cluster's folder.
CloudInstancesSettings settings_on_head(World& world, const provider::InstancesSettings& settings);
// What `up` has written for the head about everything around the machines. Throws kUsage when nobody has.
nlohmann::json read_surroundings_file(World& world, const std::string& path);
Error not_surroundings(const std::exception& why);  // of such a file
std::string surroundings_file_of(const provider::InstancesSettings& settings);

// What no second try and no other place would change is the file's fault.
Error as_usage(const Error& error);

}  // namespace rubato::clouds
