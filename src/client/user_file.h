// A file that a person named on the command line.
#pragma once

#include <string>
#include <string_view>

#include "world/files.h"

namespace rubato::cli {

// Its whole text. Throws a usage Error that says why it cannot be read: "the cluster file 'c.yaml' cannot be read:
// there is no such file".
std::string read_user_file(Files& files, std::string_view what, const std::string& path,
                           const std::string& hint = "give the path of a file");

}  // namespace rubato::cli
