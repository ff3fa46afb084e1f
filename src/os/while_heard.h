// A program that ends when nobody is left who hears it: for commands over SSH without a terminal, where the death of
// whoever typed them (SIGKILL, a lost network) reaches the machine only as closed streams, which a program that prints
// nothing does not notice.
#pragma once

#include <string>
#include <vector>

#include "core/time.h"
#include "world/processes.h"

namespace rubato::os {

// With our standard streams, in a session of its own. When standard output has lost its reader, and standard error has
// too or standard input is at its end, its process group gets SIGTERM, and SIGKILL when it has not ended after `grace`.
// An output without a reader to lose (a file, /dev/null) is always heard. SIGTERM, SIGHUP and SIGINT are passed on to
// the group. One at a time.
ExitStatus run_while_heard(const std::vector<std::string>& argv, Duration grace);

}  // namespace rubato::os
