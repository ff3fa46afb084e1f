// Foreground: a program that has our terminal until it ends, as a shell runs one; and one whose output we take.
//
// Without a Runtime: the caller waits. The program stays in our process group, so that Ctrl-C reaches it, and dies of
// its own accord: what it leaves in the background (an ssh that serves later ones) lives on.
#pragma once

#include <string>
#include <vector>

#include "core/time.h"
#include "world/processes.h"

namespace rubato::os {

// With our standard input, outputs and environment. While it runs, SIGINT and SIGQUIT are its affair, not ours; SIGTERM
// and SIGHUP are passed on to it. One at a time.
// argv[0] is searched in PATH. Throws kUsage when it is not there.
ExitStatus run_in_front(const std::vector<std::string>& argv);

struct Captured {
  ExitStatus status;
  std::string out, err;    // at most 1 MiB of each
  bool timed_out = false;  // it was killed
};
// With `input` as its standard input.
Captured run_captured(const std::vector<std::string>& argv, std::string_view input, Duration limit);

}  // namespace rubato::os
