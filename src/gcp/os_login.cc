#include "gcp/os_login.h"

#include <fmt/format.h>

#include "core/text.h"
#include "rest/json.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::CloudError;
using rest::list_at;
using rest::object_at;
using rest::text_at;

constexpr std::string_view kRoles =
    "you need roles/compute.osAdminLogin (or, without sudo, roles/compute.osLogin) in the project, and from another "
    "organisation roles/compute.osLoginExternalUser";

// "ssh-ed25519 AAAA comment"
struct KeyParts {
  std::string kind, blob, comment;
};
KeyParts parts_of(std::string_view text) {
  KeyParts out;
  std::string rest(trim(text));
  for (std::string* part : {&out.kind, &out.blob}) {
    const auto pair = split_once(rest, ' ');
    *part = pair ? std::string(pair->first) : rest;
    rest = pair ? std::string(trim(pair->second)) : "";
  }
  out.comment = rest;
  return out;
}

Call login_call(const Client& client, std::string operation, std::string method, std::string path) {
  Call call;
  call.service = kOsLogin;
  call.operation = std::move(operation);
  call.method = std::move(method);
  call.path = "/v1/users/" + std::move(path);
  if (call.method != "DELETE") call.query.emplace_back("projectId", client.project());
  return call;
}

LoginProfile profile_of(const json& document, const std::string& project) {
  LoginProfile out;
  const json accounts = list_at(document, "posixAccounts");
  bool is_own = false;
  for (const json& one : accounts) {
    const std::string user = text_at(one, "username"), system = text_at(one, "operatingSystemType");
    if (user.empty() || (!system.empty() && system != "LINUX")) continue;
    // The project's own before the primary one, that before others.
    const bool of_project = text_at(one, "accountId") == project;
    const auto primary = one.find("primary");
    const bool is_primary = primary != one.end() && primary->is_boolean() && primary->get<bool>();
    if (out.user.empty() || of_project || (is_primary && !is_own)) out.user = user;
    is_own = is_own || of_project;
  }
  const json keys = object_at(document, "sshPublicKeys");
  for (const auto& [fingerprint, one] : keys.items()) {
    if (one.is_object()) out.keys[fingerprint] = text_at(one, "key");
  }
  return out;
}

// With the roles, which Google's own message does not name.
CloudError with_roles(CloudError error) {
  if (error.code == ErrorCode::kAuth && error.reason != "SERVICE_DISABLED" && error.reason != "accessNotConfigured") {
    error.hint = kRoles;
  }
  return error;
}

}  // namespace

bool is_on(std::string_view value) {
  const std::string text = to_lower(trim(value));
  return text == "true" || text == "yes" || text == "y" || text == "1";
}

Task<bool> project_uses_login(Client& client) {
  Call call;
  call.operation = "projects.get";
  call.path = client.compute_path();
  const json project = co_await client.call(std::move(call));
  const json metadata = object_at(project, "commonInstanceMetadata");
  const json items = list_at(metadata, "items");
  for (const json& one : items) {
    if (text_at(one, "key") == "enable-oslogin") co_return is_on(text_at(one, "value"));
  }
  co_return false;
}

Task<std::string> login_account(Client& client) {
  const AccessToken token = co_await client.credentials().get(client.world().clock.wall());
  if (!token.account.empty()) co_return token.account;
  Call call;
  call.service = kOauth;
  call.operation = "tokeninfo";
  call.path = "/tokeninfo";
  call.query.emplace_back("access_token", token.text);
  std::string email;
  try {
    const json document = co_await client.call(std::move(call));
    email = text_at(document, "email");
  } catch (const CloudError& error) {
    if (error.code == ErrorCode::kUnavailable) throw;
  }
  if (email.empty()) {
    throw Error(ErrorCode::kAuth, "the machines want OS Login, and Google does not tell whose credentials these are",
                token.origin, "run: gcloud auth application-default login, or use a service account");
  }
  co_return email;
}

Task<LoginProfile> login_profile(Client& client, std::string account) {
  Call call = login_call(client, "users.getLoginProfile", "GET", rest::percent_encode(account) + "/loginProfile");
  std::optional<CloudError> refused;
  try {
    const json document = co_await client.call(std::move(call));
    co_return profile_of(document, client.project());
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kNotFound) refused = with_roles(error);
  }
  if (refused) throw *refused;
  co_return LoginProfile();  // nobody has logged in yet
}

Task<std::string> ensure_login_key(Client& client, std::string account, std::string public_key, std::string comment) {
  const KeyParts wanted = parts_of(public_key);
  const LoginProfile before = co_await login_profile(client, account);
  for (const auto& [fingerprint, text] : before.keys) {
    if (parts_of(text).blob == wanted.blob && !before.user.empty()) co_return before.user;
  }
  Call call = login_call(client, "users.importSshPublicKey", "POST",
                         rest::percent_encode(account) + ":importSshPublicKey");
  call.body = {{"key", fmt::format("{} {} {}", wanted.kind, wanted.blob, comment)}};
  std::optional<CloudError> refused;
  LoginProfile now;
  try {
    const json document = co_await client.call(std::move(call));
    now = profile_of(object_at(document, "loginProfile"), client.project());
  } catch (const CloudError& error) {
    refused = with_roles(error);
  }
  if (refused) throw *refused;
  if (now.user.empty()) now = co_await login_profile(client, account);
  if (now.user.empty()) {
    throw Error(ErrorCode::kAuth, fmt::format("OS Login has no user for {}", account), client.project(),
                std::string(kRoles));
  }
  co_return now.user;
}

Task<size_t> remove_login_keys(Client& client, std::string account, std::string comment) {
  const LoginProfile profile = co_await login_profile(client, account);
  size_t removed = 0;
  for (const auto& [fingerprint, text] : profile.keys) {
    if (parts_of(text).comment != comment) continue;
    Call call = login_call(client, "users.sshPublicKeys.delete", "DELETE",
                           fmt::format("{}/sshPublicKeys/{}", rest::percent_encode(account),
                                       rest::percent_encode(fingerprint)));
    try {
      co_await client.call(std::move(call));
      ++removed;
    } catch (const CloudError& error) {
      if (error.code != ErrorCode::kNotFound) throw;
    }
  }
  co_return removed;
}

}  // namespace rubato::gcp
