// `rubato down`: the head ends its jobs and nodes and then itself; what it could not end is killed here.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "api/cluster_documents.h"
#include "client/cluster_target.h"
#include "client/head_settings.h"
#include "client/remote.h"
#include "client/session.h"
#include "core/text.h"
#include "deploy/cluster_commands.h"
#include "deploy/cluster_tools.h"
#include "deploy/head_start.h"
#include "deploy/remote_machine.h"
#include "deploy/remote_up.h"
#include "os/files.h"
#include "provider/node_scripts.h"
#include "terminal/document.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr Duration kDownTimeout = 120s;
constexpr Duration kDownLook = 100ms;
constexpr Duration kKilledWithin = 10s;

// Also one that is not open, when it was named or is to be purged.
ClusterPlace place_to_end(const ParsedCommand& parsed, const Shell& shell, const std::string& word) {
  if (is_cluster_file(word)) {
    os::RealFiles files;
    return place_of(shell.env, with_overrides(read_cluster_text(files, word), parsed).file.name);
  }
  const auto found = list_clusters(clusters_folder(shell.env));
  const std::string named = !word.empty() ? word : parsed.value("cluster-name", parsed.value("cluster"));
  if (named.empty() && parsed.has("purge") && found.size() == 1) return place_of(shell.env, found.front().name);
  return place_of(shell.env, choose_cluster(found, named));
}

bool report_if_all_are_down(const ParsedCommand& parsed, const Shell& shell) {
  const auto found = list_clusters(clusters_folder(shell.env));
  const bool named = !parsed.value("cluster-name", parsed.value("cluster")).empty();
  if (named || parsed.has("purge") || found.empty() || std::ranges::any_of(found, &ClusterFound::open)) return false;
  for (const ClusterFound& one : found) shell.err(fmt::format("'{}' is down already\n", one.name));
  return true;
}

class DownCommand {
 public:
  DownCommand(const ParsedCommand& parsed, const Shell& shell, ClusterPlace place)
      : parsed_(parsed),
        shell_(shell),
        tools_(shell.cluster_tools()),
        place_(std::move(place)),
        api_(shell.open_api(place_)) {
    if (const Given* given = parsed.find("timeout")) timeout_ = duration_value(*given, 0s);
  }

  int run() {
    if (parsed_.has("workers-only")) return end_workers();
    bool head = tools_->daemons().running(place_.head_folder()).has_value();
    const std::vector<std::string> agents = living_agents();
    const bool kept = tools_->daemons().running(place_.supervisor_folder()).has_value();
    const bool open = tools_->files().exists(place_.head_file());
    const bool purge = parsed_.has("purge");
    if (!head && agents.empty() && !open && !kept && !purge) {
      shell_.err(fmt::format("'{}' is not running\n", place_.name));
      return 0;
    }
    if (!parsed_.has("yes") && !confirmed(shell_, question(head, agents.size()))) {
      shell_.err("nothing was changed\n");
      return 1;
    }
    const auto hold = take_folder(*tools_, shell_, place_, [this] { return api_->pause(kDownLook); });
    const bool elsewhere = has_machines();
    end_supervision(*tools_, place_, *api_);
    head = tools_->daemons().running(place_.head_folder()).has_value();  // it may have been started again meanwhile
    // Only a head can end what it started on other machines, and write down that jobs are not to go on.
    const bool runs = head || open || !agents.empty();
    bool ended = head && end_head();
    if (!ended && runs && (elsewhere || !purge)) ended = end_with_a_new_head(elsewhere);
    if (!ended && runs && !purge)
      shell_.err("warning: its jobs could not be ended for good: the next rubato up goes on with them\n");
    kill_agents();
    if (elsewhere) shell_.remote()->disconnect_all(place_.folder);
    tools_->files().remove_tree(place_.head_file());
    const std::string store = store_elsewhere();
    if (purge) remove_place(tools_->files(), place_);
    shell_.err(fmt::format("'{}' is down; {}\n", place_.name, what_stays(purge, store, elsewhere)));
    if (purge) end_sessions();  // last: we may be in one
    return 0;
  }

 private:
  // The head stays, and with it its journal: it is told to want none, or no more than it must have.
  int end_workers() {
    const bool keep = parsed_.has("keep-min-workers");
    const auto status = read_document<api::Status>(get(*api_, "status"));
    std::vector<std::string> ends;
    std::map<std::string, int64_t> kept;
    const ClusterText text = read_cluster_text(tools_->files(), place_.folder + "/cluster.yaml");
    for (const api::Node& node : status.nodes) {
      const auto found = text.file.types.find(node.type);
      const int64_t least = keep && found != text.file.types.end() ? found->second.min_workers : 0;
      if (node.head || kept[node.type]++ < least) continue;
      ends.push_back(node.id);
    }
    if (ends.empty()) {
      shell_.err(fmt::format("'{}' has no workers to end\n", place_.name));
      return 0;
    }
    const std::string question =
        fmt::format("end {} of '{}' ({})?", counted_workers(ends.size()), place_.name, join(ends, ", "));
    if (!parsed_.has("yes") && !confirmed(shell_, question)) {
      shell_.err("nothing was changed\n");
      return 1;
    }
    const auto hold = take_folder(*tools_, shell_, place_, [this] { return api_->pause(kDownLook); });
    if (!keep) want_no_workers(text);
    for (const std::string& node : ends) {
      ApiRequest request;
      request.method = "DELETE";
      request.target = "nodes/" + url_part(node);
      api_->call(request);
    }
    const auto left = [&] {
      const auto now = read_document<api::Status>(get(*api_, "status"));
      return std::ranges::any_of(now.nodes,
                                 [&](const api::Node& node) { return std::ranges::count(ends, node.id) > 0; });
    };
    if (!wait_until_gone(left, timeout_, "ending workers")) {
      throw Error(ErrorCode::kFailed, fmt::format("some workers have not ended after {}", format_duration(timeout_)),
                  "", "they are still being ended: see rubato status");
    }
    shell_.err(fmt::format("{} of '{}' ended; its head goes on\n", counted_workers(ends.size()), place_.name));
    return 0;
  }

