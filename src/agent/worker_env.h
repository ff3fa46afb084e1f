// The environment of a worker: torchrun's contract, variable by variable.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/member.h"
#include "model/launch_spec.h"

namespace rubato::agent {

using Environment = std::map<std::string, std::string>;

struct WorkerPlace {
  int local_rank = 0;
  Generation generation = 1;
  elastic::Assignment assignment;
  std::string master_addr;
  uint16_t master_port = 0;
  int restarts_used = 0;
  std::string error_file;
  std::string worker_id;  // empty: it is in no plan, ever
};

// What the agent inherited, plus what every worker of the group gets alike. `old_torch`: PyTorch before 2.2 reads
// NCCL_ASYNC_ERROR_HANDLING; later ones warn about it.
Environment group_environment(const Environment& inherited, const LaunchSpec& spec, bool old_torch);

// OMP_NUM_THREADS is set to 1 for several workers on one machine, unless the user has set it, as torchrun does.
bool limits_threads(const Environment& inherited, const LaunchSpec& spec);

// Where the training library is for the workers, if anywhere.
inline constexpr std::string_view kLibraryVariable = "RUBATO_LIBRARY";
// The folder in it with AdaptDL's names (`import adaptdl`).
inline constexpr std::string_view kAdaptdlNames = "/adaptdl";
// As a variable of a job or of `rubato run`: the library's names even where the package of that name is installed.
inline constexpr std::string_view kAdaptdlVariable = "RUBATO_ADAPTDL";
inline constexpr std::string_view kOurAdaptdl = "rubato";
// The library's AdaptDL comes before all others; without the library nothing changes.
void prefer_our_adaptdl(Environment& workers);

// What the package `adaptdl` asks: it knows no other launcher, and without these each worker would train alone.
// None where a supervisor of its own is named: that one knows the group.
Environment adaptdl_variables(const Environment& group, const LaunchSpec& spec, const WorkerPlace& place);

std::vector<std::string> worker_environment(const Environment& group, const LaunchSpec& spec, const WorkerPlace& place);

// The command line of a worker: `python -u script args`, `python -u -m module args`, or the program itself.
// "$local_rank" and "${local_rank}" are replaced and "$$" becomes "$", as torchrun does.
std::vector<std::string> worker_arguments(const LaunchSpec& spec, const std::string& python, int local_rank);

}  // namespace rubato::agent
