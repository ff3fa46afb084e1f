// Calls of EC2 and IAM that only jobs need.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aws/params.h"

namespace rubato::petctl {

struct JobTemplate {
  std::string id, name;
  aws::Tags tags;
};
// Launch templates by {"launch-template-name", …}, {"tag:…", …}: none that matches is no error, as it is with names.
Task<std::vector<JobTemplate>> find_launch_templates(aws::Client& client, std::vector<aws::Filter> filters);

// What the console of a machine shows now; of one that is not of the Nitro kind, what it showed at its last start.
Task<std::string> latest_console(aws::Client& client, std::string instance);

// The ARN of the role in an instance profile, which is named by its name or ARN. nullopt: there is no such profile, or
// no role in it.
Task<std::optional<std::string>> role_of_profile(aws::Client& client, std::string profile);

}  // namespace rubato::petctl
