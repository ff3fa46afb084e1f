// Ray's start commands: which of them our agent replaces, and what of the user's own stays.
#pragma once

#include <string>
#include <vector>

namespace rubato {

// From head_start_ray_commands or worker_start_ray_commands.
struct StartCommands {
  std::vector<std::string> before;    // the user's, in order, up to where Ray would start: then our agent starts
  std::vector<std::string> after;     // the user's that came after it
  std::vector<std::string> replaced;  // Ray's, as they were written
  bool operator==(const StartCommands&) const = default;
};

// `ray stop`, `ulimit -n 65536; ray start --head ...`, also behind `source activate env &&` and the like. What prepares
// the shell for `ray start` (source, conda activate, export, cd) stays, because our agent needs the same Python; what
// prepares it for `ray stop` goes with it. Commands without Ray in them are kept as they are.
StartCommands split_start_commands(const std::vector<std::string>& commands);

}  // namespace rubato
