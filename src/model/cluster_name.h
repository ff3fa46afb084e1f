// Which names a cluster can be brought up with: they become folders, host names and names of containers.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "core/sha256.h"

namespace rubato {

inline constexpr std::string_view kClusterNameRule = "use up to 40 of a-z, 0-9 and '-'";
inline constexpr size_t kClusterNameMax = 40;

inline bool is_cluster_name(std::string_view name) {
  const auto fine = [](char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= kClusterNameMax && std::all_of(name.begin(), name.end(), fine);
}

// The name here of a cluster that Ray's file calls otherwise: My_Cluster is my-cluster-c49d15. The digits are its own:
// no two of Ray's names become one, where an `up` of one would change the other's cluster.
inline std::string cluster_name_from(std::string_view name) {
  constexpr size_t kDigits = 6;
  std::string out;
  for (const char c : name.substr(0, kClusterNameMax - kDigits - 1)) {
    const char lower = static_cast<char>('A' <= c && c <= 'Z' ? c - 'A' + 'a' : c);
    out += is_cluster_name(std::string_view(&lower, 1)) ? lower : '-';
  }
  while (out.ends_with('-')) out.pop_back();
  return out + "-" + sha256_hex(name).substr(0, kDigits);
}

}  // namespace rubato
