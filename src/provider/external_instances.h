// ExternalInstances: machines that somebody's program makes, in any language (`provider: {type: external}`).
// docs/external-providers.md is for those who write one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "provider/external_config.h"
#include "provider/external_program.h"
#include "provider/instances.h"

namespace rubato::provider {

class ExternalInstances final : public Instances {
 public:
  // The program is started with the first call. Every call must have ended, or be cancelled, before this goes.
  ExternalInstances(World& world, ExternalSettings settings, Log log);
  // The same, configured.
  ExternalInstances(World& world, const std::string& provider_config, ExternalSettings settings, Log log);

  void configure(const std::string& provider_config) override;

  Task<LaunchErrors> launch(std::vector<NodeOrder> orders) override;  // for a program that knows `launch`
  Task<Machine> create(NodeOrder order) override;
  Task<std::optional<Machine>> find(NodeId node) override;
  Task<void> remove(NodeRemoval removal, bool cleaned) override;
  Task<std::vector<NodeId>> list() override;
  bool machines_stay() const override { return greeting_.machines_stay; }  // as the program last said
  void note_cleaned(const NodeId& node) override;
  void note_failure(const NodeId& node, const std::string& why) override;

  // Starts the program and asks what it is: for `rubato doctor`, and for what the head's is to carry on.
  Task<ExternalGreeting> greet();

 private:
  Task<nlohmann::json> ask(std::string method, nlohmann::json params, std::string what, Duration timeout,
                           ExternalProgram::OnProgress on_progress = {});
  Task<std::optional<ExternalMachine>> describe(NodeId node);
  Task<void> notify(std::string method, NodeId node, std::string why);
  bool is_own(const NodeId& node) const;
  std::shared_ptr<ExternalProgram> program() const;  // throws while there is no file

  World& world_;
  const ExternalSettings settings_;
  const Log log_;
  std::string told_;                          // what program_ was made from
  std::shared_ptr<ExternalProgram> program_;  // calls that are under way keep theirs when the file changes
  ExternalGreeting greeting_;
  Scope tasks_;  // what nobody waits for
};

// For a head: the settings are in its folder.
std::unique_ptr<Instances> make_external_instances(World& world, const InstancesSettings& settings, const Log& log);

}  // namespace rubato::provider
