#include "model/node_recipe.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/sha256.h"
#include "model/cluster_file.h"
#include "model/provider_kind.h"

namespace rubato {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

constexpr size_t kRecipeIdSize = 16;

Texts texts_in(const json& object, const char* key) { return object.value(key, Texts()); }

json container_json(const ContainerSpec& spec) {
  return {{"image", spec.container.image},
          {"name", spec.container.name},
          {"pull_before_run", spec.container.pull_before_run},
          {"run_options", spec.container.run_options},
          {"use_podman", spec.use_podman},
          {"detect_gpus", spec.detect_gpus},
          {"detect_shm_size", spec.detect_shm_size}};
}

ContainerSpec container_from_json(const json& object) {
  ContainerSpec out;
  out.container.image = object.value("image", "");
  out.container.name = object.value("name", "");
  out.container.pull_before_run = object.value("pull_before_run", true);
  out.container.run_options = texts_in(object, "run_options");
  out.use_podman = object.value("use_podman", false);
  out.detect_gpus = object.value("detect_gpus", true);
  out.detect_shm_size = object.value("detect_shm_size", true);
  return out;
}

}  // namespace

bool NodeRecipe::same_place(const NodeRecipe& other) const {
  if (cluster != other.cluster || ssh_user != other.ssh_user) return false;
  if (!container || !other.container) return !container && !other.container;
  return container->container.name == other.container->container.name &&
         container->use_podman == other.container->use_podman;
}

NodeRecipe node_recipe_of(const ClusterFile& file, const std::string& type, bool head) {
  NodeRecipe out;
  out.cluster = file.name;
  out.ssh_user = file.auth.ssh_user;
  out.ssh_port = file.auth.ssh_port;
  out.fresh_machine = !provider_kind(file.provider.type).has_own_machines;
  for (const auto& [there, here] : file.files.mounts) out.mounts.push_back(there);
  out.exclude = file.files.exclude;
  out.ignore_files = file.files.ignore_files;
  out.commands = commands_for(file, type, head);
  out.commands.start.replaced.clear();  // Ray's own; nobody runs them
  if (const auto container = container_for(file, type, head)) {
    ContainerSpec spec;
    spec.container = *container;
    spec.use_podman = file.docker.use_podman;
    spec.detect_gpus = !file.docker.disable_automatic_runtime_detection;
    spec.detect_shm_size = !file.docker.disable_shm_size_detection;
    out.container = std::move(spec);
  }
  return out;
}

json to_json(const NodeRecipe& recipe) {
  const NodeCommands& commands = recipe.commands;
  json out = {{"cluster", recipe.cluster},
              {"ssh_user", recipe.ssh_user},
              {"ssh_port", recipe.ssh_port},
              {"fresh_machine", recipe.fresh_machine},
              {"mounts", recipe.mounts},
              {"exclude", recipe.exclude},
              {"ignore_files", recipe.ignore_files},
              {"host_commands", commands.host},
              {"setup_commands", commands.setup},
              {"before_agent", commands.start.before},
              {"after_agent", commands.start.after},
              {"login_shells", commands.login_shells}};
  if (recipe.container) out["container"] = container_json(*recipe.container);
  return out;
}

NodeRecipe node_recipe_from_json(const json& object) {
  try {
    NodeRecipe out;
    out.cluster = object.at("cluster").get<std::string>();
    out.ssh_user = object.value("ssh_user", "");
    out.ssh_port = object.value("ssh_port", out.ssh_port);
    out.fresh_machine = object.value("fresh_machine", false);
    out.mounts = texts_in(object, "mounts");
    out.exclude = texts_in(object, "exclude");
    out.ignore_files = texts_in(object, "ignore_files");
    out.commands.host = texts_in(object, "host_commands");
    out.commands.setup = texts_in(object, "setup_commands");
    out.commands.start.before = texts_in(object, "before_agent");
    out.commands.start.after = texts_in(object, "after_agent");
    out.commands.login_shells = object.value("login_shells", true);
    if (object.contains("container")) out.container = container_from_json(object.at("container"));
    return out;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kUsage, fmt::format("this is no recipe of a node: {}", error.what()));
  }
}

std::string recipe_id(const NodeRecipe& recipe) {
  return sha256_hex(to_json(recipe).dump(-1, ' ', false, json::error_handler_t::replace)).substr(0, kRecipeIdSize);
}

}  // namespace rubato
