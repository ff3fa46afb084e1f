// Auto Scaling groups, as petctl's jobs use them: one launch template, a wanted size.
#pragma once

#include <string>
#include <vector>

#include "aws/params.h"

namespace rubato::aws {

struct ScalingGroup {
  struct Member {
    std::string id, zone, state, health;  // state: "InService"
  };
  std::string name, status;  // status: "Delete in progress", or empty
  int min = 0, max = 0, desired = 0;
  std::vector<Member> members;
  Tags tags;
};
Task<std::vector<ScalingGroup>> describe_scaling_groups(Client& client, std::vector<std::string> names);

struct ScalingGroupSpec {
  std::string name, launch_template, launch_template_version = "$Default";  // the template's id
  int min = 0, max = 0, desired = 0;
  std::vector<std::string> subnets;
  Tags tags;  // also of its instances
};
// Throws kConflict when there is one of that name.
Task<void> create_scaling_group(Client& client, ScalingGroupSpec spec);
Task<void> set_desired_capacity(Client& client, std::string name, int desired);
// With its instances. One that is not there is no error.
Task<void> delete_scaling_group(Client& client, std::string name);

}  // namespace rubato::aws
