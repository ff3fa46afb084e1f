// The scripts that node_setup.h runs on machines, as text. For any POSIX shell; what varies is quoted here.
#pragma once

#include <string>

#include "provider/node_setup.h"

namespace rubato::provider {

// Prints "rubato-runtime HASH" when a hash is recorded.
std::string look_script(const std::string& folder);

// Around a person's command: what an earlier attempt left running is ended first, so that two never run at once.
std::string command_script(const std::string& folder, const std::string& command);

// Writes the node's files, records the runtime hash, starts the agent unless it runs with the same agent.json.
// Prints "rubato-agent running|started|restarted HOW".
std::string agent_script(const std::string& folder, const std::string& program, const std::string& unit,
                         const NodeSetupSpec& spec, const std::string& agent_json);

// Ends the set-up and the agent, removes the folder.
std::string stop_script(const std::string& folder, Duration grace);

std::string running_script(const std::string& folder);

}  // namespace rubato::provider
