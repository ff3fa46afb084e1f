#include "clouds/gcp/gcp_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "clouds/common/address_range.h"
#include "clouds/common/shape_check.h"
#include "gcp/instance_shape.h"
#include "model/cluster_file.h"
#include "rest/json.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;
using rest::text_at;
using rest::texts_at;

// Decided by us for each machine.
constexpr std::array<std::string_view, 2> kOurs = {"name", "zone"};
constexpr std::array<std::string_view, 1> kTexts = {"sourceInstanceTemplate"};  // a parameter of the same call
constexpr std::array<std::string_view, 1> kInList = {"scheduling"};
// Of Cloud TPU's nodes.create, which Ray's files have in the same place.
constexpr std::array<const char*, 4> kTpuKeys = {"acceleratorType", "acceleratorConfig", "runtimeVersion",
                                                 "schedulingConfig"};

}  // namespace

json compile_gcp_config(const ClusterFile& file) {
  const json options = file.provider.options;
  json out = {{"cluster", file.name},
              {"project", text_at(options, "project_id")},
              {"region", file.provider.region},
              {"zones", file.provider.zones},
              {"use_internal_ips", file.provider.use_internal_ips},
              {"use_external_head_ip", file.provider.use_external_head_ip},
              {"cache_stopped_nodes", file.provider.cache_stopped_nodes},
              {"ssh_user", file.auth.ssh_user},
              {"provider_where", file.place("provider")}};
  out["ssh_from"] = texts_at(options, "ssh_from");
  return out;
}

GcpConfig gcp_config_from_json(const json& told) {
  GcpConfig out;
  out.cluster = text_at(told, "cluster");
  out.project = text_at(told, "project");
  out.region = text_at(told, "region");
  if (out.cluster.empty() || out.project.empty() || out.region.empty()) {
    throw Error(ErrorCode::kUsage, "this is no description of a provider 'gcp'");
  }
  out.zones = texts_at(told, "zones");
  out.internal_only = told.value("use_internal_ips", false);
  out.internal_head = out.internal_only && !told.value("use_external_head_ip", false);
  out.cache_stopped = told.value("cache_stopped_nodes", false);
  for (const std::string& one : texts_at(told, "ssh_from")) {
    if (auto cidr = normal_cidr(one)) out.ssh_from.push_back(std::move(*cidr));
  }
  out.ssh_user = text_at(told, "ssh_user");
  if (out.ssh_user.empty()) out.ssh_user = "ubuntu";
  out.provider_where = text_at(told, "provider_where");
  return out;
}

std::optional<gcp::GivenCredentials> given_credentials(const ClusterFile& file) {
  const json options = file.provider.options;
  const auto found = options.find("gcp_credentials");
  if (found == options.end() || !found->is_object()) return std::nullopt;
  gcp::GivenCredentials out;
  out.type = text_at(*found, "type");
  const auto credentials = found->find("credentials");
  if (credentials == found->end() || credentials->is_null()) return std::nullopt;
  out.text = credentials->is_string() ? credentials->get<std::string>() : credentials->dump();
  out.where = file.place("provider.gcp_credentials");
  return out;
}

bool is_tpu(const json& node_config) {
  return std::ranges::any_of(kTpuKeys, [&](const char* key) {
    const auto found = node_config.find(key);
    return found != node_config.end() && !found->is_null();
  });
}

void check_gcp_node_config(const Yaml& config, Findings& findings) {
  if (!config.is_mapping()) return;
  for (const char* key : kTpuKeys) {
    const auto found = config.find(key);
    if (!found || found->is_null()) continue;
    // The file makes sense; `up` refuses it.
    findings.warning(*found, std::string(kNoTpus), std::string(kNoTpusFix));
    return;
  }
  ShapeRules rules;
  rules.shape = gcp::instance_shape();
  rules.request = "Google's instances.insert";
  rules.ours = kOurs;
  rules.texts = kTexts;
  rules.in_list = kInList;
  rules.numbers_as_texts = true;
  check_shape(config, rules, findings);
}

void check_gcp_provider(const Yaml& provider, Findings& findings) {
  if (const auto from = provider.find("ssh_from"); from && !from->is_null()) check_ranges(*from, findings);
  const auto credentials = provider.find("gcp_credentials");
  if (!credentials || !credentials->is_mapping()) return;
  const auto type = credentials->find("type");
  const std::string named = type && type->is_scalar() ? type->as_string() : "";
  if (named != "credentials_token" && named != "service_account") {
    findings.error(type ? *type : *credentials, "gcp_credentials needs a type",
                   "write type: service_account or type: credentials_token");
  }
  findings.note(*credentials, "a secret in a cluster file is read here, and not sent to the head",
                "better: gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS");
}

}  // namespace rubato::clouds
