// The permissions that Rubato needs, as IAM policies with no more than that. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rubato::aws {

enum class PolicyFor {
  kUser,     // whoever types `rubato up`: makes and removes everything
  kHead,     // the head's instance role: makes and ends workers
  kWorkers,  // workers' instance role: reads the buckets
};

struct PolicyRequest {
  PolicyFor whom = PolicyFor::kUser;
  std::string cluster;               // "*": any; else only what carries this cluster's tag
  std::string partition = "aws";     // of ARNs
  std::vector<std::string> buckets;  // that jobs read and write
  std::vector<std::string> pass_roles;  // ARNs of roles of the person's own that machines are given, beside ours
};

// The tag that everything Rubato makes in AWS carries; its value is the cluster's name.
inline constexpr std::string_view kClusterTag = "rubato-cluster";

std::string make_policy(const PolicyRequest& request);  // a JSON document, with a newline at its end

// AWS makes a role for each of these services ("spot.amazonaws.com") when an account uses it first: whoever uses it
// must be allowed to have it made.
nlohmann::ordered_json service_role_statement(nlohmann::ordered_json services, const std::string& partition);

}  // namespace rubato::aws
