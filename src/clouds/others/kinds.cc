// Clouds of Ray's whose files are understood, and no more.
#include "clouds/kinds.h"

#include <array>

namespace rubato::clouds {
namespace {

constexpr std::array<ConfigKey, 7> kAzureKeys{{
    {"provider.location", KeyType::kText, "", "the region", KeyEra::kShared, "", "", "azure"},
    {"provider.resource_group", KeyType::kText, "", "the resource group", KeyEra::kShared, "", "", "azure"},
    {"provider.subscription_id", KeyType::kText, "", "the subscription", KeyEra::kShared, "", "", "azure"},
    {"provider.tags", KeyType::kTextMap, "", "tags for all that is made", KeyEra::kShared, "", "", "azure"},
    {"provider.msi_identity_id", KeyType::kText, "", "the managed identity of the nodes", KeyEra::kShared, "", "",
     "azure"},
    {"provider.msi_identity_principal_id", KeyType::kText, "", "its principal", KeyEra::kShared, "", "", "azure"},
    {"provider.subnet_id", KeyType::kText, "", "the subnet of the nodes", KeyEra::kShared, "", "", "azure"},
}};

constexpr std::array<ConfigKey, 6> kAliyunKeys{{
    {"provider.access_key", KeyType::kText, "", "the access key", KeyEra::kShared, "", "", "aliyun"},
    {"provider.access_key_secret", KeyType::kText, "", "its secret; better kept out of files", KeyEra::kShared, "", "",
     "aliyun"},
    {"provider.zone_id", KeyType::kText, "", "the zone", KeyEra::kShared, "", "", "aliyun"},
    {"provider.cidr_block", KeyType::kText, "", "the addresses of the network that is made", KeyEra::kShared, "", "",
     "aliyun"},
    {"provider.key_name", KeyType::kText, "ray", "the key pair's name", KeyEra::kShared, "", "", "aliyun"},
    {"provider.security_group_rule", KeyType::kAny, "", "rules of the security group that is made", KeyEra::kShared, "",
     "", "aliyun"},
}};

constexpr std::array<ConfigKey, 1> kVsphereKeys{{
    {"provider.vsphere_config", KeyType::kOpaque, "", "credentials, frozen VM and GPUs of vSphere", KeyEra::kShared, "",
     "", "vsphere"},
}};

}  // namespace

constexpr ProviderKind kAzure{.type = "azure", .offers_spot = true, .ssh_user = "ubuntu", .keys = kAzureKeys};
constexpr ProviderKind kAliyun{.type = "aliyun", .offers_spot = true, .ssh_user = "root", .keys = kAliyunKeys};
constexpr ProviderKind kVsphere{.type = "vsphere", .ssh_user = "ray", .keys = kVsphereKeys};

}  // namespace rubato::clouds
