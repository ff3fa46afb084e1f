// Which processors are near which GPU, read from the kernel's files: what --numa-binding binds workers to.
// The rules are those of PyTorch's torch/numa/binding.py.
#pragma once

#include <vector>

#include "core/numa_binding.h"
#include "os/machine.h"

namespace rubato::os {

// For each local rank the processors of `allowed` near the GPU with that index among those that CUDA would show a
// program started with `env`, in the order of their PCI addresses. Throws an Error when there is no such GPU, or
// nothing near it that may be used. `root` stands for "/" in tests.
std::vector<std::vector<int>> cpus_near_gpus(NumaBinding binding, int workers, const EnvironmentMap& env,
                                             const std::vector<int>& allowed, const std::string& root = "");

}  // namespace rubato::os
