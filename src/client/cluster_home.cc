#include "client/cluster_home.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/text.h"
#include "model/cluster_name.h"

namespace rubato::cli {
namespace {

std::string variable(const Environment& env, const char* name) {
  const auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

// The name becomes a part of a path.
// A machine was asked for, by `up` or `doctor`, and nothing came of it.
bool has_only_tries(const std::filesystem::path& folder) {
  std::error_code error;
  size_t others = 0, tries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    ++(entry.path().filename() == "ssh" ? tries : others);
  return tries > 0 && others == 0;
}

}  // namespace

std::string clusters_folder(const Environment& env) {
  std::string state = variable(env, "XDG_STATE_HOME");
  if (!state.starts_with('/')) {  // the XDG rules say to ignore a relative one
    const std::string home = variable(env, "HOME");
    if (home.empty()) {
      throw Error(ErrorCode::kFailed, "neither XDG_STATE_HOME nor HOME is set, so there is no place for a cluster", "",
                  "set XDG_STATE_HOME to a folder of yours");
    }
    state = home + "/.local/state";
  }
  return state + "/rubato/clusters";
}

std::vector<ClusterFound> list_clusters(const std::string& folder) {
  std::vector<ClusterFound> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory(error) || !is_cluster_name(name) || has_only_tries(entry.path())) continue;
    const bool open = std::filesystem::exists(entry.path() / "head" / "head.json", error) ||
                      std::filesystem::exists(entry.path() / "remote.json", error);
    out.push_back({name, open});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

std::string choose_cluster(const std::vector<ClusterFound>& found, const std::string& named) {
  std::vector<std::string> open, closed;
  for (const ClusterFound& one : found) (one.open ? open : closed).push_back(one.name);
  if (!named.empty()) {
    const auto is_named = [&](const ClusterFound& one) { return one.name == named; };
    if (std::any_of(found.begin(), found.end(), is_named)) return named;
    const auto near = nearest(named, open);
    throw Error(ErrorCode::kNotFound, fmt::format("there is no cluster '{}'", named), "",
                near           ? fmt::format("did you mean '{}'?", *near)
                : open.empty() ? std::string(kStartOne)
                               : "running: " + join(open, ", "));
  }
  if (open.size() == 1) return open.front();
  if (std::find(open.begin(), open.end(), "local") != open.end()) return "local";
  if (open.empty()) {
    throw no_cluster(
        closed.empty() ? std::string(kStartOne) : fmt::format("{} (there were: {})", kStartOne, join(closed, ", ")));
  }
  throw Error(ErrorCode::kUsage, fmt::format("which cluster? there are {}", join(open, ", ")), "",
              fmt::format("write --cluster {}, or set RUBATO_CLUSTER", open.front()));
}

Error no_cluster(std::string hint) {
  return because(ErrorCause::kNoCluster, Error(ErrorCode::kNotFound, "no cluster is running", "", std::move(hint)));
}

std::string choose_past_cluster(const std::vector<ClusterFound>& found, const std::string& named) {
  const bool any_open = std::any_of(found.begin(), found.end(), [](const auto& one) { return one.open; });
  if (any_open || !named.empty() || found.empty()) return choose_cluster(found, named);
  if (found.size() == 1) return found.front().name;
  std::vector<std::string> names;
  for (const ClusterFound& one : found) {
    if (one.name == "local") return one.name;
    names.push_back(one.name);
  }
  throw Error(ErrorCode::kUsage, fmt::format("which cluster? all are down: {}", join(names, ", ")), "",
              fmt::format("write --cluster {}, or set RUBATO_CLUSTER", names.front()));
}

ClusterPlace place_of(const Environment& env, const std::string& name) {
  if (!is_cluster_name(name)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a name for a cluster", name), "",
                std::string(kClusterNameRule) + "; a file's name can be replaced with --cluster-name NAME");
  }
  return {name, clusters_folder(env) + "/" + name};
}

ClusterPlace cluster_place(const ParsedCommand& parsed, const Environment& env) {
  const std::string named = parsed.value("cluster-name", parsed.value("cluster"));
  return place_of(env, choose_cluster(list_clusters(clusters_folder(env)), named));
}

void remove_place(Files& files, const ClusterPlace& place) {
  files.remove_tree(place.folder);
  if (!files.exists(place.folder)) return;
  throw Error(ErrorCode::kFailed, fmt::format("the folder of '{}' could not be removed", place.name), place.folder,
              fmt::format("see whose files are left in it, then: rubato down --purge {}", place.name));
}

}  // namespace rubato::cli
