// HeadEnd: how the last head of a cluster ended, as its folder tells.
#pragma once

#include <optional>
#include <string>

#include "world/files.h"

namespace rubato::cli {

// Why the last head ended by itself, for those who find none: what it says and what to do. Written when that happens,
// gone with the next start.
struct HeadEnd {
  std::string message, hint;  // no message: the cluster was shut down
  bool is_permanent = false;  // another start would end the same way: a person has to help
};
std::string head_end_file(const std::string& dir);
// nullopt: it was killed, ended as told, or runs.
std::optional<HeadEnd> read_head_end(Files& files, const std::string& dir);
// True: its supervisor does not start it again. It was shut down, or its end is permanent.
bool has_ended_for_good(Files& files, const std::string& dir);

}  // namespace rubato::cli
