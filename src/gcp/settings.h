// What a person has configured for Google Cloud: variables, and gcloud's files in ~/.config/gcloud.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "rest/environment.h"
#include "rest/ini.h"
#include "rest/url.h"
#include "world/files.h"

namespace rubato::gcp {

using rest::Environment;
using rest::home_of;
using rest::Sourced;
using rest::variable;

struct Service {
  std::string_view name;     // in gcloud's variables and files: CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE
  std::string_view host;     // Google's own
  std::string_view version;  // what gcloud's overrides have at their end: "/compute/v1"
};
inline constexpr Service kCompute{"compute", "https://compute.googleapis.com", "/compute/v1"};
inline constexpr Service kIam{"iam", "https://iam.googleapis.com", ""};
inline constexpr Service kIamCredentials{"iamcredentials", "https://iamcredentials.googleapis.com", ""};
inline constexpr Service kProjects{"cloudresourcemanager", "https://cloudresourcemanager.googleapis.com", ""};
inline constexpr Service kOauth{"oauth2", "https://oauth2.googleapis.com", ""};
inline constexpr Service kOsLogin{"oslogin", "https://oslogin.googleapis.com", ""};
inline constexpr Service kStorage{"storage", "https://storage.googleapis.com", "/storage/v1"};

// Credentials that a cluster file has for its own account: provider.gcp_credentials.
struct GivenCredentials {
  std::string type;   // "credentials_token", "service_account"
  std::string text;   // the token or the account's file, as text
  std::string where;  // file:line:column
};

struct Settings {
  Environment env;
  std::string endpoint;  // for all services, where no variable says otherwise; empty: Google's
  std::optional<GivenCredentials> given;
};

// CLOUDSDK_CONFIG, or ~/.config/gcloud.
std::string gcloud_folder(const Environment& env);

// gcloud's active configuration: CLOUDSDK_ACTIVE_CONFIG_NAME, `active_config`, else "default". Empty where there is
// none.
rest::IniFile read_configuration(Files& files, const Environment& env);

// What lets another machine ask the same servers, by the names of variables; RUBATO_GCP_ENDPOINT is not among them.
std::map<std::string, std::string> endpoint_variables(const Environment& env, const rest::IniFile& configuration);

// Whether the service is an emulator (STORAGE_EMULATOR_HOST), which asks nobody who they are.
bool is_emulated(const Environment& env, const Service& service);

// Where a service is asked: gcloud's own CLOUDSDK_API_ENDPOINT_OVERRIDES_NAME (for storage STORAGE_EMULATOR_HOST too),
// RUBATO_GCP_ENDPOINT for all of them, [api_endpoint_overrides] of gcloud's configuration, settings.endpoint; else
// Google itself. Throws a usage Error for what is no URL.
rest::Url endpoint_of(const Settings& settings, const rest::IniFile& configuration, const Service& service);

}  // namespace rubato::gcp
