// Secrets in files: read only when nobody else can.
#pragma once

#include <string>

namespace rubato::os {

// The file's content without surrounding white space. Throws a usage Error when it is missing, empty, or readable by
// others than its owner.
std::string read_secret(const std::string& path);

}  // namespace rubato::os
