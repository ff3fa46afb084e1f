// What `up`, `down` and `connect` of a cluster whose head is another machine share.
#pragma once

#include <string>
#include <string_view>

#include "cli/cluster_home.h"
#include "cli/flags.h"
#include "core/error.h"
#include "core/time.h"
#include "model/cluster_file.h"
#include "provider/command_runner.h"
#include "provider/external_config.h"
#include "provider/ssh_target.h"

namespace rubato::cli {

inline constexpr Duration kHoldLook = 100ms;  // between two looks whether another command still holds the folder
inline constexpr int kSshLost = 255;          // ssh's own exit code: the connection was lost

// Not the cluster's own lock: the head may be this very machine, and takes that one.
ClusterPlace lock_of(const ClusterPlace& place);

// A command on a machine that ended otherwise than it should.
Error failed_there(const std::string& what, const provider::SshTarget& target, const provider::CommandResult& result,
                   std::string fix);

std::string provider_name(const ClusterFile& file);

// How the provider's program is run on this machine, for the head's alone.
provider::ExternalSettings client_settings(const ClusterPlace& place, const ClusterFile& file,
                                           const std::string& folder, const Environment& env);

}  // namespace rubato::cli
