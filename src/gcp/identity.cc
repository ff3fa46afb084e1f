#include "gcp/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "rest/json.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::CloudError;
using rest::list_at;
using rest::object_at;
using rest::text_at;

constexpr int kPolicyVersion = 3;      // with conditions
constexpr int kPolicyTries = 10;       // others write the same policy
constexpr Duration kKnownMax = 90s;    // until a new account is known everywhere
constexpr Duration kKnownPause = 3s;
constexpr Duration kConflictPause = 500ms;

Call call_of(const Service& service, std::string operation, std::string method, std::string path, json body) {
  Call call;
  call.service = service;
  call.operation = std::move(operation);
  call.method = std::move(method);
  call.path = std::move(path);
  call.body = std::move(body);
  return call;
}

std::string member_of(const std::string& email) { return "serviceAccount:" + email; }

bool same_binding(const json& binding, const Grant& grant) {
  const json condition = object_at(binding, "condition");
  return text_at(binding, "role") == grant.role && text_at(condition, "expression") == grant.condition;
}

// Whether the policy was changed.
bool add_grant(json& policy, const Grant& grant) {
  json& bindings = policy["bindings"];
  if (!bindings.is_array()) bindings = json::array();
  for (json& one : bindings) {
    if (!same_binding(one, grant)) continue;
    json& members = one["members"];
    if (std::ranges::find(members, json(member_of(grant.email))) != members.end()) return false;
    members.push_back(member_of(grant.email));
    return true;
  }
  json binding = {{"role", grant.role}, {"members", {member_of(grant.email)}}};
  if (!grant.condition.empty()) binding["condition"] = {{"title", grant.title}, {"expression", grant.condition}};
  bindings.push_back(std::move(binding));
  return true;
}

bool remove_member(json& policy, const std::string& email) {
  bool changed = false;
  json kept = json::array();
  for (json one : list_at(policy, "bindings")) {
    json members = json::array();
    for (const json& member : list_at(one, "members")) {
      if (member != member_of(email)) members.push_back(member);
    }
    changed = changed || members.size() != list_at(one, "members").size();
    one["members"] = members;
    if (!members.empty()) kept.push_back(std::move(one));
  }
  policy["bindings"] = std::move(kept);
  return changed;
}

// Read, change, write, until nobody came between. `edit` returns whether there is something to write.
Task<bool> edit_policy(Client& client, Service service, std::string path, std::function<bool(json&)> edit) {
  World& world = client.world();
  const Instant deadline = world.clock.now() + kKnownMax;
  for (int tries = 1;; ++tries) {
    json asked = {{"options", {{"requestedPolicyVersion", kPolicyVersion}}}};
    if (service.name == kIam.name) asked = json();  // an account's policy is asked for without a body
    Call read = call_of(service, "getIamPolicy", "POST", path + ":getIamPolicy", std::move(asked));
    json policy = co_await client.call(std::move(read));
    if (!edit(policy)) co_return false;
    policy["version"] = kPolicyVersion;
    const json body = {{"policy", policy}};
    Duration pause = kConflictPause;
    try {
      Call write = call_of(service, "setIamPolicy", "POST", path + ":setIamPolicy", body);
      co_await client.call(std::move(write));
      co_return true;
    } catch (const CloudError& error) {
      // 400: a new account is not known there yet.
      const bool unknown = error.status == 400 && world.clock.now() < deadline;
      const bool conflict = error.code == ErrorCode::kConflict && tries < kPolicyTries;
      if (!unknown && !conflict) throw;
      if (unknown) pause = kKnownPause;
    }
    co_await Sleep(world.clock.loop(), world.clock.now() + pause);
  }
}

}  // namespace

Task<Project> get_project(Client& client) {
  Call call = call_of(kProjects, "projects.get", "GET", "/v1/projects/" + client.project(), json());
  const json document = co_await client.call(std::move(call));
  Project out;
  out.id = text_at(document, "projectId");
  out.number = text_at(document, "projectNumber");
  out.state = text_at(document, "lifecycleState");
  co_return out;
}

Task<std::vector<std::string>> missing_permissions(Client& client, std::vector<std::string> permissions) {
  const json body = {{"permissions", permissions}};
  Call call = call_of(kProjects, "projects.testIamPermissions", "POST",
                      fmt::format("/v1/projects/{}:testIamPermissions", client.project()), body);
  const json document = co_await client.call(std::move(call));
  for (const json& one : list_at(document, "permissions")) {
    if (one.is_string()) std::erase(permissions, one.get<std::string>());
  }
  co_return permissions;
}

