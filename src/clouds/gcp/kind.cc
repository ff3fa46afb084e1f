// gcp: Google's Compute Engine, in the words of its API and of Ray's files.
#include <algorithm>
#include <array>

#include "clouds/kinds.h"
#include "model/cluster_file.h"

namespace rubato::clouds {
namespace {

using nlohmann::ordered_json;

constexpr std::array<ConfigKey, 5> kGcpKeys{{
    {"provider.project_id", KeyType::kText, "", "the project; gcp cannot do without", KeyEra::kShared, "", "", "gcp"},
    {"provider.gcp_credentials", KeyType::kSection, "", "credentials instead of the usual chain", KeyEra::kShared, "",
     "", "gcp"},
    {"provider.gcp_credentials.type", KeyType::kText, "", "credentials_token or service_account"},
    {"provider.gcp_credentials.credentials", KeyType::kText, "", "the token, or the account's JSON"},
    {"provider._has_tpus", KeyType::kAny, "", "written by Ray into its cache", KeyEra::kWritten},
}};

DefaultTypes gcp_default_types() {
  DefaultTypes out;
  out.head = "ray_head_default";
  out.worker = "ray_worker_small";
  const ordered_json image = {
      {"diskSizeGb", 50}, {"sourceImage", "projects/deeplearning-platform-release/global/images/family/common-cpu"}};
  const ordered_json disk = {{"boot", true}, {"autoDelete", true}, {"type", "PERSISTENT"}, {"initializeParams", image}};
  out.head_config = {{"machineType", "n1-standard-2"}, {"disks", ordered_json::array({disk})}};
  out.worker_config = out.head_config;
  out.worker_config["scheduling"] = ordered_json::array({ordered_json{{"preemptible", true}}});
  out.resources.set(kCpu, 2000);
  return out;
}

bool gcp_asks_for_spot(const ordered_json& config) {
  const auto scheduling = config.find("scheduling");  // a list of one mapping in Ray's files, or the mapping
  if (scheduling == config.end()) return false;
  const auto preemptible = [](const ordered_json& one) {
    return one.is_object() && (one.value("preemptible", false) || one.value("provisioningModel", "") == "SPOT");
  };
  if (!scheduling->is_array()) return preemptible(*scheduling);
  return std::any_of(scheduling->begin(), scheduling->end(), preemptible);
}

void read_gcp(const ConfigSection& top, ProviderConfig& out) {
  Findings& findings = top.findings();
  if (!top.text("provider.project_id")) {
    findings.unfilled(*top.node().find("provider"), "the provider has no project_id",
                      "add project_id: PROJECT to provider");
  }
  if (out.zones.size() > 1) {
    findings.error(top.find("provider.availability_zone")->value, "gcp takes one availability_zone");
  }
}

}  // namespace

constexpr ProviderKind kGcp{.type = "gcp",
                            .offers_spot = true,
                            .has_regions = true,
                            .ssh_user = "ubuntu",
                            .region = "us-west1",
                            .zone = "us-west1-a",
                            .keys = kGcpKeys,
                            .default_types = gcp_default_types,
                            .asks_for_spot = gcp_asks_for_spot,
                            .read = read_gcp};

}  // namespace rubato::clouds
