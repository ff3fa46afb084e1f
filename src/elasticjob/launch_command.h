// launch_command: our launcher around a container's program. Pure.
//
//   [python, train.py, --epochs, "3"]           rubato run FLAGS --no-python python train.py --epochs 3
//   [torchrun, --nproc-per-node=2, train.py]    rubato run FLAGS --nproc-per-node=2 train.py
//   [python, -u, -m, torch.distributed.run, ...]  the same; also torch.distributed.launch,
//   torchelastic.distributed.launch
#pragma once

#include <string>
#include <vector>

#include "elasticjob/job.h"

namespace rubato::elasticjob {

inline constexpr int kRendezvousPort = 29400;

struct LaunchPlace {
  std::string binary;  // path of rubato in the container
  bool is_host = false;
  std::string pod;   // its name: a pod that has it takes the place of the one before
  int grace_s = 30;  // of the pod: from SIGTERM to SIGKILL
};

// `program` is the container's command and args; not empty.
std::vector<std::string> launch_command(const Job& job, const LaunchPlace& place,
                                        const std::vector<std::string>& program);

// Whether a shell of the program starts somebody else's launcher, whose place ours cannot take.
bool hides_a_launcher(const std::vector<std::string>& program);

}  // namespace rubato::elasticjob
