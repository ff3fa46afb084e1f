// What `up`, `down` and `connect` of a cluster whose head is another machine share.
#pragma once

#include <string>
#include <string_view>

#include "client/cluster_home.h"
#include "core/error.h"
#include "core/time.h"
#include "model/cluster_file.h"
#include "provider/command_runner.h"
#include "provider/head_machine.h"
#include "provider/ssh_target.h"
#include "terminal/flags.h"

namespace rubato::cli {

inline constexpr Duration kHoldLook = 100ms;  // between two looks whether another command still holds the folder
inline constexpr int kSshLost = 255;          // ssh's own exit code: the connection was lost

// Not the cluster's own lock: the head may be this very machine, and takes that one.
ClusterPlace lock_of(const ClusterPlace& place);

// A command on a machine that ended otherwise than it should.
Error failed_there(const std::string& what, const provider::SshTarget& target, const provider::CommandResult& result,
                   std::string fix);

// The provider makes machines, and it is we who ask for them, not a program of somebody's.
bool asks_cloud(const ClusterFile& file);

// For people: the program of one's own, or the cloud.
std::string provider_name(const ClusterFile& file);

// How the head's machine is made and ended from here. `folder`: the cluster file's.
provider::HeadMachineSettings head_settings_here(const ClusterPlace& place, const ClusterFile& file,
                                                 const std::string& folder, const Environment& env);

}  // namespace rubato::cli
