// The script that a host of a job boots with: it fetches our binary from S3 with the instance's role, checks its hash,
// and gives it the host's order. It installs nothing else, and holds no secret. Pure.
#pragma once

#include <string>

#include "aws/ec2.h"
#include "petctl/node_order.h"

namespace rubato::petctl {

using aws::kUserDataMax;

// `binary` is the key of our binary in the order's bucket, `sha256` its hash.
// Throws a usage Error when the arguments of the script do not fit into user data.
std::string make_user_data(const NodeOrder& order, const std::string& binary, const std::string& sha256);

}  // namespace rubato::petctl
