// What was found in a cluster file, as text for people. Pure.
#pragma once

#include <string>
#include <string_view>

#include "model/cluster_file.h"

namespace rubato::cli {

// The findings as lines for people; errors only when `all` is false.
std::string findings_text(const ClusterFile& file, bool all, bool colour);

// What `rubato up FILE` goes on in spite of: the warnings, at most ten of them. Empty when there are none.
std::string warnings_text(const ClusterFile& file, const std::string& path, bool colour);

// How many of them there are, and "1 warning" or "3 warnings".
size_t count_of(const ClusterFile& file, Severity severity);
std::string counted(size_t count, std::string_view one, std::string_view many);

}  // namespace rubato::cli
