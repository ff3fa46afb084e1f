// NodeNotice: what a node's taints say about its end. Pure.
//
// A pod on a node that is about to go is deleted at once: its worker has the grace period to save, the others go on,
// and the new pod has the time of the notice to come up elsewhere. A cordoned node may stay for long: its pods move one
// by one, while the job has more workers than it needs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rubato::elasticjob {

enum class Notice { kNone, kCordoned, kGoing };

struct NodeNotice {
  Notice kind = Notice::kNone;
  std::string taint;  // its key
  bool operator==(const NodeNotice&) const = default;
};

NodeNotice read_notice(const nlohmann::json& node);

// Of the taints that are notices, those that the pod tolerates, each with a space behind; "*": all. Mostly empty.
std::string tolerated_notices(const nlohmann::json& pod_spec);

// Whether a pod was made to stay with such a taint; it would come back to the same node.
bool tolerates(std::string_view tolerated, std::string_view taint);

}  // namespace rubato::elasticjob