Task<std::string> ensure_role(Client& client, std::string id, std::string title, std::vector<std::string> permissions) {
  const std::string name = fmt::format("projects/{}/roles/{}", client.project(), id);
  std::ranges::sort(permissions);
  const json wanted = {{"title", title}, {"includedPermissions", permissions}, {"stage", "GA"}};
  std::optional<json> found;
  try {
    Call get = call_of(kIam, "roles.get", "GET", "/v1/" + name, json());
    found = co_await client.call(std::move(get));
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kNotFound) throw;
  }
  if (!found) {
    const json body = {{"roleId", id}, {"role", wanted}};
    Call create = call_of(kIam, "roles.create", "POST", fmt::format("/v1/projects/{}/roles", client.project()), body);
    try {
      co_await client.call(std::move(create));
    } catch (const CloudError& error) {
      if (error.code != ErrorCode::kConflict) throw;  // somebody else did it meanwhile, or we, and were not told
    }
    co_return name;
  }
  if (rest::flag_at(*found, "deleted")) {
    Call undelete = call_of(kIam, "roles.undelete", "POST", "/v1/" + name + ":undelete", json::object());
    co_await client.call(std::move(undelete));
  }
  std::vector<std::string> has;
  for (const json& each : list_at(*found, "includedPermissions")) {
    if (each.is_string()) has.push_back(each.get<std::string>());
  }
  std::ranges::sort(has);
  if (has != permissions) {
    Call patch = call_of(kIam, "roles.patch", "PATCH", "/v1/" + name, wanted);
    patch.query.emplace_back("updateMask", "includedPermissions,title,stage");
    co_await client.call(std::move(patch));
  }
  co_return name;
}

std::string email_of(const std::string& name, const std::string& project) {
  return fmt::format("{}@{}.iam.gserviceaccount.com", name, project);
}

Task<bool> has_service_account(Client& client, std::string email) {
  try {
    Call get = call_of(kIam, "serviceAccounts.get", "GET",
                       fmt::format("/v1/projects/{}/serviceAccounts/{}", client.project(), email), json());
    co_await client.call(std::move(get));
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kNotFound) throw;
    co_return false;
  }
  co_return true;
}

Task<std::string> ensure_service_account(Client& client, ServiceAccount account, bool& made) {
  const std::string email = email_of(account.name, client.project());
  const std::string all = fmt::format("/v1/projects/{}/serviceAccounts", client.project());
  made = false;
  const bool found = co_await has_service_account(client, email);
  if (found) co_return email;
  const json body = {
      {"accountId", account.name},
      {"serviceAccount", {{"displayName", account.title}, {"description", account.description}}}};
  try {
    Call create = call_of(kIam, "serviceAccounts.create", "POST", all, body);
    co_await client.call(std::move(create));
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kConflict) throw;  // somebody else did it meanwhile
  }
  made = true;
  co_return email;
}

Task<bool> delete_service_account(Client& client, std::string email) {
  try {
    Call call = call_of(kIam, "serviceAccounts.delete", "DELETE",
                        fmt::format("/v1/projects/{}/serviceAccounts/{}", client.project(), email), json());
    co_await client.call(std::move(call));
  } catch (const CloudError& error) {
    if (error.code != ErrorCode::kNotFound) throw;
    co_return false;
  }
  co_return true;
}

Task<void> grant_in_project(Client& client, Grant grant) {
  std::function<bool(json&)> edit = [grant](json& policy) { return add_grant(policy, grant); };
  co_await edit_policy(client, kProjects, "/v1/projects/" + client.project(), std::move(edit));
}

Task<void> grant_use_of_account(Client& client, std::string account, std::string email) {
  Grant grant;
  grant.role = "roles/iam.serviceAccountUser";
  grant.email = email;
  std::function<bool(json&)> edit = [grant](json& policy) { return add_grant(policy, grant); };
  const std::string path = fmt::format("/v1/projects/{}/serviceAccounts/{}", client.project(), account);
  co_await edit_policy(client, kIam, path, std::move(edit));
}

Task<bool> revoke_in_project(Client& client, std::string email) {
  std::function<bool(json&)> edit = [email](json& policy) { return remove_member(policy, email); };
  co_return co_await edit_policy(client, kProjects, "/v1/projects/" + client.project(), std::move(edit));
}

}  // namespace rubato::gcp
