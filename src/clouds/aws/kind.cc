// aws: EC2, in the words of its API and of Ray's files.
#include <array>

#include "clouds/kinds.h"

namespace rubato::clouds {
namespace {

using nlohmann::ordered_json;

constexpr std::array<ConfigKey, 7> kAwsKeys{{
    {"provider.security_group", KeyType::kSection, "", "the security group that is made for the nodes", KeyEra::kShared,
     "", "", "aws"},
    {"provider.security_group.GroupName", KeyType::kText, "", "its name"},
    {"provider.security_group.IpPermissions", KeyType::kAny, "", "rules in EC2's words, added to ours"},
    {"provider.key_pair", KeyType::kSection, "", "the EC2 key pair", KeyEra::kShared, "", "", "aws"},
    {"provider.key_pair.key_name", KeyType::kText, "", "its name; made when it does not exist"},
    {"provider.aws_credentials", KeyType::kOpaque, "",
     "keys instead of the usual chain of credentials; better kept out of files", KeyEra::kShared, "", "", "aws"},
    {"provider.cloudwatch", KeyType::kOpaque, "", "agent, dashboard and alarms for CloudWatch", KeyEra::kShared, "", "",
     "aws"},
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

}  // namespace

constexpr ProviderKind kAws{.type = "aws",
                            .offers_spot = true,
                            .has_regions = true,
                            .caches_stopped_nodes = true,
                            .ssh_user = "ubuntu",
                            .region = "us-west-2",
                            .instance_type_key = "InstanceType",
                            .keys = kAwsKeys,
                            .default_types = aws_default_types,
                            .asks_for_spot = aws_asks_for_spot};

}  // namespace rubato::clouds
