// Starting one program: the standard streams a SpawnSpec asks for, and fork + exec.
//
// posix_spawn cannot ask for a death signal, so the steps between fork and exec are ours. The child shares our memory
// until it execs (vfork): it makes system calls and touches nothing else.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "os/fd.h"
#include "world/processes.h"

namespace rubato::os {

// The child's ends of its standard streams (empty: it inherits ours) and our ends of the pipes.
struct Stdio {
  Fd in, out, err;
  Fd in_writer, out_reader, err_reader;  // non-blocking; only for pipes
  Fd out_keep, err_keep;  // the files that keep what comes through them; locked while anybody may add to them
};

// Opens files (appending, with their folders) and pipes. Throws an Error with the path.
Stdio open_stdio(InputSource in, const OutputTarget& out, const OutputTarget& err);

struct ExecPlan {
  std::vector<std::string> argv;  // argv[0] is searched in the PATH of env
  std::vector<std::string> env;
  std::string cwd;
  int in = -1, out = -1, err = -1;  // -1: inherit
  std::vector<int> cpus;            // empty: ours
  int control = -1;                 // becomes descriptor 3; -1: none
  bool own_group = true;            // false: it stays in our process group, and so with our terminal
};

// The descriptors in an ExecPlan must be above kChildFds, so that moving one never overwrites another.
constexpr int kChildFds = 4;

// The child leads its own process group (unless the plan says otherwise), dies with the calling thread, has default
// signals, and holds no descriptor but those of the plan. Returns when it runs its program; an Error says why it
// cannot. Call it on the thread that lives as long as the process: the death signal follows the thread.
pid_t fork_exec(const ExecPlan& plan);

Error cannot_bind(const std::string& program, const std::string& why);

// As many open files as we may have: a head has a connection to each node. What we start has the limit that we were
// started with; programs that use select() rely on a low one.
void allow_many_open_files();

// For what runs between fork and exec: system calls only.
void default_signals();
void default_open_files();
void close_others_at_exec(int first);

// For execve: the strings must outlive it.
std::vector<char*> pointers(const std::vector<std::string>& strings);

}  // namespace rubato::os
