#include "aws/account.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "rest/cloud_error.h"

namespace rubato::aws {
namespace {

// The vCPU quotas of EC2, by the letters that instance types begin with. From AWS's list of service quotas.
struct VcpuQuota {
  std::string_view letters;  // "g vt"
  std::string_view on_demand, spot;
  std::string_view families;  // in the quota's name
};
constexpr std::array<VcpuQuota, 5> kVcpuQuotas{{
    {"a c d h i im is m r t z", "L-1216C47A", "L-34B43A08", "Standard (A, C, D, H, I, M, R, T, Z)"},
    {"g vt", "L-DB2E81BA", "L-3819A6DF", "G and VT"},
    {"p", "L-417A185B", "L-7212CCBC", "P"},
    {"x", "L-7295265B", "L-E3A00192", "X"},
    {"inf", "L-1945791B", "L-B5D1601B", "Inf"},
}};

const VcpuQuota* quota_of(std::string_view type) {
  const size_t end = type.find_first_not_of("abcdefghijklmnopqrstuvwxyz");
  const std::string_view letters = type.substr(0, end);
  for (const VcpuQuota& one : kVcpuQuotas) {
    for (const std::string_view word : split(one.letters, ' ')) {
      if (letters == word) return &one;
    }
  }
  return nullptr;
}

}  // namespace

Task<DryRun> dry_run(Client& client, std::string action, Params params) {
  params.emplace_back("DryRun", "true");
  try {
    co_await client.query(kEc2, std::move(action), std::move(params));
  } catch (const rest::CloudError& error) {
    if (error.reason == "DryRunOperation") co_return DryRun::kAllowed;
    co_return error.code == ErrorCode::kAuth ? DryRun::kDenied : DryRun::kRefused;
  }
  co_return DryRun::kIgnored;
}

Task<std::vector<std::string>> denied_actions(Client& client, std::string principal_arn,
                                              std::vector<std::string> actions, std::vector<std::string> resources,
                                              Tags context) {
  Params params{{"PolicySourceArn", std::move(principal_arn)}};
  add_list(params, "ActionNames.member", actions);
  add_list(params, "ResourceArns.member", resources);
  for (size_t i = 0; i < context.size(); ++i) {
    const std::string at = fmt::format("ContextEntries.member.{}.", i + 1);
    params.emplace_back(at + "ContextKeyName", context[i].first);
    params.emplace_back(at + "ContextKeyType", "string");
    params.emplace_back(at + "ContextKeyValues.member.1", context[i].second);
  }
  const rest::XmlNode root = co_await client.query(kIam, "SimulatePrincipalPolicy", std::move(params));
  std::vector<std::string> denied, allowed;
  for (const rest::XmlNode* one : root.list("SimulatePrincipalPolicyResult/EvaluationResults", "member")) {
    auto& of = one->text_at("EvalDecision") == "allowed" ? allowed : denied;
    of.emplace_back(one->text_at("EvalActionName"));
  }
  std::vector<std::string> out;
  for (const std::string& one : denied) {
    const bool elsewhere = std::ranges::find(allowed, one) != allowed.end();
    if (!elsewhere && std::ranges::find(out, one) == out.end()) out.push_back(one);
  }
  co_return out;
}

std::string principal_of(const std::string& caller_arn) {
  // arn:aws:sts::123456789012:assumed-role/NAME/SESSION
  const std::vector<std::string_view> parts = split(caller_arn, ':');
  if (parts.size() < 6) return caller_arn;
  if (parts[5] == "root") return {};
  const auto assumed = strip_prefix(parts[5], "assumed-role/");
  if (!assumed) return caller_arn;
  return fmt::format("arn:{}:iam::{}:role/{}", parts[1], parts[4], assumed->substr(0, assumed->find('/')));
}

std::string statement_for(const std::vector<std::string>& actions) {
  std::string out;
  for (const std::string& one : actions) out += fmt::format("{}\"{}\"", out.empty() ? "" : ", ", one);
  return fmt::format(R"({{"Effect": "Allow", "Action": [{}], "Resource": "*"}})", out);
}

std::optional<std::string> vcpu_quota_code(std::string_view instance_type, bool spot) {
  const VcpuQuota* const quota = quota_of(instance_type);
  if (quota == nullptr) return std::nullopt;
  return std::string(spot ? quota->spot : quota->on_demand);
}

std::string vcpu_quota_name(std::string_view instance_type, bool spot) {
  const VcpuQuota* const quota = quota_of(instance_type);
  const std::string_view families = quota == nullptr ? "these" : quota->families;
  return spot ? fmt::format("All {} Spot Instance Requests", families)
              : fmt::format("Running On-Demand {} instances", families);
}

Task<std::optional<double>> get_ec2_quota(Client& client, std::string code) {
  const nlohmann::json body = {{"ServiceCode", "ec2"}, {"QuotaCode", code}};
  const nlohmann::json document = co_await client.json(kServiceQuotas, "GetServiceQuota", body.dump());
  const auto quota = document.find("Quota");
  if (quota == document.end() || !quota->is_object()) co_return std::nullopt;
  const auto value = quota->find("Value");
  if (value == quota->end() || !value->is_number()) co_return std::nullopt;
  co_return value->get<double>();
}

}  // namespace rubato::aws
