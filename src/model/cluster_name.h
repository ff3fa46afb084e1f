// Which names a cluster can be brought up with: they become folders, host names and names of containers.
#pragma once

#include <algorithm>
#include <string_view>

namespace rubato {

inline constexpr std::string_view kClusterNameRule = "use up to 40 of a-z, 0-9 and '-'";

inline bool is_cluster_name(std::string_view name) {
  const auto fine = [](char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= 40 && std::all_of(name.begin(), name.end(), fine);
}

}  // namespace rubato
