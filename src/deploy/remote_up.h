// `rubato up` and `down` of a cluster whose head is another machine: what this machine does for it.
//
//   up:   (1) reach the head's machine, (2) rubato there, (3) stage the files of file_mounts there, (4) let the head's
//   own
//         key into its workers, (5) `rubato up --here` there, with this terminal, (6) remember how to reach its API
//   down: `rubato down --here` there, take the key back, forget
// Each step may be done already; what is the same is left alone.
#pragma once

#include "client/cluster_target.h"
#include "deploy/cluster_tools.h"

namespace rubato::cli {

int remote_up(const ParsedCommand& parsed, const Shell& shell, const ClusterText& wanted);
int remote_down(const ParsedCommand& parsed, const Shell& shell, const ClusterTarget& target);

// Waits, and says so, while another process holds the cluster's folder.
std::unique_ptr<FolderHold> take_folder(ClusterTools& tools, const Shell& shell, const ClusterPlace& place,
                                        const std::function<bool()>& pause);

}  // namespace rubato::cli
