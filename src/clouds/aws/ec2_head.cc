#include "clouds/aws/ec2_head.h"

#include <fmt/format.h>

#include "clouds/aws/ec2_instances.h"
#include "clouds/aws/surroundings.h"
#include "core/text.h"
#include "model/cluster_spec.h"
#include "provider/external_head.h"
#include "provider/run_here.h"

namespace rubato::clouds {
namespace {

using provider::HeadMachine;
using provider::HeadMachineSettings;

Task<provider::HereResult> run_keygen(World& world, HeadMachineSettings settings, std::vector<std::string> argv) {
  provider::RunnerSettings runner;
  runner.env = settings.env;
  runner.scratch = settings.cluster_folder + "/scratch";
  provider::HereSpec spec;
  spec.argv = std::move(argv);
  co_return co_await provider::run_here(world, std::move(runner), std::move(spec));
}

struct Key {
  std::string file;  // private, where we had to make one
  std::string text;  // public
};

std::string expand_home(const std::string& path, const aws::Environment& env) {
  const auto rest = strip_prefix(path, "~/");
  return rest ? aws::home_of(env) + "/" + std::string(*rest) : path;
}

// The person's own, or one that is made for this cluster.
Task<Key> find_key(World& world, const ClusterFile& file, HeadMachineSettings settings) {
  Key key;
  if (!settings.authorized_keys.empty()) {
    key.text = settings.authorized_keys.front();
    co_return key;
  }
  const aws::Environment env = environment_of(settings.env);
  if (!file.auth.ssh_private_key.empty()) {
    const std::string path = expand_home(file.auth.ssh_private_key, env);
    std::vector<std::string> argv = {"ssh-keygen", "-y", "-P", "", "-f", path};
    const provider::HereResult told = co_await run_keygen(world, settings, std::move(argv));
    if (!told.command.ok()) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("the public part of {} is not to be had: {}", file.auth.ssh_private_key, trim(told.err)),
                  file.place("auth.ssh_private_key"), "add auth: {ssh_public_key: PATH}");
    }
    key.text = trim(told.command.out);
    co_return key;
  }
  const std::string folder = settings.cluster_folder + "/ssh";
  world.files.make_folders(folder);
  world.files.set_mode(folder, 0700);
  key.file = folder + "/cloud_key";
  if (!world.files.exists(key.file)) {
    std::vector<std::string> argv = {"ssh-keygen",          "-q", "-t",    "ed25519", "-N", "", "-C",
                                     "rubato-" + file.name, "-f", key.file};
    const provider::HereResult made = co_await run_keygen(world, settings, std::move(argv));
    if (!made.command.ok()) {
      throw Error(ErrorCode::kUsage, fmt::format("no SSH key can be made: {}", trim(made.err)), key.file,
                  "install openssh-client, or add auth: {ssh_private_key: PATH}");
    }
  }
  key.text = trim(world.files.read(key.file + ".pub").value_or(""));
  co_return key;
}

Task<std::unique_ptr<aws::Client>> open(World& world, const Ec2Config& config, const HeadMachineSettings& given) {
  aws::Settings settings;
  settings.env = environment_of(given.env);
  settings.region = config.region;
  return aws::open_client(world, std::move(settings));
}

Ec2Config config_of(const ClusterFile& file) { return ec2_config_from_json(compile_ec2_config(file)); }

Ec2InstancesSettings instances_settings(const HeadMachineSettings& given) {
  Ec2InstancesSettings out;
  out.env = environment_of(given.env);
  out.public_head = true;
  return out;
}

}  // namespace

Task<HeadMachine> make_ec2_head(World& world, const ClusterFile& file, HeadMachineSettings settings) {
  const Ec2Config config = config_of(file);
  HeadMachine head;
  const Key key = co_await find_key(world, file, settings);
  const std::unique_ptr<aws::Client> client = co_await open(world, config, settings);
  SurroundingsOrder order;
  order.config = config;
  order.file = &file;
  order.public_key = key.text;
  order.env = environment_of(settings.env);
  order.on_progress = settings.on_progress;
  FoundSurroundings found = co_await prepare_surroundings(*client, std::move(order));
  head.notes = std::move(found.notes);
  head.carry = to_json(found.around);
  head.key_file = key.file;
  if (settings.on_progress) settings.on_progress("EC2: the head's machine");
  Ec2InstancesSettings of_instances = instances_settings(settings);
  of_instances.around = std::move(found.around);
  of_instances.new_profile = found.new_profile;
  Ec2Instances instances(world, std::move(of_instances), Log());
  instances.configure(cluster_spec_of(file).provider_config);
  provider::NodeOrder wanted = provider::head_order(file);
  const std::string hash = wanted.launch_hash;
  const provider::Machine machine = co_await instances.create(std::move(wanted));
  if (const std::string was = instances.launch_hash_of(machine.id); !was.empty() && was != hash) {
    head.notes.push_back(fmt::format(
        "note: the head's machine {} was made from another description, and stays: rubato down, then rubato up "
        "replaces it",
        machine.id));
  }
  head.host = machine.host;
  head.address = machine.address;
  head.instance = machine.id;
  co_return head;
}

Task<HeadMachine> end_ec2_head(World& world, const ClusterFile& file, HeadMachineSettings settings) {
  const Ec2Config config = config_of(file);
  HeadMachine head;
  if (settings.on_progress) settings.on_progress("EC2: ending the machines");
  Ec2Instances instances(world, instances_settings(settings), Log());
  instances.configure(cluster_spec_of(file).provider_config);
  const size_t ended = co_await instances.end_all();
  if (settings.on_progress) settings.on_progress("EC2: what surrounded them");
  const RemovedSurroundings removed = co_await remove_surroundings(instances.client(), config);
  if (ended > 0) head.notes.push_back(fmt::format("{} machine{} ended", ended, ended == 1 ? "" : "s"));
  if (!removed.removed.empty()) head.notes.push_back("removed: " + join(removed.removed, ", "));
  for (const std::string& one : removed.kept) head.notes.push_back("note: kept: " + one);
  head.found = ended > 0 || !removed.removed.empty();
  co_return head;
}

}  // namespace rubato::clouds
