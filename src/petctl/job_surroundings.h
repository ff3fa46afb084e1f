// What surrounds a job's hosts: found, or in the native form made where the specs name none.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "aws/client.h"
#include "petctl/job_plan.h"

namespace rubato::petctl {

using OnProgress = std::function<void(std::string)>;  // for people, one line without its end

// By the name of the group. Subnets that the specs do not name are filled into the plan's specs.
// Throws a usage Error, with the place in the specs file, for what is not there: image, security group, profile, a type
// of another architecture than ours.
Task<std::map<std::string, Found>> find_surroundings(aws::Client& client, JobPlan& plan, OnProgress on_progress);

// The statements that the plan's roles lack for status, logs and teardown: JSON for people; empty: none.
// Says so, and gives them, where the caller may not ask IAM.
struct MissingPermissions {
  std::string statements;
  bool unknown = false;
};
Task<MissingPermissions> missing_permissions(aws::Client& client, const JobPlan& plan);

// A security group and a role that were made for this job; whether there was something.
Task<bool> remove_security_group(aws::Client& client, std::string job);
Task<bool> remove_role(aws::Client& client, std::string job);

}  // namespace rubato::petctl
