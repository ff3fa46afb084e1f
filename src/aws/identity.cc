#include "aws/identity.h"

#include <fmt/format.h>

namespace rubato::aws {
namespace {

constexpr std::string_view kTrustOfEc2 =
    R"({"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},)"
    R"("Action":"sts:AssumeRole"}]})";
constexpr std::string_view kPolicyName = "rubato";

// Whether the call was done; false: the cloud refused it for a reason that begins so, which the caller foresees.
// (IAM says NoSuchEntity; others NoSuchEntityException.)
Task<bool> query_unless(Client& client, std::string action, Params params, std::string foreseen) {
  try {
    co_await client.query(kIam, std::move(action), std::move(params));
  } catch (const rest::CloudError& error) {
    if (!error.reason.starts_with(foreseen)) throw;
    co_return false;
  }
  co_return true;
}

void add_member_tags(Params& params, const Tags& tags) {
  for (size_t i = 0; i < tags.size(); ++i) {
    params.emplace_back(fmt::format("Tags.member.{}.Key", i + 1), tags[i].first);
    params.emplace_back(fmt::format("Tags.member.{}.Value", i + 1), tags[i].second);
  }
}

}  // namespace

Task<CallerIdentity> get_caller_identity(Client& client) {
  const rest::XmlNode root = co_await client.query(kSts, "GetCallerIdentity", Params());
  CallerIdentity out;
  out.account = root.text_at("GetCallerIdentityResult/Account");
  out.arn = root.text_at("GetCallerIdentityResult/Arn");
  out.user_id = root.text_at("GetCallerIdentityResult/UserId");
  co_return out;
}

Task<std::string> ensure_instance_role(Client& client, InstanceRole role) {
  Params create{{"RoleName", role.name}, {"AssumeRolePolicyDocument", std::string(kTrustOfEc2)}};
  add_member_tags(create, role.tags);
  co_await query_unless(client, "CreateRole", std::move(create), "EntityAlreadyExists");
  if (!role.policy.empty()) {
    Params put{{"RoleName", role.name}, {"PolicyName", std::string(kPolicyName)}, {"PolicyDocument", role.policy}};
    co_await client.query(kIam, "PutRolePolicy", std::move(put));
  }
  Params profile{{"InstanceProfileName", role.name}};
  add_member_tags(profile, role.tags);
  co_await query_unless(client, "CreateInstanceProfile", std::move(profile), "EntityAlreadyExists");
  Params get{{"InstanceProfileName", role.name}};
  const rest::XmlNode root = co_await client.query(kIam, "GetInstanceProfile", std::move(get));
  const rest::XmlNode* const found = root.at("GetInstanceProfileResult/InstanceProfile");
  if (found != nullptr && found->list("Roles", "member").empty()) {
    Params join{{"InstanceProfileName", role.name}, {"RoleName", role.name}};
    co_await query_unless(client, "AddRoleToInstanceProfile", std::move(join), "LimitExceeded");
  }
  const std::string arn(found == nullptr ? "" : found->text_at("Arn"));
  co_return arn.empty() ? role.name : arn;
}

Task<std::vector<std::string>> roles_of_profile(Client& client, std::string name) {
  Params get{{"InstanceProfileName", std::move(name)}};
  const rest::XmlNode root = co_await client.query(kIam, "GetInstanceProfile", std::move(get));
  std::vector<std::string> out;
  for (const rest::XmlNode* one : root.list("GetInstanceProfileResult/InstanceProfile/Roles", "member")) {
    out.emplace_back(one->text_at("Arn"));
  }
  co_return out;
}

Task<bool> has_role(Client& client, std::string name) {
  Params get{{"RoleName", std::move(name)}};
  return query_unless(client, "GetRole", std::move(get), "NoSuchEntity");
}

Task<bool> has_instance_profile(Client& client, std::string name) {
  Params get{{"InstanceProfileName", std::move(name)}};
  return query_unless(client, "GetInstanceProfile", std::move(get), "NoSuchEntity");
}

Task<bool> remove_instance_role(Client& client, std::string name) {
  const std::string absent = "NoSuchEntity";
  Params leave{{"InstanceProfileName", name}, {"RoleName", name}};
  const bool left = co_await query_unless(client, "RemoveRoleFromInstanceProfile", std::move(leave), absent);
  Params profile{{"InstanceProfileName", name}};
  const bool profile_gone = co_await query_unless(client, "DeleteInstanceProfile", std::move(profile), absent);
  Params policy{{"RoleName", name}, {"PolicyName", std::string(kPolicyName)}};
  const bool policy_gone = co_await query_unless(client, "DeleteRolePolicy", std::move(policy), absent);
  Params role{{"RoleName", name}};
  const bool role_gone = co_await query_unless(client, "DeleteRole", std::move(role), absent);
  co_return left || profile_gone || policy_gone || role_gone;
}

}  // namespace rubato::aws
