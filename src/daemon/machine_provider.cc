#include "daemon/machine_provider.h"

#include <fmt/format.h>

#include "core/error.h"
#include "os/certificates.h"
#include "provider/instances.h"
#include "provider/local_runner.h"
#include "provider/node_plan.h"
#include "provider/pod_address.h"
#include "provider/ssh_provider.h"
#include "provider/ssh_runner.h"

namespace rubato::cli {
namespace {

using provider::CommandRunner;
using provider::Machine;
using provider::NodeOrder;
using provider::NodeRemoval;
using provider::NodeSetupSpec;

std::unique_ptr<provider::Instances> instances_for(DaemonWorld& daemon, const MachineProviderSettings& settings) {
  const provider::MakeInstances make = provider::instances_maker(settings.provider);
  if (make == nullptr) {
    throw Error(ErrorCode::kUsage, fmt::format("nobody here makes machines of the provider '{}'", settings.provider),
                settings.folder, "start the head with the rubato that has started it first");
  }
  provider::InstancesSettings place;
  place.folder = settings.folder;
  place.address = settings.address;
  for (const auto& [name, value] : daemon.environment) place.env.push_back(name + "=" + value);
  place.version = daemon.version;
  return make(daemon.world, place, daemon.log);
}

class MachineProvider final : public provider::NodeProvider {
 public:
  MachineProvider(DaemonWorld& daemon, MachineProviderSettings settings)
      : daemon_(daemon),
        settings_(std::move(settings)),
        runner_(runner_settings()),
        binary_(daemon.world, runner_, daemon.program, settings_.folder + "/programs"),
        instances_(instances_for(daemon, settings_)),
        provider_(daemon.world, *instances_, binary_, provider_settings()) {}

  void configure(const ClusterSpec& spec) override { provider_.configure(spec); }
  Task<provider::LaunchErrors> launch(std::vector<NodeOrder> orders) override {
    return provider_.launch(std::move(orders));
  }
  Task<void> create(NodeOrder order) override { return provider_.create(std::move(order)); }
  Task<void> salvage(NodeRemoval removal) override { return provider_.salvage(std::move(removal)); }
  Task<void> remove(NodeRemoval removal) override { return provider_.remove(std::move(removal)); }
  bool is_ended(const NodeId& node) override { return provider_.is_ended(node); }
  Task<std::vector<NodeId>> list() override { return provider_.list(); }

 private:
  provider::RunnerSettings runner_settings() const {
    provider::RunnerSettings out;
    for (const auto& [name, value] : daemon_.environment) out.env.push_back(name + "=" + value);
    out.scratch = settings_.folder + "/scratch";
    return out;
  }

  provider::SshProviderSettings provider_settings() {
    provider::SshProviderSettings out;
    out.cluster = settings_.cluster;
    out.runner = runner_;
    out.reach = [this](const Machine& machine, const NodeRecipe& recipe) { return reach(machine, recipe); };
    out.plan = [this](NodeOrder order, Machine machine) { return plan(std::move(order), std::move(machine)); };
    return out;
  }

  std::unique_ptr<CommandRunner> reach(const Machine& machine, const NodeRecipe& recipe) {
    if (machine.this_machine) return std::make_unique<provider::LocalRunner>(daemon_.world, runner_);
    AuthConfig auth;
    auth.ssh_user = recipe.ssh_user;
    auth.ssh_port = recipe.ssh_port;
    provider::SshTarget target = provider::ssh_target(machine.host, auth);
    // The person's key stays where it is; the head has its own, which `up` has let into the workers. A proxy leads from
    // the person's machine to the cluster; the head is inside.
    target.key_file = settings_.folder + "/ssh/id_ed25519";
    target.known_hosts = settings_.folder + "/ssh/known_hosts";
    target.host_key_name = machine.id;
    target.control_folder = provider::control_folder(daemon_.files, settings_.folder);
    if (provider::is_pod(target.host)) target.proxy_command = daemon_.program;
    return std::make_unique<provider::SshRunner>(daemon_.world, runner_, std::move(target));
  }

  Task<NodeSetupSpec> plan(NodeOrder order, Machine machine) {
    NodeSetupSpec spec = provider::plan_node(order, machine, settings_.folder);
    spec.identity = identity(order.node);
    spec.agent.outputs = settings_.folder + "/jobs";
    spec.agent.outputs_mark = outputs_mark();
    if (machine.this_machine && !spec.container) spec.program = daemon_.program;
    co_return spec;
  }

  // By which an agent knows that it sees this disk: it is its own machine's, or a network's.
  std::string outputs_mark() {
    const std::string path = settings_.folder + "/jobs/" + provider::kOutputsMark;
    if (const auto known = daemon_.files.read(path)) return *known;
    daemon_.files.make_folders(settings_.folder + "/jobs");
    const std::string mark = daemon_.random.hex(32);
    daemon_.files.write_atomically(path, mark);
    return mark;
  }

  provider::NodeIdentity identity(const NodeId& node) {
    const std::string folder = settings_.folder + "/nodes/" + node.value;
    daemon_.files.make_folders(folder);
    daemon_.files.set_mode(folder, 0700);
    os::issue_certificate(settings_.folder, "node/" + node.value, {}, folder + "/node.pem", folder + "/node.key");
    provider::NodeIdentity out;
    out.ca = daemon_.files.read(settings_.folder + "/ca.pem").value_or("");
    out.certificate = daemon_.files.read(folder + "/node.pem").value_or("");
    out.key = daemon_.files.read(folder + "/node.key").value_or("");
    return out;
  }

  DaemonWorld& daemon_;
  const MachineProviderSettings settings_;
  const provider::RunnerSettings runner_;
  provider::RemoteBinary binary_;
  const std::unique_ptr<provider::Instances> instances_;
  provider::SshProvider provider_;
};

}  // namespace

std::unique_ptr<provider::NodeProvider> machine_provider(DaemonWorld& daemon, MachineProviderSettings settings) {
  return std::make_unique<MachineProvider>(daemon, std::move(settings));
}

}  // namespace rubato::cli
