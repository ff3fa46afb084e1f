// Ec2Machines: EC2 as a MachineCloud: a cluster's machines by their tags, all nodes of a launch in one request.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aws/credentials.h"
#include "clouds/aws/launch.h"
#include "clouds/common/cloud_instances.h"

namespace rubato::clouds {

struct Ec2Settings {
  aws::Environment env;
  std::string surroundings_file;          // read again before each launch: `up` writes it
  std::optional<Ec2Surroundings> around;  // instead of the file
  bool new_profile = false;               // EC2 may not have heard of the instance profile yet
  Duration profile_timeout = 60s;         // until it has; of a new group or key too
  Duration profile_pause = 5s;
};

class Ec2Machines final : public MachineCloud {
 public:
  Ec2Machines(World& world, Ec2Settings settings);

  std::string_view name() const override { return "EC2"; }
  CloudRules configure(const nlohmann::json& told) override;
  Task<void> open() override;
  Task<std::vector<CloudMachine>> list() override;
  bool fit_together(const std::vector<NodeId>& nodes) const override;
  size_t count_places(const LaunchOrder& order) override;
  Task<Launched> launch_at(LaunchOrder order, size_t place) override;
  Task<void> start(std::string id, NodeId node) override;
  Task<void> stop(std::vector<std::string> ids) override;
  Task<void> end(std::vector<std::string> ids) override;
  Task<void> write_status(std::vector<std::string> ids, std::string status) override;

  Preparation prepare(const std::string& zone) override;

  aws::Client& client();  // once it is open

 private:
  Ec2Surroundings around();
  Task<std::vector<aws::Instance>> run(LaunchRequest request);
  bool may_come(const std::string& reason);
  Task<bool> knows_type(const nlohmann::json& config);
  Task<void> tag_untagged(const nlohmann::json& config, const std::vector<aws::Instance>& got);
  Task<void> end_some(std::vector<std::string> ids);
  Task<std::map<NodeId, std::string>> assign(std::vector<NodeId> nodes, std::vector<aws::Instance> got);

  World& world_;
  const Ec2Settings settings_;
  std::optional<Ec2Config> config_;
  std::unique_ptr<aws::Client> client_;
};

// What EC2 says of an instance, as all clouds' machines are described.
CloudMachine machine_of(const aws::Instance& from);

std::unique_ptr<provider::Instances> make_ec2_instances(World& world, const provider::InstancesSettings& settings,
                                                        const Log& log);

}  // namespace rubato::clouds
