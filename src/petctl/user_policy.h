// The IAM policy of who types `rubato petctl` or `rubato aws run-job`, with no more than that. Pure.
#pragma once

#include <string>
#include <vector>

namespace rubato::petctl {

// A JSON document, with a newline at its end. What changes something is allowed only for what carries a job's tag, and
// for roles that we have named.
std::string make_user_policy(const std::vector<std::string>& buckets, const std::string& partition);

}  // namespace rubato::petctl
