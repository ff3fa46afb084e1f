// `rubato head` and `rubato agent`: the daemons' own main programs, started by `up` and by the head.
#pragma once

#include <optional>
#include <string>

#include "world/files.h"

namespace rubato::cli {

// What `up` asked of the head, kept in DIR/head/settings.json so that a restart is the same.
struct HeadSettings {
  std::string store;      // "etcd://HOST:PORT,..."; empty: SQLite in the folder
  std::string listen;     // the address of the API; empty: loopback
  bool isolated = false;  // nodes have network namespaces of their own
  std::string provider;   // the type of who makes machines; empty: nodes are processes of this machine
  std::string address;    // of this machine, as other nodes reach it; empty: there are none
};
HeadSettings read_head_settings(const std::string& dir);  // defaults when there are none
std::string head_settings_file(const std::string& dir);
std::string settings_text(const HeadSettings& settings);

struct HeadStart {
  bool accept_loss = false;     // a journal that is damaged is gone on with; what is missing is told in it
  std::string restarted_after;  // its supervisor starts it: how the head before ended
};

// Serves the cluster in DIR until it is shut down. Returns the exit code of the process.
int head_command(const std::string& dir, const HeadStart& start);

// Why the last head ended by itself, for those who find none: what it says and what to do. Written when that happens,
// gone with the next start.
struct HeadEnd {
  std::string message, hint;  // no message: the cluster was shut down
  bool is_permanent = false;  // another start would end the same way: a person has to help
};
std::string head_end_file(const std::string& dir);
std::optional<HeadEnd> read_head_end(Files& files,
                                     const std::string& dir);  // nullopt: it was killed, ended as told, or runs
// True: its supervisor does not start it again. It was shut down, or its end is permanent.
bool has_ended_for_good(Files& files, const std::string& dir);

// Serves the node in DIR until its head removes it. Returns the exit code of the process.
int agent_command(const std::string& dir);

// Brings what a dead agent has left in DIR to the head. 0: all of it.
int deliver_command(const std::string& dir);

}  // namespace rubato::cli
