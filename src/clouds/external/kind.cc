// external: machines from somebody's program, in any language. docs/external-providers.md is for those who write one.
#include <fmt/format.h>

#include <array>

#include "clouds/kinds.h"
#include "model/cluster_file.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array<ConfigKey, 2> kExternalKeys{{
    {"provider.module", KeyType::kText, "", "the Python class of an external provider, package.Class", KeyEra::kShared,
     "", "", "external"},
    {"provider.command", KeyType::kTexts, "",
     "the program of an external provider and its arguments: JSON lines on its standard input and output",
     KeyEra::kOurs, "", "", "external"},
}};

json provider_section(const ClusterFile& file) {
  json out = file.provider.options;
  out["type"] = file.provider.type;
  return out;
}

json ray_node_type(const NodeTypeConfig& type) {
  json resources = to_json(type.resources.amounts);
  for (const std::string& name : type.resources.zeros) resources[name] = 0;
  return json{{"node_config", type.node_config},
              {"resources", std::move(resources)},
              {"min_workers", type.min_workers},
              {"max_workers", type.max_workers},
              {"labels", type.labels}};
}

void put_words(json& out, const char* key, const std::string& value) {
  if (!value.empty()) out[key] = value;
}

// The whole file as Ray's own programs expect it, with the defaults filled in.
json ray_form(const ClusterFile& file) {
  json out{
      {"cluster_name", file.name},
      {"max_workers", file.autoscaling.max_workers},
      {"upscaling_speed", file.autoscaling.upscaling_speed},
      {"idle_timeout_minutes", std::chrono::duration<double, std::ratio<60>>(file.autoscaling.idle_timeout).count()},
      {"provider", provider_section(file)},
      {"head_node_type", file.head_type},
      {"file_mounts", file.files.mounts},
      {"cluster_synced_files", file.files.synced_from_head},
      {"initialization_commands", file.commands.setup_host},
      {"setup_commands", file.commands.setup_all},
      {"head_setup_commands", file.commands.setup_head},
      {"worker_setup_commands", file.commands.setup_worker},
      {"head_start_ray_commands", json::array()},
      {"worker_start_ray_commands", json::array()}};
  json& auth = out["auth"] = json::object();
  put_words(auth, "ssh_user", file.auth.ssh_user);
  put_words(auth, "ssh_private_key", file.auth.ssh_private_key);
  put_words(auth, "ssh_public_key", file.auth.ssh_public_key);
  put_words(auth, "ssh_proxy_command", file.auth.ssh_proxy_command);
  json& docker = out["docker"] = json::object();
  put_words(docker, "image", file.docker.image);
  put_words(docker, "head_image", file.docker.head_image);
  put_words(docker, "worker_image", file.docker.worker_image);
  if (file.docker.enabled()) docker["container_name"] = file.docker.container_name;
  json& types = out["available_node_types"] = json::object();
  for (const auto& [name, type] : file.types) types[name] = ray_node_type(type);
  return out;
}

json compile_external(const ClusterFile& file) {
  return {{"cluster", file.name},
          {"command", file.provider.command},
          {"module", file.provider.module},
          {"provider", provider_section(file)},
          {"config", ray_form(file)}};
}

// The program may stand before any cloud, and take that one's words.
bool external_asks_for_spot(const ordered_json& config) {
  for (const ProviderKind* kind : provider_kinds()) {
    if (kind != &kExternal && kind->asks_for_spot != nullptr && kind->asks_for_spot(config)) return true;
  }
  return false;
}

void read_external(const ConfigSection& top, ProviderConfig& out) {
  if (!out.module.empty() || !out.command.empty()) return;
  top.findings().error(*top.node().find("provider"), "an external provider needs a module or a command",
                       "add module: package.Class, or command: [/path/to/program]");
}

}  // namespace

constexpr ProviderKind kExternal{.type = "external",
                                 .supported_as = "external",
                                 .can_make_head = true,
                                 .offers_spot = true,
                                 .runs_program = true,
                                 .has_open_section = true,
                                 .keys = kExternalKeys,
                                 .compile = compile_external,
                                 .asks_for_spot = external_asks_for_spot,
                                 .read = read_external};

}  // namespace rubato::clouds
