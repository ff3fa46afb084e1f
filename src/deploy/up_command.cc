// `rubato up`: (1) reads the file, (2) takes the folder, (3) makes keys, (4) starts the head if there is none,
// (5) asks it what would change, (6) has it done, (7) waits until the nodes are up. Every step may be done already.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "client/head_settings.h"
#include "client/session.h"
#include "core/text.h"
#include "deploy/cluster_commands.h"
#include "deploy/cluster_tools.h"
#include "deploy/head_start.h"
#include "deploy/remote_up.h"
#include "deploy/up_progress.h"
#include "model/cluster_spec.h"
#include "terminal/document.h"
#include "terminal/render_cluster.h"
#include "terminal/render_findings.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr Duration kUpTimeout = 60s;
constexpr Duration kLook = 100ms;
constexpr Duration kEventsLook = 500ms;
constexpr Duration kHeadAskAgain = 50ms;
constexpr Duration kFirstPatience = 2s;  // then we look whether the head is still there
// Set-up commands of people: pip, apt, docker pull.
constexpr Duration kMachinesTimeout = 30min;

struct WantedCluster {
  ClusterText text;
  ClusterSpec spec;
};

// Ours has the name inside, so that it means the same when it is read again.
std::string default_text_named(const MachineFacts& machine, const std::string& name) {
  std::string text = default_cluster_text(machine.cpus, machine.gpus);
  const std::string line = "cluster_name: local\n";
  const size_t at = text.find(line);
  CHECK(at != std::string::npos);
  return text.replace(at, line.size(), "cluster_name: " + name + "\n");
}

// Without a file: a cluster that is open goes on with its own; else the default for this machine.
ClusterText without_file(const ParsedCommand& parsed, const Shell& shell, ClusterTools& tools) {
  const auto found = list_clusters(clusters_folder(shell.env));
  const bool any_open = std::any_of(found.begin(), found.end(), [](const auto& one) { return one.open; });
  std::string name = parsed.value("cluster-name", parsed.value("cluster"));
  const bool named = !name.empty();
  if (name.empty()) name = any_open ? choose_cluster(found, "") : "local";
  const ClusterPlace place = place_of(shell.env, name);
  const bool open =
      std::any_of(found.begin(), found.end(), [&](const auto& one) { return one.open && one.name == name; });
  ClusterText out;
  out.path = place.folder + "/cluster.yaml";
  const auto kept = tools.files().read(out.path);
  out.text = kept && (open || named) ? *kept : default_text_named(tools.machine(), name);
  out.file = read_cluster_file(out.text, out.path);
  return out;
}

ClusterText read_wanted(const ParsedCommand& parsed, const Shell& shell, ClusterTools& tools) {
  ClusterText wanted = parsed.positionals.empty() ? without_file(parsed, shell, tools)
                                                  : read_cluster_text(tools.files(), parsed.positionals.front());
  // What another rubato sends along is called by the name that the person knows.
  if (const Given* said = parsed.find("said-file")) {
    wanted.path = said->values.back();
    wanted.file = read_cluster_file(wanted.text, wanted.path);
  }
  const std::vector<Finding> given_findings = wanted.file.findings;
  wanted = with_overrides(std::move(wanted), parsed);
  // Flags are written into the text as keys. Nobody is warned of what is not in the file.
  std::erase_if(wanted.file.findings, [&](const Finding& one) {
    return one.severity == Severity::kWarning && std::ranges::none_of(given_findings, [&](const Finding& other) {
             return other.line == one.line && other.message == one.message;
           });
  });
  (void)read_cluster_spec(wanted.text, wanted.path);  // throws what is wrong with it
  const Given* given = parsed.find("cluster");
  if (given != nullptr && given->joint != '=' && given->values.back() != wanted.file.name) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is the cluster '{}', not '{}'", wanted.path, wanted.file.name, given->values.back()),
                "", "drop --cluster, or change cluster_name in the file");
  }
  return wanted;
}

std::string nodes_text(int64_t count) { return fmt::format("{} node{}", count, count == 1 ? "" : "s"); }

