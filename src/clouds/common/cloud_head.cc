#include "clouds/common/cloud_head.h"

#include <fmt/format.h>

#include "core/text.h"
#include "model/cluster_spec.h"
#include "provider/external_head.h"
#include "provider/run_here.h"
#include "rest/environment.h"

namespace rubato::clouds {
namespace {

using provider::HeadMachine;

Task<provider::HereResult> run_keygen(World& world, provider::HeadMachineSettings settings,
                                      std::vector<std::string> argv) {
  provider::RunnerSettings runner;
  runner.env = settings.env;
  runner.scratch = settings.cluster_folder + "/scratch";
  provider::HereSpec spec;
  spec.argv = std::move(argv);
  co_return co_await provider::run_here(world, std::move(runner), std::move(spec));
}

std::string expand_home(const std::string& path, const rest::Environment& env) {
  const auto rest = strip_prefix(path, "~/");
  return rest ? rest::home_of(env) + "/" + std::string(*rest) : path;
}

constexpr size_t kIncarnationDigits = 16;

std::string incarnation_file(const provider::HeadMachineSettings& settings) {
  return settings.cluster_folder + "/incarnation";
}

}  // namespace

Task<PersonKey> find_person_key(World& world, const ClusterFile& file, provider::HeadMachineSettings settings) {
  PersonKey key;
  if (!settings.authorized_keys.empty()) {
    key.text = settings.authorized_keys.front();
    co_return key;
  }
  const rest::Environment env = rest::environment_of(settings.env);
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

std::string ensure_incarnation(World& world, const provider::HeadMachineSettings& settings) {
  const std::string path = incarnation_file(settings);
  if (const auto noted = world.files.read(path); noted && !trim(*noted).empty()) return std::string(trim(*noted));
  const std::string fresh = world.random.hex(kIncarnationDigits);
  world.files.make_folders(settings.cluster_folder);
  world.files.write_atomically(path, fresh + "\n");
  return fresh;
}

void forget_incarnation(World& world, const provider::HeadMachineSettings& settings) {
  world.files.remove_tree(incarnation_file(settings));
}

CloudInstancesSettings settings_for_person() {
  CloudInstancesSettings out;
  out.public_head = true;
  return out;
}

Task<void> create_head(CloudInstances& instances, const ClusterFile& file, HeadMachine& head) {
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
}

Task<void> try_removal(std::string what, Task<void> removal, RemovedSurroundings& out) {
  try {
    co_await std::move(removal);
  } catch (const Error& error) {
    out.kept.push_back(fmt::format("{}: {}", what, error.message));
  }
}

HeadMachine ended_head(size_t machines, const RemovedSurroundings& around) {
  HeadMachine head;
  if (machines > 0) head.notes.push_back(fmt::format("{} machine{} ended", machines, machines == 1 ? "" : "s"));
  if (!around.removed.empty()) head.notes.push_back("removed: " + join(around.removed, ", "));
  for (const std::string& one : around.kept) head.notes.push_back("note: kept: " + one);
  head.found = machines > 0 || !around.removed.empty();
  return head;
}

}  // namespace rubato::clouds
