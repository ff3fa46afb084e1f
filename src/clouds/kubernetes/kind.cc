// kubernetes: pods as nodes, in the words of Ray's old files.
#include <array>

#include "clouds/kinds.h"

namespace rubato::clouds {
namespace {

constexpr std::array<ConfigKey, 5> kKubernetesKeys{{
    {"provider.namespace", KeyType::kText, "", "the Kubernetes namespace", KeyEra::kShared, "", "", "kubernetes"},
    {"provider.autoscaler_service_account", KeyType::kOpaque, "", "a manifest to make", KeyEra::kShared, "", "",
     "kubernetes"},
    {"provider.autoscaler_role", KeyType::kOpaque, "", "a manifest to make", KeyEra::kShared, "", "", "kubernetes"},
    {"provider.autoscaler_role_binding", KeyType::kOpaque, "", "a manifest to make", KeyEra::kShared, "", "",
     "kubernetes"},
    {"provider.services", KeyType::kAny, "", "manifests of services to make", KeyEra::kShared, "", "", "kubernetes"},
}};

}  // namespace

constexpr ProviderKind kKubernetes{.type = "kubernetes", .keys = kKubernetesKeys};

}  // namespace rubato::clouds