  static std::string counted_workers(size_t count) { return fmt::format("{} worker{}", count, count == 1 ? "" : "s"); }

  void want_no_workers(const ClusterText& text) {
    const ClusterText none = without_min_workers(text);
    ApiRequest request;
    request.method = "PUT";
    request.target = "cluster";
    request.body = json{{"text", none.text}, {"file", none.path}, {"apply", true}, {"no_restart", true}}.dump();
    api_->call(request);
  }

  std::string store_elsewhere() const {
    try {
      return read_head_settings(place_.folder).store;
    } catch (const Error&) {
      return "";  // damaged settings are no reason not to end and remove a cluster
    }
  }

  bool has_machines() const {
    try {
      return !read_head_settings(place_.folder).provider.empty();
    } catch (const Error&) {
      return false;
    }
  }

  // The one that was there is dead. `needed`: there is no other way; else a head that cannot start keeps nobody from
  // ending what runs here. False: it did not take the request.
  bool end_with_a_new_head(bool needed) {
    try {
      StartHead start;
      start.settings = read_head_settings(place_.folder);
      start.timeout = timeout_;
      start.is_supervised = false;
      start_head_process(*tools_, shell_, place_, *api_, start);
      return end_head();
    } catch (const Error& error) {
      if (needed) throw;
      shell_.err(fmt::format("warning: {}\n", error.message));
      return false;
    }
  }

  // The folder is ours to remove; an etcd has other users, and keeps what they are not told about.
  static std::string what_stays(bool purge, const std::string& store, bool elsewhere) {
    if (!purge) return "its journal, logs and outputs stay";
    return store.empty() ? (elsewhere ? "nothing of it is left on this machine" : "nothing of it is left")
                         : fmt::format("its folder is removed, its journal stays in {}", store);
  }

  // Of people's `exec` and `attach` with --screen or --tmux.
  void end_sessions() {
    if (!shell_.remote) return;  // nobody can have begun one
    const int code = shell_.remote()->in_front_here({"sh", "-c", provider::end_sessions_script(place_.name)});
    if (code != 0) shell_.err(fmt::format("note: sessions of '{}' may be left (tmux, screen)\n", place_.name));
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
        const api::Totals totals = read_document<api::Status>(get(*api_, "status")).totals;
        const int64_t count = totals.running + static_cast<int64_t>(totals.queued);
        if (count > 0) jobs = fmt::format(", {} unfinished job{}", count, count == 1 ? "" : "s");
      } catch (const Error&) {
        jobs = ", whatever its jobs are (the head does not answer)";
      }
    }
    return fmt::format("end '{}': {} node{}{}{}?", place_.name, agents, agents == 1 ? "" : "s", jobs,
                       parsed_.has("purge") ? ", and REMOVE its journal, logs and outputs" : "");
  }

  // Asks it to end; a head that does not, or cannot be asked, is ended by its process. True: it was asked, and has
  // written down that no job is to go on.
  bool end_head() {
    bool asked = false;
    const auto alive = [&] { return tools_->daemons().running(place_.head_folder()).has_value(); };
    try {
      post(*api_, "shutdown", {{"keep_head", false}});
      asked = true;
      if (wait_until_gone(alive, timeout_, "ending jobs and nodes")) return true;
      shell_.err(fmt::format("note: the head has not ended after {}; it is killed\n", format_duration(timeout_)));
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable && error.code != ErrorCode::kNotFound) throw;
      if (!alive()) return asked;
      shell_.err(fmt::format("note: {}; it is killed\n", error.message));
    }
    tools_->daemons().signal(place_.head_folder(), SIGKILL);
    if (!wait_until_gone(alive, kKilledWithin, "ending the head")) {
      throw Error(ErrorCode::kFailed, "the head does not end, even when killed", place_.head_folder());
    }
    return asked;
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
  const std::string word = parsed.positionals.empty() ? "" : parsed.positionals.front();
  if (word.empty() && report_if_all_are_down(parsed, shell)) return 0;
  ClusterPlace place = place_to_end(parsed, shell, word);
  if (!parsed.has("here")) {
    const ClusterTarget target = known_cluster(parsed, shell, word, place);
    os::RealFiles files;
    const bool left = parsed.has("purge") && !target.head_here && !read_machines(files, place).empty();
    // A cloud that we ask ourselves knows of machines that an `up` which was cut off has left.
    const bool cloud = target.text && !target.head_here && asks_cloud(target.text->file);
    if (target.known || left || cloud) return remote_down(parsed, shell, target);
    if (target.typed && !target.text->file.provider.this_machine() && !target.head_here) {
      shell.err(
          fmt::format("'{}' is not running, as far as this machine knows; if it was started from another one: "
                      "rubato connect {}, then rubato down again\n",
                      place.name, target.as_typed()));
      return 0;
    }
  }
  return DownCommand(parsed, shell, std::move(place)).run();
}

}  // namespace rubato::cli
