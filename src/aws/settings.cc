#include "aws/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/text.h"

namespace rubato::aws {
namespace {

rest::IniFile read_ini(Files& files, const Environment& env, std::string_view name, const std::string& fallback) {
  std::string path = variable(env, name);
  if (path.empty()) path = home_of(env) + fallback;
  if (path.starts_with("~/")) path = home_of(env) + path.substr(1);
  const auto text = files.read(path);
  return rest::IniFile(text.value_or(""), path);
}

// config calls a profile [profile NAME], and its default one either way.
std::string config_section(std::string_view profile) {
  return profile == "default" ? "default" : "profile " + std::string(profile);
}

std::optional<Sourced> sourced(const rest::IniFile& file, std::string_view section, std::string_view key,
                               const std::string& owner) {
  const rest::IniFile::Section* const found = file.find(section);
  if (found == nullptr) return std::nullopt;
  const auto entry = found->find(key);
  if (entry == found->end() || entry->second.text.empty()) return std::nullopt;
  return Sourced{entry->second.text, fmt::format("{} ({}:{})", owner, file.path(), entry->second.line)};
}

std::string owner_of(std::string_view profile) { return fmt::format("profile '{}'", profile); }

}  // namespace

Profiles::Profiles(Files& files, const Environment& env)
    : config_(read_ini(files, env, "AWS_CONFIG_FILE", "/.aws/config")),
      credentials_(read_ini(files, env, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials")) {}

bool Profiles::has(std::string_view profile) const {
  return credentials_.find(profile) != nullptr || config_.find(config_section(profile)) != nullptr ||
         (profile == "default" && config_.find("profile default") != nullptr);
}

std::optional<Sourced> Profiles::find_in_credentials(std::string_view profile, std::string_view key) const {
  return sourced(credentials_, profile, key, owner_of(profile));
}

std::optional<Sourced> Profiles::find_in_config(std::string_view profile, std::string_view key) const {
  if (profile == "default") {
    if (auto found = sourced(config_, "profile default", key, owner_of(profile))) return found;
  }
  return sourced(config_, config_section(profile), key, owner_of(profile));
}

std::optional<Sourced> Profiles::find(std::string_view profile, std::string_view key) const {
  if (auto found = find_in_credentials(profile, key)) return found;
  return find_in_config(profile, key);
}

std::string Profiles::value(std::string_view profile, std::string_view key) const {
  const auto found = find(profile, key);
  return found ? found->text : "";
}

std::optional<Sourced> Profiles::find_in_section(std::string_view section, std::string_view key) const {
  return sourced(config_, section, key, fmt::format("[{}]", section));
}

Sourced profile_of(const Settings& settings) {
  if (!settings.profile.empty()) return {settings.profile, "--profile"};
  for (const char* name : {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}) {
    const std::string value = variable(settings.env, name);
    if (!value.empty()) return {value, name};
  }
  return {"default", "the default"};
}

std::optional<Sourced> region_of(const Settings& settings, const Profiles& profiles, std::string_view profile) {
  if (!settings.region.empty()) return Sourced{settings.region, "--region"};
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
    const std::string value = variable(settings.env, name);
    if (!value.empty()) return Sourced{value, name};
  }
  return profiles.find(profile, "region");
}

std::string endpoint_variable(std::string_view service) {
  std::string upper(service);
  for (char& c : upper) c = c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return "AWS_ENDPOINT_URL_" + upper;
}

std::optional<Sourced> endpoint_of(const Settings& settings, const Profiles& profiles, std::string_view profile,
                                   std::string_view service) {
  if (to_lower(variable(settings.env, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")) == "true") return std::nullopt;
  for (const std::string& name : {endpoint_variable(service), std::string("AWS_ENDPOINT_URL")}) {
    const std::string value = variable(settings.env, name);
    if (!value.empty()) return Sourced{value, name};
  }
  if (to_lower(profiles.value(profile, "ignore_configured_endpoint_urls")) == "true") return std::nullopt;
  const std::string services = profiles.value(profile, "services");
  if (!services.empty()) {
    std::string key = to_lower(service) + ".endpoint_url";
    std::ranges::replace(key, '-', '_');
    if (auto found = profiles.find_in_section("services " + services, key)) return found;
  }
  return profiles.find(profile, "endpoint_url");
}

std::string ca_bundle_of(const Settings& settings, const Profiles& profiles, std::string_view profile) {
  const std::string named = variable(settings.env, "AWS_CA_BUNDLE");
  return named.empty() ? profiles.value(profile, "ca_bundle") : named;
}

rest::CallRules call_rules_of(const Settings& settings, const Profiles& profiles, std::string_view profile) {
  rest::CallRules rules;
  Sourced given{variable(settings.env, "AWS_MAX_ATTEMPTS"), "AWS_MAX_ATTEMPTS"};
  if (given.text.empty()) {
    if (const auto found = profiles.find(profile, "max_attempts")) given = *found;
  }
  if (given.text.empty()) return rules;
  int wanted = 0;
  const auto [end, error] = std::from_chars(given.text.data(), given.text.data() + given.text.size(), wanted);
  if (error != std::errc() || end != given.text.data() + given.text.size() || wanted < 1) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is no number of attempts", given.text), given.origin,
                "write a number of at least 1");
  }
  rules.attempts_max = std::min(wanted, 100);
  return rules;
}

}  // namespace rubato::aws