// What a head would be asked to make, said without one: as PUT cluster answers.
json plan_of(const ClusterSpec& spec) {
  json changes = json::array();
  int wanted = 0;
  for (const auto& [name, type] : spec.types) {
    if (type.min_workers == 0) continue;
    wanted += type.min_workers;
    changes.push_back({{"action", "add"},
                       {"node_type", name},
                       {"count", type.min_workers},
                       {"why", fmt::format("{} each", describe(type.resources))}});
  }
  return {{"changes", std::move(changes)}, {"wanted_nodes", wanted}};
}

// What nodes are made of, for the head to know before it knows its cluster.
std::string provider_of(const ClusterFile& file) { return file.provider.this_machine() ? "" : file.provider.type; }

class UpCommand {
 public:
  UpCommand(const ParsedCommand& parsed, const Shell& shell, std::unique_ptr<ClusterTools> tools, WantedCluster wanted)
      : parsed_(parsed),
        shell_(shell),
        tools_(std::move(tools)),
        wanted_(std::move(wanted)),
        place_(place_of(shell.env, wanted_.spec.name)),
        api_(shell.open_api(place_)) {
    if (!provider_of(wanted_.text.file).empty()) timeout_ = kMachinesTimeout;
    if (const Given* given = parsed.find("timeout")) timeout_ = duration_value(*given, 0s);
    if (const Given* given = parsed.find("store")) {
      store_ = given->values.back();
      if (!store_->starts_with("etcd://")) throw bad_value(*given, "expected etcd://HOST:PORT[,HOST:PORT...]");
    }
    if (const Given* given = parsed.find("listen")) listen_ = given->values.back();
  }

  int run() {
    const bool dry = parsed_.has("dry-run");
    running_ = tools_->daemons().running(place_.head_folder()).has_value();
    if (dry && !running_) return show_plan(plan_of(wanted_.spec));
    std::unique_ptr<FolderHold> hold;
    if (!dry) {
      // Two at once would start two heads, or undo each other's change in the middle.
      hold = take_folder(*tools_, shell_, place_, [this] { return api_->pause(kLook); });
      running_ = tools_->daemons().running(place_.head_folder()).has_value();
      find_head();
      check_settings();
      if (running_) {
        ensure_supervisor(*tools_, shell_, place_);
      } else {
        start_head();
      }
    }
    const json plan = first_plan();
    const std::string changes = plan_text(read_document<api::Configured>(plan).changes, {});
    if (dry) return show_plan(plan);
    if (!changes.empty()) {
      shell_.err(changes);
      if (plan_removes(read_document<api::Configured>(plan).changes) && !parsed_.has("yes") &&
          !confirmed(shell_, "change the cluster so?")) {
        shell_.err("nothing was changed\n");
        return 1;
      }
    }
    const bool elsewhere = !provider_of(wanted_.text.file).empty();
    const auto before = read_document<api::Status>(elsewhere ? get(*api_, "status") : json());
    const json applied = put_cluster(true, timeout_);
    tools_->files().write_atomically(place_.folder + "/cluster.yaml", wanted_.text.text);
    const bool changed = !running_ || !changes.empty();
    const int64_t wanted = read_document<api::Configured>(applied).wanted_nodes;
    return elsewhere ? wait_for_machines(wanted, changed, before) : wait_for_nodes(wanted, changed);
  }

 private:
  // A head that was told to end may still have answered a moment ago: whenever it does not answer, we look again.
  json first_plan() {
    for (Duration waited = 0s;; waited += kFirstPatience) {
      try {
        return put_cluster(false, kFirstPatience);
      } catch (const Error& error) {
        if (error.code != ErrorCode::kUnavailable || waited >= timeout_) throw;
      }
      if (parsed_.has("dry-run") || tools_->daemons().running(place_.head_folder())) continue;
      start_head();
    }
  }

  int show_plan(json plan) {
    if (parsed_.has("json")) {
      plan["cluster"] = place_.name;
      plan["starts_head"] = !running_;
      shell_.out(json_text(plan));
      return 0;
    }
    const std::string changes = plan_text(read_document<api::Configured>(plan).changes, {});
    if (!running_) shell_.out(fmt::format("would start the head of '{}'\n", place_.name));
    if (running_ && changes.empty()) shell_.out(fmt::format("nothing would change in '{}'\n", place_.name));
    shell_.out(changes);
    return 0;
  }

