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

ExternalProgramSpec external_program_of(const Json& told, const ExternalSettings& settings) {
  ExternalProgramSpec spec;
  spec.env = settings.env;
  spec.cwd = settings.folder;
  const auto command = told.value("command", std::vector<std::string>());
  const std::string module = told.value("module", "");
  if (!command.empty()) {
    spec.name = shell_join(command);
    spec.argv = command;
    spec.argv.front() = program_path(spec.argv.front(), settings);
  } else if (!module.empty()) {
    spec.name = module;
    spec.argv = {settings.python, "-u", host_file(settings)};
  } else {
    throw Error(ErrorCode::kUsage, "an external provider needs a module or a command", "",
                "add module: package.Class, or command: [/path/to/program]");
  }
  spec.hello = Json{{"protocol", kExternalProtocol},
                    {"rubato", settings.version},
                    {"cluster", told.value("cluster", "")},
                    {"place", to_string(settings.place)},
                    {"folder", settings.folder},
                    {"state_folder", settings.state},
                    {"provider", told.value("provider", Json::object())},
                    {"config", told.value("config", Json::object())},
                    {"authorized_keys", settings.authorized_keys},
                    {"carry", settings.carry}};
  if (settings.look) spec.hello["look"] = true;
  return spec;
}

void prepare_external(Files& files, const Json& told, const ExternalSettings& settings) {
  files.make_folders(settings.state);
  files.set_mode(settings.state, 0700);
  if (!told.value("command", Json::array()).empty()) return;
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
