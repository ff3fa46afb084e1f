#include "elasticjob/node_notice.h"

#include <nlohmann/json.hpp>

#include "kubernetes/client.h"

namespace rubato::elasticjob {

using kubernetes::bool_in;
using kubernetes::list_in;
using kubernetes::object_in;
using kubernetes::text_in;
using nlohmann::json;

namespace {

constexpr std::string_view kCordon = "node.kubernetes.io/unschedulable";

// Who sets them: the cluster autoscaler, Karpenter (v1, v1beta1), cloud controllers, GKE.
constexpr std::string_view kGoingTaints[] = {"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted",
                                             "karpenter.sh/disruption", "node.cloudprovider.kubernetes.io/shutdown",
                                             "cloud.google.com/impending-node-termination"};
// Of AWS: spot-itn, rebalance-recommendation, scheduled-maintenance, asg-lifecycle-termination.
constexpr std::string_view kTerminationHandler = "aws-node-termination-handler/";

bool is_going(std::string_view key) {
  for (const std::string_view known : kGoingTaints) {
    if (key == known) return true;
  }
  return key.starts_with(kTerminationHandler);
}

}  // namespace

NodeNotice read_notice(const json& node) {
  const json& spec = object_in(node, "spec");
  NodeNotice out;
  if (bool_in(spec, "unschedulable")) out = {Notice::kCordoned, std::string(kCordon)};
  for (const json& taint : list_in(spec, "taints")) {
    const std::string key = text_in(taint, "key");
    if (is_going(key)) return {Notice::kGoing, key};
    if (key == kCordon) out = {Notice::kCordoned, key};
  }
  return out;
}

std::string tolerated_notices(const json& pod_spec) {
  std::string out;
  for (const json& toleration : list_in(pod_spec, "tolerations")) {
    const std::string key = text_in(toleration, "key");
    if (key.empty() && text_in(toleration, "operator") == "Exists") return "*";
    if (key == kCordon || is_going(key)) out += key + " ";
  }
  return out;
}

bool tolerates(std::string_view tolerated, std::string_view taint) {
  return tolerated == "*" || tolerated.find(std::string(taint) + " ") != std::string_view::npos;
}

}  // namespace rubato::elasticjob
