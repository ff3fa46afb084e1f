// kubernetes: pods as nodes, in the words of the API and of Ray's old files.
#include <array>

#include "clouds/kinds.h"
#include "clouds/kubernetes/pod_config.h"
#include "model/cluster_file.h"
#include "model/config_section.h"

namespace rubato::clouds {
namespace {

constexpr std::array<ConfigKey, 7> kKubernetesKeys{{
    {"provider.namespace", KeyType::kText, "the context's", "the Kubernetes namespace", KeyEra::kShared, "", "",
     "kubernetes"},
    {"provider.context", KeyType::kText, "the current one", "the context of your kubeconfig", KeyEra::kOurs, "", "",
     "kubernetes"},
    {"provider.pending_timeout", KeyType::kDuration, "10m",
     "how long a pod waits for room before another type is tried", KeyEra::kOurs, "", "", "kubernetes"},
    {"provider.autoscaler_service_account", KeyType::kOpaque, "", "a manifest to make", KeyEra::kShared, "", "",
     "kubernetes"},
    {"provider.autoscaler_role", KeyType::kOpaque, "", "a manifest to make", KeyEra::kShared, "", "", "kubernetes"},
    {"provider.autoscaler_role_binding", KeyType::kOpaque, "", "a manifest to make", KeyEra::kShared, "", "",
     "kubernetes"},
    {"provider.services", KeyType::kAny, "", "manifests of services to make", KeyEra::kShared, "", "", "kubernetes"},
}};

void check_pods_of(const Yaml& types, Findings& findings) {
  if (!types.is_mapping()) return;
  for (const Yaml::Entry& type : types.entries()) {
    const auto config = type.value.is_mapping() ? type.value.find("node_config") : std::nullopt;
    if (config) check_pod(*config, findings);
  }
}

void read_kubernetes(const ConfigSection& top, ProviderConfig& out) {
  (void)out;
  Findings& findings = top.findings();
  const Yaml& file = top.node();
  const auto provider = file.find("provider");
  for (const char* key : {"autoscaler_service_account", "autoscaler_role", "autoscaler_role_binding", "services"}) {
    if (const auto given = provider->find(key); given && !given->is_null()) {
      findings.note(*given, std::string(key) + " is not applied: the head gets an account and a role of its own",
                    "apply manifests of your own with kubectl");
    }
  }
  for (const char* key : {"available_node_types", "node_types"}) {
    if (const auto types = file.find(key)) check_pods_of(*types, findings);
  }
  for (const char* key : {"head_node", "worker_nodes"}) {
    if (const auto config = file.find(key)) check_pod(*config, findings);
  }
}

}  // namespace

constexpr ProviderKind kKubernetes{.type = "kubernetes",
                                   .supported_as = "kubernetes",
                                   .can_make_head = true,
                                   .keys = kKubernetesKeys,
                                   .compile = compile_pod_config,
                                   .read = read_kubernetes,
                                   .offer_of = pod_offer};

}  // namespace rubato::clouds
