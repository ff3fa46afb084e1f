// The supervisor of a head, as files tell of it. In CLUSTER/supervisor, beside the files of any daemon (os/daemons.h):
//
//   wanted      there from `up` to `down`: while it is not, nobody starts the head or its supervisor again. It says who
//               keeps the supervisor: "rubato" (the head starts another one) or "systemd"
//   state.json  what the supervisor has seen
//   accept-journal-loss   there for one start of the head, which gets the flag of that name
//   environment           for the head under systemd, which has not that of the person: NAME=value, each ended by a
//                         zero byte
#pragma once

#include <optional>
#include <string>

#include "os/supervisor.h"
#include "world/files.h"

namespace rubato::cli {

std::string supervisor_folder(const std::string& dir);

inline constexpr const char* kKeptByRubato = "rubato";
inline constexpr const char* kKeptBySystemd = "systemd";

// Empty: the head is not to be started again.
std::string read_wanted(Files& files, const std::string& dir);
void write_wanted(Files& files, const std::string& dir, const std::string& keeper);
void remove_wanted(Files& files, const std::string& dir);

std::string accept_loss_file(const std::string& dir);
std::string environment_file(const std::string& dir);

os::Supervision read_supervision(Files& files, const std::string& dir);  // zeros when there is none
void write_supervision(Files& files, const std::string& dir, const os::Supervision& seen);

}  // namespace rubato::cli
