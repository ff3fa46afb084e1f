// Machine: what this machine is, read from its files. `root` stands for "/" in tests.
#pragma once

#include <map>
#include <string>

#include "world/world.h"

namespace rubato::os {

using EnvironmentMap = std::map<std::string, std::string>;

// The environment of this process.
EnvironmentMap read_environment();

// GPUs that a CUDA program started with `env` would see: the devices /dev/nvidia<N>, else the folders of
// /proc/driver/nvidia/gpus, less what CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES hide.
int count_gpus(const EnvironmentMap& env, const std::string& root = "");

// CPUs this process may use: its affinity, less what the cgroup's quota takes away.
int count_cpus(const std::string& root = "");

// The wall clock, for programs without a Runtime.
WallTime wall_now();

// The path of the program that this process runs.
std::string own_program();

// Who runs this process, by /etc/passwd; the number of the user who has no line there.
std::string user_name(const std::string& root = "");

// Unpredictable bits from the kernel.
uint64_t entropy();

MachineFacts read_machine_facts(const EnvironmentMap& env, const std::string& root = "");
MachineFacts read_machine_facts();

}  // namespace rubato::os
