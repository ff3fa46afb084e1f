// PodMachines: the pods of a namespace as a MachineCloud: one for each node, found by their labels. The cluster's own
// autoscaler makes room for them where it can.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clouds/common/cloud_instances.h"
#include "clouds/kubernetes/pod_launch.h"
#include "kubernetes/client.h"

namespace rubato::clouds {

struct PodMachinesSettings {
  std::map<std::string, std::string> env;
  bool on_head = false;             // in a pod: with its account, whatever context the file names for people
  Duration free_timeout = 60s;      // until the name of a pod that ends is free
  Duration free_pause = 500ms;
  Duration keep_ended = 30s;        // on the head: until a pod that has ended goes, so that all who wait hear why
};

class PodMachines final : public MachineCloud {
 public:
  PodMachines(World& world, PodMachinesSettings settings);

  std::string_view name() const override { return "Kubernetes"; }
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

  kubernetes::Client& client();                // once it is open
  const std::string& namespace_name() const;  // once it is open
  // Of a person's kubeconfig, once it is open; empty on the head, which has an account of its own.
  const std::string& context() const { return config_->context; }

 private:
  struct Ended {
    Instant since{};
    std::string reason;
    bool lacked_stock = false;
  };
  std::vector<std::string> remember_ended(std::vector<CloudMachine>& machines);
  Task<std::string> make(nlohmann::json manifest, const NodeId& node);
  Task<std::string> make_head(nlohmann::json manifest, const NodeId& node);
  Task<std::optional<std::string>> try_make(nlohmann::json manifest, const NodeId& node);

  World& world_;
  const PodMachinesSettings settings_;
  std::optional<PodConfig> config_;
  std::unique_ptr<kubernetes::Client> client_;
  std::string namespace_;
  std::map<std::string, Ended> ended_;  // by id; what list() has said to have ended stays so
};

std::unique_ptr<provider::Instances> make_pod_instances(World& world, const provider::InstancesSettings& settings,
                                                        const Log& log);

}  // namespace rubato::clouds
