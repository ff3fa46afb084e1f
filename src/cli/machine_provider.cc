#include "cli/machine_provider.h"

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "os/certificates.h"
#include "provider/external_instances.h"
#include "provider/host_list.h"
#include "provider/local_runner.h"
#include "provider/node_plan.h"
#include "provider/ssh_provider.h"
#include "provider/ssh_runner.h"

namespace rubato::cli {
namespace {

using provider::CommandRunner;
using provider::Machine;
using provider::NodeOrder;
using provider::NodeSetupSpec;

// The hosts that the newest file names. Made anew for each call: what must last is in hosts.json.
class HostsOfFile final : public provider::Instances {
 public:
  HostsOfFile(World& world, std::string folder, std::function<std::string()> text)
      : world_(world), folder_(std::move(folder)), text_(std::move(text)) {}

  Task<Machine> create(NodeOrder order) override {
    provider::HostList hosts(world_, settings(order.text));
    co_return co_await hosts.create(std::move(order));
  }
  Task<std::optional<Machine>> find(NodeId node) override {
    provider::HostList hosts(world_, settings(text_()));
    co_return co_await hosts.find(std::move(node));
  }
  Task<void> remove(NodeId node, bool cleaned) override {
    provider::HostList hosts(world_, settings(text_()));
    co_await hosts.remove(std::move(node), cleaned);
  }
  Task<std::vector<NodeId>> list() override {
    provider::HostList hosts(world_, settings(text_()));
    co_return co_await hosts.list();
  }
  bool machines_stay() const override { return true; }
  void note_cleaned(const NodeId& node) override { provider::HostList(world_, settings(text_())).note_cleaned(node); }
  void note_failure(const NodeId& node, const std::string& why) override {
    provider::HostList(world_, settings(text_())).note_failure(node, why);
  }

 private:
  provider::HostListSettings settings(const std::string& text) const {
    const ClusterFile file = read_cluster_file(text, "cluster.yaml");
    provider::HostListSettings out;
    out.head = file.provider.head;
    out.workers = file.provider.workers;
    out.file = folder_ + "/hosts.json";
    return out;
  }

  World& world_;
  const std::string folder_;
  const std::function<std::string()> text_;
};

// Machines from the file's program. It is started when the file is known: the controller comes after its provider.
class ProgramOfFile final : public provider::Instances {
 public:
  ProgramOfFile(DaemonWorld& daemon, const MachineProviderSettings& settings)
      : daemon_(daemon), folder_(settings.folder), address_(settings.address), text_(settings.text) {}

  Task<Machine> create(NodeOrder order) override { return with(order.text).create(std::move(order)); }
  Task<std::optional<Machine>> find(NodeId node) override { return with(text_()).find(std::move(node)); }
  Task<void> remove(NodeId node, bool cleaned) override { return with(text_()).remove(std::move(node), cleaned); }
  Task<std::vector<NodeId>> list() override {
    const std::string text = text_();
    if (text.empty() && !instances_) co_return std::vector<NodeId>();  // no file yet: nothing was ever made
    co_return co_await with(text).list();
  }
  bool machines_stay() const override { return instances_ && instances_->machines_stay(); }
  void note_cleaned(const NodeId& node) override { with(text_()).note_cleaned(node); }
  void note_failure(const NodeId& node, const std::string& why) override { with(text_()).note_failure(node, why); }

 private:
  provider::ExternalInstances& with(const std::string& text) {
    if (!instances_) {
      instances_ = std::make_unique<provider::ExternalInstances>(daemon_.world, read_cluster_file(text, "cluster.yaml"),
                                                                 settings(), daemon_.log);
    }
    return *instances_;
  }

  provider::ExternalSettings settings() {
    provider::ExternalSettings out;
    out.place = provider::ExternalPlace::kHead;
    for (const auto& [name, value] : daemon_.environment) out.env.push_back(name + "=" + value);
    out.folder = folder_ + "/provider";
    daemon_.files.make_folders(out.folder);
    out.state = folder_ + "/provider-state";
    out.version = daemon_.version;
    const std::string carried = daemon_.files.read(folder_ + "/provider-carry.json").value_or("null");
    out.carry = nlohmann::json::parse(carried, nullptr, false);
    if (out.carry.is_discarded()) out.carry = nullptr;
    if (const auto key = daemon_.files.read(folder_ + "/ssh/id_ed25519.pub")) {
      out.authorized_keys.emplace_back(trim(*key));
    }
    Machine own;
    own.host.host = own.address = address_;
    own.this_machine = true;
    out.own = own;
    return out;
  }

  DaemonWorld& daemon_;
  const std::string folder_, address_;
  const std::function<std::string()> text_;
  std::unique_ptr<provider::ExternalInstances> instances_;
};

std::unique_ptr<provider::Instances> instances_for(DaemonWorld& daemon, const MachineProviderSettings& settings) {
  if (settings.provider == "external") return std::make_unique<ProgramOfFile>(daemon, settings);
  return std::make_unique<HostsOfFile>(daemon.world, settings.folder, settings.text);
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

  Task<void> create(NodeOrder order) override { return provider_.create(std::move(order)); }
  Task<void> salvage(NodeId node) override { return provider_.salvage(std::move(node)); }
  Task<void> remove(NodeId node) override { return provider_.remove(std::move(node)); }
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
    out.runner = runner_;
    out.reach = [this](const Machine& machine) { return reach(machine); };
    out.plan = [this](NodeOrder order, Machine machine) { return plan(std::move(order), std::move(machine)); };
    out.end = [this](const NodeId& node) {
      return provider::plan_end(read_cluster_file(settings_.text(), "cluster.yaml"), node);
    };
    return out;
  }

  std::unique_ptr<CommandRunner> reach(const Machine& machine) {
    if (machine.this_machine) return std::make_unique<provider::LocalRunner>(daemon_.world, runner_);
    const ClusterFile file = read_cluster_file(settings_.text(), "cluster.yaml");
    provider::SshTarget target = provider::ssh_target(machine.host, file.auth);
    // The person's key stays where it is; the head has its own, which `up` has let into the workers.
    target.key_file = settings_.folder + "/ssh/id_ed25519";
    target.known_hosts = settings_.folder + "/ssh/known_hosts";
    target.control_folder = provider::control_folder(daemon_.files, settings_.folder);
    // A proxy leads from the person's machine to the cluster; the head is inside.
    target.proxy_command.clear();
    target.proxy_jump.clear();
    return std::make_unique<provider::SshRunner>(daemon_.world, runner_, std::move(target));
  }

  Task<NodeSetupSpec> plan(NodeOrder order, Machine machine) {
    const ClusterFile file = read_cluster_file(order.text, "cluster.yaml");
    NodeSetupSpec spec = provider::plan_node(file, order, machine, settings_.folder);
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
