// `rubato down`: the head ends its jobs and nodes and then itself; what it could not end is killed here.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "cli/cluster_commands.h"
#include "cli/cluster_tools.h"
#include "cli/document.h"
#include "cli/head_command.h"
#include "cli/session.h"
#include "cli/values.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr Duration kDownTimeout = 120s;
constexpr Duration kDownLook = 100ms;
constexpr Duration kKilledWithin = 10s;

class Downer {
 public:
  Downer(const ParsedCommand& parsed, const Shell& shell)
      : parsed_(parsed),
        shell_(shell),
        tools_(shell.cluster_tools()),
        place_(place_to_end()),
        api_(shell.open_api(place_)) {
    if (const Given* given = parsed.find("timeout")) timeout_ = duration_value(*given, 0s);
  }

  int run() {
    const bool head = tools_->daemons().running(place_.head_folder()).has_value();
    const std::vector<std::string> agents = living_agents();
    const bool open = tools_->files().exists(place_.head_file());
    const bool purge = parsed_.has("purge");
    if (!head && agents.empty() && !open && !purge) {
      shell_.err(fmt::format("'{}' is not running\n", place_.name));
      return 0;
    }
    if (!parsed_.has("yes") && !confirmed(shell_, question(head, agents.size()))) {
      shell_.err("nothing was changed\n");
      return 1;
    }
    const std::unique_ptr<FolderHold> hold = take_folder();
    if (head) end_head();
    kill_agents();
    tools_->files().remove_tree(place_.head_file());
    const std::string store = store_elsewhere();
    if (purge) tools_->files().remove_tree(place_.folder);
    shell_.err(fmt::format("'{}' is down; {}\n", place_.name, what_stays(purge, store)));
    return 0;
  }

 private:
  // Also one that is not open, when it was named or is to be purged.
  ClusterPlace place_to_end() const {
    const auto found = list_clusters(clusters_folder(shell_.env));
    const std::string named = parsed_.value("cluster");
    if (named.empty() && parsed_.has("purge") && found.size() == 1) return place_of(shell_.env, found.front().name);
    return place_of(shell_.env, choose_cluster(found, named));
  }

  std::string store_elsewhere() const {
    try {
      return read_head_settings(place_.folder).store;
    } catch (const Error&) {
      return "";  // damaged settings are no reason not to end and remove a cluster
    }
  }

  // The folder is ours to remove; an etcd has other users, and keeps what they are not told about.
  static std::string what_stays(bool purge, const std::string& store) {
    if (!purge) return "its journal, logs and outputs stay";
    return store.empty() ? "nothing of it is left"
                         : fmt::format("its folder is removed, its journal stays in {}", store);
  }

  std::vector<std::string> living_agents() {
    std::vector<std::string> out;
    if (!tools_->files().exists(place_.node_folders())) return out;
    for (const Files::Entry& entry : tools_->files().list(place_.node_folders())) {
      const std::string folder = place_.node_folders() + "/" + entry.name;
      if (entry.kind == Files::Entry::Kind::kFolder && tools_->daemons().running(folder)) out.push_back(folder);
    }
    return out;
  }

  std::string question(bool head, size_t agents) {
    std::string jobs;
    if (head) {
      try {
        const json totals = object_in(get(*api_, "status"), "totals");
        const int64_t count = int_in(totals, "running") + int_in(totals, "queued");
        if (count > 0) jobs = fmt::format(", {} unfinished job{}", count, count == 1 ? "" : "s");
      } catch (const Error&) {
        jobs = ", whatever its jobs are (the head does not answer)";
      }
    }
    return fmt::format("end '{}': {} node{}{}{}?", place_.name, agents, agents == 1 ? "" : "s", jobs,
                       parsed_.has("purge") ? ", and REMOVE its journal, logs and outputs" : "");
  }

  std::unique_ptr<FolderHold> take_folder() {
    bool said = false;
    while (true) {
      if (auto hold = tools_->try_hold(place_)) return hold;
      if (!std::exchange(said, true)) {
        shell_.err(fmt::format("waiting for another rubato up or down of '{}' to end\n", place_.name));
      }
      if (!api_->pause(kDownLook)) throw Error(ErrorCode::kFailed, "interrupted while waiting");
    }
  }

  // Asks it to end; a head that does not, or cannot be asked, is ended by its process.
  void end_head() {
    const auto alive = [&] { return tools_->daemons().running(place_.head_folder()).has_value(); };
    try {
      post(*api_, "shutdown", {{"keep_head", false}});
      if (wait_until_gone(alive, timeout_, "ending jobs and nodes")) return;
      shell_.err(fmt::format("note: the head has not ended after {}; it is killed\n", format_duration(timeout_)));
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable && error.code != ErrorCode::kNotFound) throw;
      if (!alive()) return;
      shell_.err(fmt::format("note: {}; it is killed\n", error.message));
    }
    tools_->daemons().signal(place_.head_folder(), SIGKILL);
    if (!wait_until_gone(alive, kKilledWithin, "ending the head")) {
      throw Error(ErrorCode::kFailed, "the head does not end, even when killed", place_.head_folder());
    }
  }

  // Those whose head is gone: nobody else would end them. Their workers die with them. Their folders stay: the next
  // head saves the log lines that are left there, and removes them.
  void kill_agents() {
    const auto left = living_agents();
    if (left.empty()) return;
    shell_.err(fmt::format("killing {} agent{} without a head\n", left.size(), left.size() == 1 ? "" : "s"));
    for (const std::string& folder : left) tools_->daemons().signal(folder, SIGKILL);
    if (!wait_until_gone([&] { return !living_agents().empty(); }, kKilledWithin, "ending agents")) {
      throw Error(ErrorCode::kFailed, "some agents do not end, even when killed", place_.node_folders());
    }
  }

  bool wait_until_gone(const std::function<bool()>& alive, Duration most, const std::string& what) {
    LiveLine line(shell_);
    for (Duration waited = 0s; alive(); waited += kDownLook) {
      if (waited >= most) return false;
      line.show(fmt::format("{} ({})", what, age_text(waited)));
      if (!api_->pause(kDownLook)) throw Error(ErrorCode::kFailed, "interrupted; run rubato down again");
    }
    return true;
  }

  const ParsedCommand& parsed_;
  const Shell& shell_;
  std::unique_ptr<ClusterTools> tools_;
  const ClusterPlace place_;
  std::unique_ptr<Api> api_;
  Duration timeout_ = kDownTimeout;
};

}  // namespace

int down_command(const ParsedCommand& parsed, const Shell& shell) {
  const auto found = list_clusters(clusters_folder(shell.env));
  const bool all_down = !found.empty() && std::ranges::none_of(found, &ClusterFound::open);
  if (all_down && parsed.value("cluster").empty() && !parsed.has("purge")) {
    for (const ClusterFound& one : found) shell.err(fmt::format("'{}' is down already\n", one.name));
    return 0;
  }
  return Downer(parsed, shell).run();
}

}  // namespace rubato::cli
