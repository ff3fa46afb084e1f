// What /proc tells of other processes, and waiting for the end of a child.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

#include "core/time.h"
#include "os/fd.h"

namespace rubato::os {

// The variables by which our processes are recognised: the agent's is in every descendant that keeps its environment,
// the process's tells which spawn it came from.
constexpr std::string_view kAgentToken = "RUBATO_AGENT_TOKEN";
constexpr std::string_view kProcessToken = "RUBATO_PROCESS_TOKEN";

// Whether `entry` ("NAME=value") is one whole entry of the environment that the process was started with. False for
// zombies and for processes of others. Allocates nothing: usable between fork and exec.
bool environ_has(pid_t pid, std::string_view entry);

// Calls visit(context, pid) for each process. Allocates nothing.
void each_process(void (*visit)(void*, pid_t), void* context);

// Our children, zombies and adopted ones included.
std::vector<pid_t> own_children();

// Empty on a kernel before 5.3.
Fd open_pidfd(pid_t pid);

// Waits for our child's end and reaps it. False if it did not end in time or is not our child.
bool reap_within(pid_t pid, Duration limit);

}  // namespace rubato::os
