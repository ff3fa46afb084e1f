// ClusterTarget: the cluster that a command names: by a file, by a name, or as the only one there is.
#pragma once

#include <optional>
#include <string>

#include "client/remote_place.h"
#include "client/shell.h"
#include "model/cluster_file.h"
#include "provider/node_setup.h"

namespace rubato::cli {

struct ClusterText {
  std::string path;  // as typed, or where the cluster's own copy lies
  std::string text;
  ClusterFile file;
};

struct ClusterTarget {
  ClusterPlace place;
  std::optional<ClusterText> text;   // absent: the cluster has none yet
  std::optional<RemoteHead> remote;  // absent: its head is on this machine
  bool known = false;                // remote.json is there: its head has been found by `up`
  bool head_here = false;            // this is the head's machine
  bool typed = false;                // the cluster was given as a file

  bool here() const { return !remote; }
  std::string as_typed() const;  // for a command that we suggest: the file, or the name
};

// Whether the word is the name of a file, rather than of a cluster: it ends with .yaml or .yml, or has a slash.
bool is_cluster_file(std::string_view word);

// Throws when there is no such file; what is wrong with it is in its findings.
ClusterText read_cluster_text(Files& files, const std::string& path);
// With -n/--cluster-name, --min-workers and --max-workers put into the text, which is what the head's journal keeps.
ClusterText with_overrides(ClusterText text, const ParsedCommand& parsed);

// Throws what is wrong with the file, if something is.
void throw_first_error(const ClusterFile& file);

// The same with no worker that must always be there.
ClusterText without_min_workers(ClusterText text);

// `word`: the positional that names the cluster; empty: --cluster, or the only one.
ClusterTarget find_cluster(const ParsedCommand& parsed, const Shell& shell, const std::string& word);

// For what is known of the cluster at `place`; `word` is a file or not, as in find_cluster.
ClusterTarget known_cluster(const ParsedCommand& parsed, const Shell& shell, const std::string& word,
                            const ClusterPlace& place);

// Throws kNotFound, with what to do, for a cluster that nobody has started, or connected to, from here.
void require_up(const ClusterTarget& target, bool can_start);

// The container that --run-env means, on the head or on a node of `worker_type`; nullopt: the machine itself.
// Throws kUsage for a word that is none of auto, host and docker, and for docker without a container in the file.
std::optional<provider::ContainerSpec> container_asked(const ParsedCommand& parsed, const ClusterTarget& target,
                                                       const std::string& worker_type = "");

// Takes the cluster off the front of the positionals: with --cluster or -n and a first word that is no file, none is
// taken.
std::string take_cluster_word(const ParsedCommand& parsed, std::vector<std::string>& arguments);

}  // namespace rubato::cli
