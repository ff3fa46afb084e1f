// A command over an OpenSSH master that runs already: we speak to its socket ourselves (OpenSSH's PROTOCOL.mux). A
// further ssh process would take longer to start than a short command takes to run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "world/processes.h"

namespace rubato::os {

// For the login shell there, without a terminal, with our standard input and outputs; `environment` ("NAME=value") is
// offered to the server as ssh's SendEnv does. While it runs, SIGINT, SIGQUIT, SIGTERM and SIGHUP end the session, and
// the status has the signal. One at a time.
//
// nullopt: no master serves the socket, or it refused; nothing has been run, ssh itself may know another way.
// The code is 255 when the connection broke, as ssh has it.
std::optional<ExitStatus> run_over_master(const std::string& socket, const std::string& command,
                                          const std::vector<std::string>& environment);

}  // namespace rubato::os
