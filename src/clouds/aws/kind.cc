// aws: EC2, in the words of its API and of Ray's files.
#include <array>

#include "clouds/aws/ec2_config.h"
#include "clouds/aws/instance_types.h"
#include "clouds/common/shape_check.h"
#include "clouds/kinds.h"
#include "model/cluster_file.h"

namespace rubato::clouds {
namespace {

using nlohmann::ordered_json;

constexpr std::array<ConfigKey, 9> kAwsKeys{{
    {"provider.security_group", KeyType::kSection, "", "the security group that is made for the nodes", KeyEra::kShared,
     "", "", "aws"},
    {"provider.security_group.GroupName", KeyType::kText, "", "its name"},
    {"provider.security_group.IpPermissions", KeyType::kAny, "", "rules in EC2's words, added to ours"},
    {"provider.key_pair", KeyType::kSection, "", "the EC2 key pair", KeyEra::kShared, "", "", "aws"},
    {"provider.key_pair.key_name", KeyType::kText, "", "its name; made when it does not exist"},
    {"provider.s3_buckets", KeyType::kAny, "",
     "buckets that nodes read and write: workers get an instance profile for them", KeyEra::kShared, "", "", "aws"},
    {"provider.efs", KeyType::kAny, "",
     "EFS file systems: an id or a name, or a list of {id or name, mount, remove}; made when named and absent",
     KeyEra::kOurs, "", "", "aws"},
    {"provider.aws_credentials", KeyType::kOpaque, "",
     "refused: keys in a file travel with it; use a profile of ~/.aws or variables", KeyEra::kShared, "", "", "aws"},
    {"provider.cloudwatch", KeyType::kOpaque, "", "accepted with a note: nothing is set up at CloudWatch",
     KeyEra::kShared, "", "", "aws"},
}};

DefaultTypes aws_default_types() {
  DefaultTypes out;
  const ordered_json disk = {{"DeviceName", "/dev/sda1"}, {"Ebs", {{"VolumeSize", 256}}}};
  out.head_config = {{"InstanceType", "m5.large"}, {"BlockDeviceMappings", ordered_json::array({disk})}};
  out.worker_config = {{"InstanceType", "m5.large"}, {"InstanceMarketOptions", {{"MarketType", "spot"}}}};
  return out;
}

bool aws_asks_for_spot(const ordered_json& config) {
  const auto market = config.find("InstanceMarketOptions");
  return market != config.end() && market->is_object() && market->value("MarketType", "") == "spot";
}

bool is_known_type(std::string_view name) { return find_ec2_type(name) != nullptr; }

void check_types(const Yaml& types, Findings& findings) {
  if (!types.is_mapping()) return;
  for (const Yaml::Entry& type : types.entries()) {
    const auto config = type.value.is_mapping() ? type.value.find("node_config") : std::nullopt;
    if (config) warn_of_unknown_machine(type.value, "InstanceType", is_known_type, findings);
    if (config) check_node_config(*config, findings);
  }
}

void read_aws(const ConfigSection& top, ProviderConfig& out) {
  (void)out;
  Findings& findings = top.findings();
  const Yaml& file = top.node();
  if (const auto provider = file.find("provider"); provider && provider->is_mapping()) {
    check_ec2_provider(*provider, findings);
  }
  for (const char* key : {"available_node_types", "node_types"}) {
    if (const auto types = file.find(key)) check_types(*types, findings);
  }
  for (const char* key : {"head_node", "worker_nodes"}) {
    if (const auto config = file.find(key)) check_node_config(*config, findings);
  }
}

// As Ray fills it in, from what AWS says of the type.
std::optional<MachineOffer> aws_offer(const ordered_json& config) {
  const auto name = config.find("InstanceType");
  const Ec2Type* type = name != config.end() && name->is_string() ? find_ec2_type(name->get<std::string>()) : nullptr;
  if (type == nullptr) return std::nullopt;
  constexpr int64_t kMilli = 1000, kMebi = 1 << 20;
  MachineOffer out;
  out.resources.set(std::string(kCpu), type->vcpus * kMilli);
  out.resources.set(std::string(kMemory), type->memory_mib * kMebi / 10 * 7);
  if (type->gpus > 0) {
    out.resources.set(std::string(kGpu), type->gpus * kMilli);
    out.resources.set("accelerator_type:" + std::string(type->gpu), kMilli);
  }
  out.price_per_hour = type->price_per_hour;
  return out;
}

}  // namespace

constexpr ProviderKind kAws{.type = "aws",
                            .supported_as = "aws",
                            .can_make_head = true,
                            .offers_spot = true,
                            .notices = NoticeService::kEc2,
                            .has_regions = true,
                            .caches_stopped_nodes = true,
                            .ssh_user = "ubuntu",
                            .region = "us-west-2",
                            .instance_type_key = "InstanceType",
                            .keys = kAwsKeys,
                            .default_types = aws_default_types,
                            .compile = compile_ec2_config,
                            .asks_for_spot = aws_asks_for_spot,
                            .read = read_aws,
                            .offer_of = aws_offer};

}  // namespace rubato::clouds
