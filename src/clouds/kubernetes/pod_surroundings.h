// What a head needs in its namespace to make and reach pods: an account, a role, and that the one has the other.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "clouds/common/cloud_head.h"
#include "kubernetes/client.h"

namespace rubato::clouds {

struct HeadAccount {
  std::string name;
  bool ours = true;  // false: the file names one; it only gets the role
};
HeadAccount head_account_of(const std::string& cluster, const std::string& node_config);

// Pure: the manifests, in the order in which they are applied.
std::vector<nlohmann::json> account_manifests(const std::string& namespace_name, const std::string& cluster,
                                              const HeadAccount& account);

Task<void> apply_head_account(kubernetes::Client& client, std::string namespace_name, std::string cluster,
                              HeadAccount account);
// The service by whose name workers find the head. What a person has to know where it cannot be made.
Task<std::optional<std::string>> apply_head_service(kubernetes::Client& client, std::string namespace_name,
                                                    std::string cluster);
// Who would make the head's pod again; before the pods end.
Task<RemovedSurroundings> remove_head_set(kubernetes::Client& client, std::string namespace_name, std::string cluster);
// The account and the service.
Task<RemovedSurroundings> remove_head_account(kubernetes::Client& client, std::string namespace_name,
                                              std::string cluster);

}  // namespace rubato::clouds
