#include "clouds/gcp/gcp_login.h"

#include <fmt/format.h>

#include <algorithm>

#include "gcp/identity.h"
#include "rest/cloud_error.h"

namespace rubato::clouds {
namespace {

constexpr const char* kLogin = "compute.instances.osLogin";
constexpr const char* kAdminLogin = "compute.instances.osAdminLogin";

// What the file names; one that `up` has made goes with its keys.
std::vector<std::string> accounts_of_head(const ClusterFile& file) {
  const auto head = file.types.find(file.head_type);
  if (head == file.types.end()) return {};
  std::vector<std::string> emails;
  const nlohmann::json config(head->second.node_config);
  for (const nlohmann::json& one : config.value("serviceAccounts", nlohmann::json::array())) {
    if (one.is_object() && one.contains("email") && one["email"].is_string()) emails.push_back(one["email"]);
  }
  return emails;
}

}  // namespace

std::string login_comment(const GcpConfig& config) {
  return fmt::format("rubato-{}-{}-{}", config.project, config.region, config.cluster);
}

bool any_uses_login(const ClusterFile& file, bool of_project) {
  return std::ranges::any_of(file.types, [&](const auto& one) {
    return uses_login(nlohmann::json(one.second.node_config), of_project);
  });
}

Task<std::string> check_login_permission(gcp::Client& client, GcpConfig config) {
  std::vector<std::string> wanted = {kLogin, kAdminLogin};
  const std::vector<std::string> missing = co_await gcp::missing_permissions(client, std::move(wanted));
  const auto lacks = [&](const char* one) { return std::ranges::find(missing, one) != missing.end(); };
  const std::string bind =
      fmt::format("gcloud projects add-iam-policy-binding {} --member=user:YOU --role=", config.project);
  if (lacks(kAdminLogin) && lacks(kLogin)) {
    throw Error(ErrorCode::kAuth,
                fmt::format("the machines have OS Login switched on, and you may not log in to those of '{}'",
                            config.project),
                config.provider_where, "let an owner run: " + bind + "roles/compute.osAdminLogin");
  }
  if (!lacks(kAdminLogin)) co_return "";
  co_return fmt::format("note: OS Login lets you in without sudo: {}roles/compute.osAdminLogin gives it", bind);
}

Task<void> remove_login(gcp::Client& client, GcpConfig config, const ClusterFile& file, bool used,
                        RemovedSurroundings& out) {
  bool of_project = false;
  try {
    of_project = co_await gcp::project_uses_login(client);
  } catch (const rest::CloudError& error) {
    if (!gcp::is_unknown_call(error) && error.code != ErrorCode::kAuth) throw;
  }
  if (!used && !any_uses_login(file, of_project)) co_return;
  for (const std::string& head : accounts_of_head(file)) {
    out.kept.push_back(fmt::format("the head's SSH key in OS Login of {}, an account of yours", head));
  }
  const std::string account = co_await gcp::login_account(client);
  if (!file.auth.ssh_private_key.empty() || !file.auth.ssh_public_key.empty()) {
    out.kept.push_back(
        fmt::format("the SSH key in OS Login of {}: it is your own, and other clusters may need it", account));
    co_return;
  }
  const size_t removed = co_await gcp::remove_login_keys(client, account, login_comment(config));
  if (removed > 0) out.removed.push_back("the SSH key in OS Login of " + account);
}

}  // namespace rubato::clouds
