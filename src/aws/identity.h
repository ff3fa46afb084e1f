// STS and IAM: who we are, and roles for machines.
#pragma once

#include <string>
#include <vector>

#include "aws/params.h"

namespace rubato::aws {

struct CallerIdentity {
  std::string account, arn, user_id;
};
Task<CallerIdentity> get_caller_identity(Client& client);

// A role that instances may have, with one inline policy, inside an instance profile of the same name. Each step is
// done only where it is missing, so that it can be repeated; IAM takes some seconds until EC2 knows the result.
struct InstanceRole {
  std::string name;
  std::string policy;  // a JSON document; empty: none
  Tags tags;
};
// The profile's ARN.
Task<std::string> ensure_instance_role(Client& client, InstanceRole role);
// ARNs of the roles that an instance profile gives to its machines. Throws kNotFound when there is no such profile.
Task<std::vector<std::string>> roles_of_profile(Client& client, std::string name);
// Whether there is a role, or an instance profile, of that name.
Task<bool> has_role(Client& client, std::string name);
Task<bool> has_instance_profile(Client& client, std::string name);
// All parts of it; what is not there is no error. Whether there was something.
Task<bool> remove_instance_role(Client& client, std::string name);

}  // namespace rubato::aws
