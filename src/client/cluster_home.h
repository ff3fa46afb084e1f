// Where clusters live on this machine, and which one a command means.
#pragma once

#include <string>
#include <vector>

#include "terminal/flags.h"
#include "world/files.h"

namespace rubato::cli {

struct ClusterPlace {
  std::string name;
  std::string folder;
  std::string head_folder() const { return folder + "/head"; }
  std::string head_file() const { return folder + "/head/head.json"; }
  std::string supervisor_folder() const { return folder + "/supervisor"; }
  std::string remote_file() const { return folder + "/remote.json"; }  // its head is another machine
  std::string token_file() const { return folder + "/token"; }
  std::string node_folders() const { return folder + "/nodes"; }
};

// One that has a folder. It is open from `up` to `down`, also while its head is dead.
struct ClusterFound {
  std::string name;
  bool open = false;
};

// $XDG_STATE_HOME/rubato/clusters, by default under ~/.local/state. Throws when neither variable is set.
std::string clusters_folder(const Environment& env);

// By name.
std::vector<ClusterFound> list_clusters(const std::string& folder);

// What was named (by --cluster or RUBATO_CLUSTER), else the only open one, else "local". Throws kNotFound when there
// is none, and a usage Error that lists them when it could be several.
std::string choose_cluster(const std::vector<ClusterFound>& found, const std::string& named);

// The same for commands that read what a cluster has left: where none is open, the only one that was, or "local".
std::string choose_past_cluster(const std::vector<ClusterFound>& found, const std::string& named);

// All of the above for a command with the flag --cluster, or with -n/--cluster-name, which means the same where there
// is no cluster file.
ClusterPlace cluster_place(const ParsedCommand& parsed, const Environment& env);
ClusterPlace place_of(const Environment& env, const std::string& name);

// Removes the folder, or throws: a purge says that nothing is left only when it is so.
void remove_place(Files& files, const ClusterPlace& place);

// For a cluster that nobody has started.
Error no_cluster(std::string hint);
inline constexpr std::string_view kStartOne = "start one with: rubato up";

}  // namespace rubato::cli