  // What a head is told at its start holds until its end.
  void check_settings() {
    if (!running_) return;
    const HeadSettings kept = read_head_settings(place_.folder);
    if (store_ && *store_ != kept.store) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("the head of '{}' keeps its journal in {}", place_.name,
                              kept.store.empty() ? "its folder" : kept.store),
                  "", "run rubato down first, then rubato up with the other --store");
    }
    if (kept.provider != provider_of(wanted_.text.file)) {
      throw Error(ErrorCode::kUsage, fmt::format("the provider of '{}' cannot change while it runs", place_.name),
                  wanted_.text.file.place("provider"), "run rubato down first");
    }
    if (listen_ && *listen_ != kept.listen) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("the head of '{}' listens at {}", place_.name, kept.listen.empty() ? "127.0.0.1" : kept.listen),
          "", "run rubato down first, then rubato up with the other --listen");
    }
  }

  void start_head() {
    HeadSettings settings = read_head_settings(place_.folder);
    if (store_) settings.store = *store_;
    if (listen_) settings.listen = *listen_;
    settings.isolated = wanted_.spec.isolation == Isolation::kNetns;
    settings.provider = provider_of(wanted_.text.file);
    if (parsed_.has("head-address")) settings.address = parsed_.value("head-address");
    if (wanted_.text.file.provider.head) settings.address = wanted_.text.file.provider.head->host;
    const bool accept_loss = parsed_.has("accept-journal-loss");
    StartHead start;
    start.settings = settings;
    start.timeout = timeout_;
    start.accept_loss = accept_loss;
    start_head_process(*tools_, shell_, place_, *api_, start);
    if (accept_loss) shell_.err("what the journal lacked, if anything, is told by: rubato events\n");
    running_ = false;
  }

  // A head that was just killed still holds its lock for a moment: one that does not answer is running only if it is
  // still there when we look again.
  void find_head() {
    for (Duration waited = 0s; running_ && waited < timeout_; waited += kHeadAskAgain) {
      try {
        ApiRequest request;
        request.target = "//healthz";
        request.limit = 2s;
        api_->call(request);
        return;
      } catch (const Error& error) {
        if (error.code != ErrorCode::kUnavailable && error.code != ErrorCode::kNotFound) throw;
      }
      running_ = tools_->daemons().running(place_.head_folder()).has_value();
      if (running_ && !api_->pause(kHeadAskAgain)) throw Error(ErrorCode::kFailed, "interrupted; nothing was changed");
    }
  }

  json put_cluster(bool apply, Duration patience) {
    ApiRequest request;
    request.method = "PUT";
    request.target = "cluster";
    json body = {{"text", wanted_.text.text}, {"file", wanted_.text.path}, {"apply", apply}};
    if (parsed_.has("files-hash")) body["files_hash"] = parsed_.value("files-hash");
    if (parsed_.has("no-restart")) body["no_restart"] = true;
    if (parsed_.has("restart-only")) body["restart"] = true;
    request.body = body.dump();
    request.patience = patience;
    return api_->call(request);
  }

  std::vector<api::Event> events_after(uint64_t offset) {
    return read_document<api::Events>(get(*api_, fmt::format("events?after={}&limit=1000", offset))).events;
  }

  // Nodes of machines take their time, and a person wants to see why.
  int wait_for_machines(int64_t wanted, bool changed, const api::Status& before) {
    // Of the events that were there before, none is about this time.
    uint64_t offset = before.cluster.journal.offset;
    LiveBlock block(shell_);
    UpProgress progress(wanted);
    progress.take(before, {}, false, {});
    for (Duration waited = 0s;; waited += kLook) {
      const json reply = get(*api_, "status");
      const auto status = read_document<api::Status>(reply);
      std::vector<api::Event> events;
      if (waited % kEventsLook == 0s || changed) events = events_after(offset);
      for (const api::Event& event : events) offset = std::max(offset, event.offset);
      const std::string lines = progress.take(status, events, !shell_.live && changed, style_of(shell_));
      if (!lines.empty()) block.clear();
      shell_.err(lines);
      if (progress.done()) {
        block.clear();
        report_up(reply, nodes_up(status, wanted, style_of(shell_)), changed);
        return 0;
      }
      block.show(progress.live(status, style_of(shell_)));
      if (progress.given_up() || waited >= timeout_) throw not_all_up(status, wanted, progress);
      if (!api_->pause(kLook)) throw Error(ErrorCode::kFailed, "interrupted; the cluster goes on starting");
    }
  }

  Error not_all_up(const api::Status& status, int64_t wanted, const UpProgress& progress) {
    const std::string node = progress.failed_node();
    std::string sentence = fmt::format("{} of {} are up", progress.up(), nodes_text(wanted));
    sentence +=
        node.empty() ? "\n" + trim_end(nodes_up(status, wanted, style_of(shell_)).not_up) : ": " + progress.failures();
    return Error(ErrorCode::kFailed, sentence, "",
                 node.empty()
                     ? "the cluster goes on trying: see rubato status, and rubato why NODE"
                     : fmt::format("see all that was written: rubato logs --node {}; correct the cluster file, then "
                                   "rubato up again. The cluster goes on trying meanwhile",
                                   node));
  }

  int wait_for_nodes(int64_t wanted, bool changed) {
    LiveLine line(shell_);
    Duration waited = 0s;
    while (true) {
      const json status = get(*api_, "status");
      const NodesUp nodes = nodes_up(read_document<api::Status>(status), wanted, style_of(shell_));
      if (nodes.up >= wanted) {
        line.clear();
        report_up(status, nodes, changed);
        return 0;
      }
      line.show(fmt::format("{} of {} up after {}", nodes.up, nodes_text(wanted), age_text(waited)));
      if (waited >= timeout_) {
        line.clear();
        throw Error(ErrorCode::kFailed,
                    fmt::format("{} of {} are up after {}\n{}", nodes.up, nodes_text(wanted),
                                format_duration(timeout_), trim_end(nodes.not_up)),
                    "", "the cluster goes on trying: see rubato status, and rubato why NODE");
      }
      if (!api_->pause(kLook)) throw Error(ErrorCode::kFailed, "interrupted; the cluster goes on starting");
      waited += kLook;
    }
  }

  static std::string trim_end(std::string text) {
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

  void report_up(const json& status, const NodesUp& nodes, bool changed) {
    if (parsed_.has("json")) shell_.out(json_text(status));
    if (!changed) {
      shell_.err(fmt::format("nothing to change: '{}' is up with {}\n", place_.name, nodes_text(nodes.up)));
      return;
    }
    const api::Totals totals = read_document<api::Status>(status).totals;
    const std::string room =
        nodes.up == 0 ? "they come when a job needs them" : usage_text(totals.used, totals.resources);
    shell_.err(
        fmt::format("'{}' is up with {}: {}\n  rubato submit train.py    run something\n"
                    "  rubato status             see it\n  rubato down               end it\n",
                    place_.name, nodes_text(nodes.up), room));
  }

  const ParsedCommand& parsed_;
  const Shell& shell_;
  std::unique_ptr<ClusterTools> tools_;
  const WantedCluster wanted_;
  const ClusterPlace place_;
  std::unique_ptr<Api> api_;
  Duration timeout_ = kUpTimeout;
  std::optional<std::string> store_;
  std::optional<std::string> listen_;
  bool running_ = false;
};

}  // namespace

int up_command(const ParsedCommand& parsed, const Shell& shell) {
  std::unique_ptr<ClusterTools> tools = shell.cluster_tools();
  WantedCluster wanted;
  wanted.text = read_wanted(parsed, shell, *tools);
  // The rubato that was typed says it, not the one that it starts on the head's machine.
  if (!parsed.positionals.empty() && !parsed.has("here")) {
    shell.err(warnings_text(wanted.text.file, wanted.text.path, shell.colour));
  }
  if (!wanted.text.file.provider.this_machine() && !parsed.has("here")) return remote_up(parsed, shell, wanted.text);
  wanted.spec = read_cluster_spec(wanted.text.text, wanted.text.path, parsed.value("files-hash"));
  return UpCommand(parsed, shell, std::move(tools), std::move(wanted)).run();
}

}  // namespace rubato::cli
