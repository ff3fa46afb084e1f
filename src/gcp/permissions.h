// What Rubato must be allowed in a project.
#pragma once

#include <string>
#include <vector>

namespace rubato::gcp {

// What the head's account may do.
std::vector<std::string> head_permissions();
// What the person who runs `up` must be allowed; `makes_account`: the head gets an account of its own.
std::vector<std::string> person_permissions(bool makes_account);

// A custom role with these permissions, as `gcloud iam roles create --file` reads it.
std::string role_document(const std::string& title, const std::string& description,
                          std::vector<std::string> permissions);

}  // namespace rubato::gcp
