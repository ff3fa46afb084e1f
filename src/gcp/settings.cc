#include "gcp/settings.h"

#include <fmt/format.h>

#include "core/text.h"

namespace rubato::gcp {
namespace {

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

constexpr const char* kEmulator = "STORAGE_EMULATOR_HOST";

std::string override_variable(const Service& service) {
  return "CLOUDSDK_API_ENDPOINT_OVERRIDES_" + upper(service.name);
}

std::optional<Sourced> from_configuration(const rest::IniFile& configuration, const Service& service) {
  const rest::IniFile::Section* const overrides = configuration.find("api_endpoint_overrides");
  if (overrides == nullptr) return std::nullopt;
  const auto entry = overrides->find(service.name);
  if (entry == overrides->end()) return std::nullopt;
  return Sourced{entry->second.text, fmt::format("{}:{}", configuration.path(), entry->second.line)};
}

std::optional<Sourced> from_variables(const Environment& env, const Service& service) {
  std::vector<std::string> names = {override_variable(service)};
  if (service.name == kStorage.name) names.emplace_back(kEmulator);
  names.emplace_back("RUBATO_GCP_ENDPOINT");
  for (const std::string& name : names) {
    const std::string value = variable(env, name);
    if (!value.empty()) return Sourced{value, name};
  }
  return std::nullopt;
}

}  // namespace

std::string gcloud_folder(const Environment& env) {
  const std::string named = variable(env, "CLOUDSDK_CONFIG");
  return named.empty() ? home_of(env) + "/.config/gcloud" : named;
}

rest::IniFile read_configuration(Files& files, const Environment& env) {
  const std::string folder = gcloud_folder(env);
  std::string name = variable(env, "CLOUDSDK_ACTIVE_CONFIG_NAME");
  if (name.empty()) name = trim(files.read(folder + "/active_config").value_or(""));
  if (name.empty() || name.find('/') != std::string::npos) name = "default";
  const std::string path = fmt::format("{}/configurations/config_{}", folder, name);
  return rest::IniFile(files.read(path).value_or(""), path);
}

std::map<std::string, std::string> endpoint_variables(const Environment& env, const rest::IniFile& configuration) {
  std::map<std::string, std::string> out;
  for (const Service& service : {kCompute, kIam, kIamCredentials, kProjects, kOauth, kOsLogin, kStorage}) {
    const std::string name = override_variable(service), own = variable(env, name);
    if (!own.empty()) {
      out[name] = own;
    } else if (const auto found = from_configuration(configuration, service)) {
      out[name] = found->text;
    }
  }
  if (const std::string emulator = variable(env, kEmulator); !emulator.empty()) out[kEmulator] = emulator;
  return out;
}

bool is_emulated(const Environment& env, const Service& service) {
  return service.name == kStorage.name && variable(env, override_variable(service)).empty() &&
         !variable(env, kEmulator).empty();
}

rest::Url endpoint_of(const Settings& settings, const rest::IniFile& configuration, const Service& service) {
  auto found = from_variables(settings.env, service);
  if (!found) found = from_configuration(configuration, service);
  if (!found && !settings.endpoint.empty()) found = Sourced{settings.endpoint, "the head's surroundings"};
  if (!found) found = Sourced{std::string(service.host), "the default"};
  std::string text = found->text;
  if (text.find("://") == std::string::npos) text = "http://" + text;  // STORAGE_EMULATOR_HOST may be host:port
  rest::Url url = rest::parse_url(text, found->origin);
  while (url.path.ends_with('/')) url.path.pop_back();
  if (!service.version.empty() && url.path.ends_with(service.version)) {
    url.path.resize(url.path.size() - service.version.size());
  }
  return url;
}

}  // namespace rubato::gcp
