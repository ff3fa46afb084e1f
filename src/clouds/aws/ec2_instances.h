// Ec2Instances: machines of EC2, one for each node, found by their tags.
//
//   launch, create:  has it one? -> a stopped one of the same hash? StartInstances -> RunInstances, place after place
//   remove:          TerminateInstances, or StopInstances where stopped machines are kept
//
// Calls are few: a list of the cluster is one call, shared by all who wait for something on it at that time. What EC2
// has not heard of yet, though we made it, is waited for.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aws/credentials.h"
#include "clouds/aws/launch.h"
#include "core/scope.h"
#include "provider/instances.h"

namespace rubato::clouds {

// Of "NAME=value" entries.
aws::Environment environment_of(const std::vector<std::string>& env);

struct Ec2InstancesSettings {
  aws::Environment env;
  std::string surroundings_file;          // read again before each launch: `up` writes it
  std::optional<Ec2Surroundings> around;  // instead of the file
  std::string head_key;                   // public: what workers let in
  std::optional<provider::Machine> own;   // the head's machine, when we are on it
  bool public_head = false;               // who asks is outside: the head is reached at its public address
  bool new_profile = false;               // EC2 may not have heard of the instance profile yet
  Duration create_timeout = 15min;        // until its address is known
  Duration known_timeout = 60s;           // until EC2 lists what it has made
  Duration poll_min = 500ms, poll_max = 5s;
};

class Ec2Instances final : public provider::Instances {
 public:
  Ec2Instances(World& world, Ec2InstancesSettings settings, Log log);

  void configure(const std::string& provider_config) override;
  Task<provider::LaunchErrors> launch(std::vector<provider::NodeOrder> orders) override;
  Task<provider::Machine> create(provider::NodeOrder order) override;
  Task<std::optional<provider::Machine>> find(NodeId node) override;
  Task<void> remove(provider::NodeRemoval removal, bool cleaned) override;
  Task<std::vector<NodeId>> list() override;
  bool machines_stay() const override { return false; }
  void note_failure(const NodeId& node, const std::string& why) override;
  void note_step(const NodeId& node, const std::string& step) override;

  // Everything of the cluster that EC2 still has, stopped machines too; returns when all of it is gone for good.
  Task<size_t> end_all();
  // The address at which the caller reaches it.
  std::string address_of(const aws::Instance& instance) const;
  std::string launch_hash_of(const std::string& id) const;  // as last listed; empty: not known
  aws::Client& client();                                    // after any call

 private:
  struct Made {
    std::string id;
    Instant at{};
  };
  class Turn;  // of the one who lists

  Task<void> open();
  Task<void> refresh(Instant not_before);
  const aws::Instance* alive(const NodeId& node) const;
  const aws::Instance* listed(const std::string& id) const;
  Ec2Surroundings around();
  Task<void> launch_group(std::vector<provider::NodeOrder> orders, provider::LaunchErrors& errors);
  Task<std::vector<aws::Instance>> run(LaunchRequest request, bool is_new_profile);
  Task<bool> start_stopped(const provider::NodeOrder& order);
  std::vector<aws::Instance> stopped_for(const provider::NodeOrder& order) const;
  Task<aws::Instance> wait_until_running(NodeId node);
  provider::Machine machine_of(const aws::Instance& instance) const;
  bool is_own(const NodeId& node) const;
  Task<void> end(std::vector<std::string> ids);
  Task<void> keep_status();

  World& world_;
  const Ec2InstancesSettings settings_;
  const Log log_;
  std::string told_;
  std::optional<Ec2Config> config_;
  std::unique_ptr<aws::Client> client_;
  std::map<NodeId, Made> made_;           // what EC2 may not list yet
  std::set<std::string> claimed_;         // stopped machines that somebody is about to start
  std::vector<aws::Instance> instances_;  // of the cluster, as last listed
  Instant listed_at_{};                   // when that list was asked for
  bool has_list_ = false, listing_ = false;
  Event list_done_;
  std::map<NodeId, std::string> status_;  // to be written to the tags
  bool writing_status_ = false;
  Scope tasks_;  // what nobody waits for
};

std::unique_ptr<provider::Instances> make_ec2_instances(World& world, const provider::InstancesSettings& settings,
                                                        const Log& log);

}  // namespace rubato::clouds
