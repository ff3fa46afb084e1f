// `rubato get-head-ip`, `get-worker-ips`, `monitor` and `clusters`: what and where clusters are.
#include "cli/where_commands.h"

#include <fmt/format.h>

#include "api/cluster_documents.h"
#include "cli/status_commands.h"
#include "client/cluster_target.h"
#include "client/remote.h"
#include "client/session.h"
#include "core/text.h"
#include "deploy/cluster_tools.h"
#include "os/files.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

ClusterTarget target_for(const ParsedCommand& parsed, const Shell& shell) {
  std::vector<std::string> arguments = parsed.positionals;
  return find_cluster(parsed, shell, take_cluster_word(parsed, arguments));
}

// What of a cluster is known without a long wait.
struct Glance {
  std::string name, where, state;
  int64_t nodes = 0, up = 0, jobs = 0;
  bool asked = false;  // its head answered
};

std::string host_words(HostAddress host) {
  if (host.port == 22) host.port = 0;
  return to_string(host);
}

Glance glance(const ClusterFound& found, const Shell& shell) {
  Glance out;
  out.name = found.name;
  const ClusterPlace place = place_of(shell.env, found.name);
  std::optional<RemoteHead> remote;
  try {
    const ClusterTarget known = known_cluster({}, shell, found.name, place);
    remote = known.remote;
    const bool elsewhere = known.text && !known.text->file.provider.this_machine();
    out.where = remote ? host_words(remote->host) : elsewhere ? "no machine" : "this machine";
  } catch (const Error&) {
    out.state = "damaged";
    return out;
  }
  if (!found.open) {
    out.state = "down";
    return out;
  }
  try {
    ApiRequest request;
    request.target = "status";
    request.limit = 5s;
    const auto status = read_document<api::Status>(shell.open_api(place)->call(request));
    out.asked = true;
    for (const api::Node& node : status.nodes) {
      ++out.nodes;
      out.up += node.phase == "up" ? 1 : 0;
    }
    out.jobs = status.totals.running + static_cast<int64_t>(status.totals.queued);
    out.state = "up";
  } catch (const Error& error) {
    out.state = remote && error.cause != ErrorCause::kDeadHead ? "unreachable" : "head is dead";
  }
  return out;
}

}  // namespace

int get_head_ip_command(const ParsedCommand& parsed, const Shell& shell) {
  const ClusterTarget target = target_for(parsed, shell);
  const bool elsewhere = target.text && !target.text->file.provider.this_machine();
  if (target.here() && elsewhere) require_up(target, false);  // machines that a program makes have no address yet
  shell.out((target.here() ? "127.0.0.1" : target.remote->host.host) + "\n");
  return 0;
}

int get_worker_ips_command(const ParsedCommand& parsed, const Shell& shell) {
  const ClusterTarget target = target_for(parsed, shell);
  require_up(target, false);
  const auto reply = read_document<api::Nodes>(get(*shell.open_api(target.place), "nodes"));
  for (const api::Node& node : reply.nodes) {
    if (!node.head && !node.address.empty()) shell.out(node.address + "\n");
  }
  return 0;
}

int monitor_command(const ParsedCommand& parsed, const Shell& shell) {
  const ClusterTarget target = target_for(parsed, shell);
  require_up(target, false);
  ParsedCommand events;
  Given name;
  name.values = {target.place.name};
  name.origin = "--cluster";
  events.given.emplace("cluster", std::move(name));
  Given limit;
  limit.values = {parsed.value("lines", "100")};
  limit.origin = "--lines";
  events.given.emplace("limit", std::move(limit));
  if (!parsed.has("no-follow")) events.given.emplace("follow", Given{});
  return events_command(events, shell);
}

int clusters_command(const ParsedCommand& parsed, const Shell& shell) {
  json list = json::array();
  Table table({"CLUSTER", "STATE", "NODES", "JOBS", "WHERE"});
  for (const ClusterFound& found : list_clusters(clusters_folder(shell.env))) {
    const Glance one = glance(found, shell);
    list.push_back({{"name", one.name}, {"state", one.state}, {"where", one.where}});
    if (one.asked) list.back().update({{"nodes", one.nodes}, {"nodes_up", one.up}, {"jobs", one.jobs}});
    const bool up = one.state == "up";
    table.add({{one.name, Hue::kCyan},
               {one.state, up                    ? Hue::kGreen
                           : one.state == "down" ? Hue::kDim
                                                 : Hue::kRed},
               {one.asked ? fmt::format("{}/{} up", one.up, one.nodes) : "-"},
               {one.asked ? fmt::format("{}", one.jobs) : "-"},
               {one.where}});
  }
  if (parsed.has("json")) {
    shell.out(json_text(json{{"clusters", list}}));
  } else if (table.empty()) {
    shell.err(fmt::format("no cluster is known here; {}\n", kStartOne));
  } else {
    shell.out(table.text(style_of(shell)));
  }
  return 0;
}

}  // namespace rubato::cli
