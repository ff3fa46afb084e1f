// The scripts that node_setup.h runs on machines, as text. For any POSIX shell; what varies is quoted here.
#pragma once

#include <string>

#include "provider/node_setup.h"

namespace rubato::provider {

// Shell functions about the user's systemd: has_manager (there is one), lingers (what it starts stays when nobody is
// logged in, and comes back after a reboot), ask_to_linger.
std::string lingering_script();

// Prints "rubato-runtime HASH" when a hash is recorded.
std::string probe_script(const std::string& folder);

// Around a person's command: what an earlier attempt left running is ended first, so that two never run at once.
std::string command_script(const std::string& folder, const std::string& command);

// Writes the node's files, records the runtime hash, starts the agent unless it runs with the same agent.json.
// Prints "rubato-agent running|started|restarted HOW".
std::string agent_script(const std::string& folder, const std::string& program, const std::string& unit,
                         const NodeSetupSpec& spec, const std::string& agent_json);

// Ends the set-up and the agent, and brings what is left in its folder to the head.
std::string salvage_script(const std::string& folder, Duration grace);

// Ends the set-up and the agent, removes the folder.
std::string stop_script(const std::string& folder, Duration grace);

// Removes programs of ours that nobody uses (no agent was started with them, no process is one) and folders of ours
// with nothing in them. `keep`, words of the shell, names a program that stays, and young ones may be about to be used;
// without it none stays but those in use.
std::string tidy_script(const std::string& keep);

std::string running_script(const std::string& folder);

// Ends the sessions of a cluster's people (tmux, screen) and removes the logs of what waited for them.
std::string end_sessions_script(const std::string& cluster);

// All that a cluster has left on a machine, also when its head never came to end it there: agents and their folders,
// containers, sessions, then programs that nobody uses. Ends with 1 when something of it is still there.
// `docker_rm`: words that remove its container; may be empty.
std::string purge_script(const std::string& cluster, const std::string& docker_rm, Duration grace);

}  // namespace rubato::provider
