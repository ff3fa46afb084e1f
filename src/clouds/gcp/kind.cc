// gcp: Google's Compute Engine, in the words of its API and of Ray's files.
#include <array>

#include "clouds/gcp/gcp_launch.h"
#include "clouds/gcp/machine_types.h"
#include "clouds/common/shape_check.h"
#include "clouds/kinds.h"
#include "model/cluster_file.h"
#include "rest/json.h"

namespace rubato::clouds {
namespace {

using nlohmann::ordered_json;

constexpr std::array<ConfigKey, 5> kGcpKeys{{
    {"provider.project_id", KeyType::kText, "", "the project; gcp cannot do without", KeyEra::kShared, "", "", "gcp"},
    {"provider.gcp_credentials", KeyType::kSection, "",
     "credentials instead of the usual chain; used here, not sent to the head", KeyEra::kShared, "", "", "gcp"},
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
  const nlohmann::json scheduling = merged_scheduling(config);
  return rest::flag_at(scheduling, "preemptible") || rest::text_at(scheduling, "provisioningModel") == "SPOT";
}

bool is_known_machine(std::string_view name) { return find_gcp_type(gcp::last_part(name)).has_value(); }

void check_types(const Yaml& types, Findings& findings) {
  if (!types.is_mapping()) return;
  for (const Yaml::Entry& type : types.entries()) {
    const auto config = type.value.is_mapping() ? type.value.find("node_config") : std::nullopt;
    if (config) warn_of_unknown_machine(type.value, "machineType", is_known_machine, findings);
    if (config) check_gcp_node_config(*config, findings);
  }
}

void read_gcp(const ConfigSection& top, ProviderConfig& out) {
  (void)out;
  Findings& findings = top.findings();
  const Yaml& file = top.node();
  const auto provider = file.find("provider");
  if (!top.text("provider.project_id")) {
    findings.unfilled(*provider, "the provider has no project_id", "add project_id: PROJECT to provider");
  }
  check_gcp_provider(*provider, findings);
  for (const char* key : {"available_node_types", "node_types"}) {
    if (const auto types = file.find(key)) check_types(*types, findings);
  }
  for (const char* key : {"head_node", "worker_nodes"}) {
    if (const auto config = file.find(key)) check_gcp_node_config(*config, findings);
  }
}

// From the machine type and the cards beside it.
std::optional<MachineOffer> gcp_offer(const ordered_json& config) {
  const nlohmann::json given = config;
  const auto type = find_gcp_type(machine_type_of(given));
  if (!type) return std::nullopt;
  constexpr int64_t kMilli = 1000, kMebi = 1 << 20;
  MachineOffer out;
  out.resources.set(std::string(kCpu), type->vcpus * kMilli);
  out.resources.set(std::string(kMemory), type->memory_mib * kMebi / 10 * 7);
  out.price_per_hour = type->price_per_hour;
  int64_t gpus = type->gpus;
  std::string_view gpu = type->gpu;
  const nlohmann::json cards = given.value("guestAccelerators", nlohmann::json::array());
  for (const nlohmann::json& card : cards.is_array() ? cards : nlohmann::json::array()) {
    if (!card.is_object()) continue;
    const auto count = card.find("acceleratorCount");
    const int64_t number = count != card.end() && count->is_number_integer() ? count->get<int64_t>() : 1;
    const GcpAccelerator* kind = find_gcp_accelerator(gcp::last_part(rest::text_at(card, "acceleratorType")));
    gpus += number;
    if (kind == nullptr) continue;
    gpu = kind->gpu;
    out.price_per_hour += kind->price_per_hour * static_cast<double>(number);
  }
  if (gpus > 0) {
    out.resources.set(std::string(kGpu), gpus * kMilli);
    if (!gpu.empty()) out.resources.set("accelerator_type:" + std::string(gpu), kMilli);
  }
  return out;
}

}  // namespace

constexpr ProviderKind kGcp{.type = "gcp",
                            .supported_as = "gcp",
                            .can_make_head = true,
                            .offers_spot = true,
                            .notices = NoticeService::kGcp,
                            .has_regions = true,
                            .ssh_user = "ubuntu",
                            .region = "us-west1",
                            .zone = "us-west1-a",
                            .instance_type_key = "machineType",
                            .keys = kGcpKeys,
                            .default_types = gcp_default_types,
                            .compile = compile_gcp_config,
                            .asks_for_spot = gcp_asks_for_spot,
                            .read = read_gcp,
                            .offer_of = gcp_offer};

}  // namespace rubato::clouds
