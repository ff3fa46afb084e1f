// What the account allows: permissions, asked without using them, and quotas.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aws/params.h"

namespace rubato::aws {

// EC2's own answer to "may I?": the call with DryRun, which does nothing.
enum class DryRun {
  kAllowed,
  kDenied,
  kRefused,  // for another reason than permissions
  kIgnored,  // the server did not know what a dry run is: it may have done it
};
Task<DryRun> dry_run(Client& client, std::string action, Params params);

// Those of the actions that a user or role may not do on any of the resources, by IAM's simulation. `context`:
// {"iam:PassedToService", "ec2.amazonaws.com"}. Throws kAuth where one may not ask.
Task<std::vector<std::string>> denied_actions(Client& client, std::string principal_arn,
                                              std::vector<std::string> actions, std::vector<std::string> resources,
                                              Tags context);

// The principal whose policies count for a caller: of an assumed role, the role. Empty: the account's root, who may do
// everything.
std::string principal_of(const std::string& caller_arn);

// One statement that allows all of them: {"Effect": "Allow", "Action": ["ec2:RunInstances"], "Resource": "*"}.
std::string statement_for(const std::vector<std::string>& actions);

// The limit of a quota of EC2 ("L-1216C47A"); nullopt: not known to the server.
std::optional<std::string> vcpu_quota_code(std::string_view instance_type, bool spot);  // nullopt: none that we know
std::string vcpu_quota_name(std::string_view instance_type, bool spot);
Task<std::optional<double>> get_ec2_quota(Client& client, std::string code);

}  // namespace rubato::aws
