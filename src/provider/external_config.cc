#include "provider/external_config.h"

#include <fmt/format.h>

#include <set>

#include "core/text.h"
#include "model/provider_kind.h"

namespace rubato::embedded {
extern const char node_provider_host[];
}

namespace rubato::provider {

namespace {

using Json = nlohmann::json;

constexpr const char* kHostFile = "node_provider_host.py";

std::string host_file(const ExternalSettings& settings) { return settings.state + "/" + kHostFile; }

std::string home_of(const std::vector<std::string>& env) {
  for (const std::string& entry : env) {
    if (const auto home = strip_prefix(entry, "HOME=")) return std::string(*home);
  }
  return {};
}

// A path in a command is meant from the file's folder, whatever folder rubato was called in.
std::string program_path(const std::string& word, const ExternalSettings& settings) {
  if (word.starts_with("~/")) {
    const std::string home = home_of(settings.env);
    return home.empty() ? word : home + word.substr(1);
  }
  if (word.starts_with('/') || word.find('/') == std::string::npos || settings.folder.empty()) return word;
  return settings.folder + "/" + std::string(strip_prefix(word, "./").value_or(word));
}

// Inside the folder, not above it or elsewhere.
bool stays_inside(std::string_view path) {
  if (path.empty() || path.starts_with('/') || path.starts_with('~') || path.starts_with('-')) return false;
  for (const std::string_view part : split(path, '/')) {
    if (part == "..") return false;
  }
  return true;
}

Json provider_section(const ClusterFile& file) {
  Json out = file.provider.options;
  out["type"] = file.provider.type;
  return out;
}

Json node_type(const NodeTypeConfig& type) {
  Json resources = to_json(type.resources.amounts);
  for (const std::string& name : type.resources.zeros) resources[name] = 0;
  return Json{{"node_config", type.node_config},
              {"resources", std::move(resources)},
              {"min_workers", type.min_workers},
              {"max_workers", type.max_workers},
              {"labels", type.labels}};
}

void put_words(Json& out, const char* key, const std::string& value) {
  if (!value.empty()) out[key] = value;
}

}  // namespace

std::string_view to_string(ExternalPlace place) {
  switch (place) {
    case ExternalPlace::kClient:
      return "client";
    case ExternalPlace::kHead:
      return "head";
  }
  CHECK(false);
  return {};
}

bool is_external(const ClusterFile& file) { return provider_kind(file.provider.type).runs_program; }

Json ray_form(const ClusterFile& file) {
  Json out{
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
      {"head_start_ray_commands", Json::array()},
      {"worker_start_ray_commands", Json::array()}};
  Json& auth = out["auth"] = Json::object();
  put_words(auth, "ssh_user", file.auth.ssh_user);
  put_words(auth, "ssh_private_key", file.auth.ssh_private_key);
  put_words(auth, "ssh_public_key", file.auth.ssh_public_key);
  put_words(auth, "ssh_proxy_command", file.auth.ssh_proxy_command);
  Json& docker = out["docker"] = Json::object();
  put_words(docker, "image", file.docker.image);
  put_words(docker, "head_image", file.docker.head_image);
  put_words(docker, "worker_image", file.docker.worker_image);
  if (file.docker.enabled()) docker["container_name"] = file.docker.container_name;
  Json& types = out["available_node_types"] = Json::object();
  for (const auto& [name, type] : file.types) types[name] = node_type(type);
  return out;
}

ExternalProgramSpec external_program_of(const ClusterFile& file, const ExternalSettings& settings) {
  ExternalProgramSpec spec;
  spec.env = settings.env;
  spec.cwd = settings.folder;
  if (!file.provider.command.empty()) {
    spec.name = shell_join(file.provider.command);
    spec.argv = file.provider.command;
    spec.argv.front() = program_path(spec.argv.front(), settings);
  } else if (!file.provider.module.empty()) {
    spec.name = file.provider.module;
    spec.argv = {settings.python, "-u", host_file(settings)};
  } else {
    throw Error(ErrorCode::kUsage, "an external provider needs a module or a command", file.place("provider"),
                "add module: package.Class, or command: [/path/to/program]");
  }
  spec.hello = Json{{"protocol", kExternalProtocol},
                    {"rubato", settings.version},
                    {"cluster", file.name},
                    {"place", to_string(settings.place)},
                    {"folder", settings.folder},
                    {"state_folder", settings.state},
                    {"provider", provider_section(file)},
                    {"config", ray_form(file)},
                    {"authorized_keys", settings.authorized_keys},
                    {"carry", settings.carry}};
  if (settings.look) spec.hello["look"] = true;
  return spec;
}

void prepare_external(Files& files, const ClusterFile& file, const ExternalSettings& settings) {
  files.make_folders(settings.state);
  files.set_mode(settings.state, 0700);
  if (!file.provider.command.empty()) return;
  const std::string_view text = embedded::node_provider_host;
  if (files.read(host_file(settings)) != text) files.write_atomically(host_file(settings), text);
}

std::vector<std::string> external_files(Files& files, const ClusterFile& file, const std::string& folder) {
  std::set<std::string> out;
  const auto look = [&](std::string_view path) {
    path = strip_prefix(path, "./").value_or(path);
    if (stays_inside(path) && files.exists(folder + "/" + std::string(path))) out.emplace(path);
  };
  for (size_t i = 0; i < file.provider.command.size(); ++i) {
    const std::string& word = file.provider.command[i];
    // The first word without a slash is looked for in PATH, not in the folder.
    if (i > 0 || word.find('/') != std::string::npos) look(word);
  }
  if (file.provider.command.empty() && !file.provider.module.empty()) {
    const std::string top(split(file.provider.module, '.').front());
    look(top);
    look(top + ".py");
  }
  return {out.begin(), out.end()};
}

}  // namespace rubato::provider
