// What a person has configured for AWS: variables and the files in ~/.aws, read as AWS's own tools read them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rest/environment.h"
#include "rest/ini.h"
#include "rest/retry.h"
#include "rest/url.h"
#include "world/files.h"
#include "world/network.h"

namespace rubato::aws {

using rest::Environment;
using rest::home_of;
using rest::Sourced;
using rest::variable;

// What the caller knows before anything is read.
struct Settings {
  Environment env;
  std::string profile;  // given by name: then credentials in variables do not count
  std::string region;   // given by name
};

// Both files as one: a profile's keys from `credentials` count before those from `config`.
class Profiles {
 public:
  // AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE, or ~/.aws. Files that are not there are empty.
  Profiles(Files& files, const Environment& env);

  bool has(std::string_view profile) const;
  std::optional<Sourced> find(std::string_view profile, std::string_view key) const;
  std::string value(std::string_view profile, std::string_view key) const;  // empty: none
  // Keys of the static credentials, which must come from one file.
  std::optional<Sourced> find_in_credentials(std::string_view profile, std::string_view key) const;
  std::optional<Sourced> find_in_config(std::string_view profile, std::string_view key) const;
  // Of [sso-session NAME] and [services NAME].
  std::optional<Sourced> find_in_section(std::string_view section, std::string_view key) const;
  const std::string& config_path() const { return config_.path(); }
  const std::string& credentials_path() const { return credentials_.path(); }

 private:
  rest::IniFile config_, credentials_;
};

// --profile, AWS_PROFILE, AWS_DEFAULT_PROFILE, else "default".
Sourced profile_of(const Settings& settings);

// --region, AWS_REGION, AWS_DEFAULT_REGION, the profile's. nullopt: only the instance's metadata may know.
std::optional<Sourced> region_of(const Settings& settings, const Profiles& profiles, std::string_view profile);

// Where a service is asked when not at AWS itself: AWS_ENDPOINT_URL_EC2, AWS_ENDPOINT_URL, the profile's `services`
// section, its endpoint_url; in that order. `service` is "ec2". Throws a usage Error for what is no URL.
std::optional<Sourced> endpoint_of(const Settings& settings, const Profiles& profiles, std::string_view profile,
                                   std::string_view service);

// The variable that names a service's endpoint: "AWS_ENDPOINT_URL_EC2".
std::string endpoint_variable(std::string_view service);

// AWS_CA_BUNDLE, or the profile's ca_bundle; empty: the system's roots.
std::string ca_bundle_of(const Settings& settings, const Profiles& profiles, std::string_view profile);

// AWS_MAX_ATTEMPTS, or the profile's max_attempts. Throws a usage Error for what is no number.
rest::CallRules call_rules_of(const Settings& settings, const Profiles& profiles, std::string_view profile);

}  // namespace rubato::aws
