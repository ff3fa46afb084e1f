#include "terminal/render_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/text.h"
#include "model/byte_amounts.h"
#include "model/resources.h"
#include "terminal/render_events.h"
#include "terminal/render_jobs.h"
#include "terminal/render_scale.h"

namespace rubato::cli {
namespace {

std::string amount_text(std::string_view name, int64_t amount) {
  if (counted_in_bytes(name)) return format_bytes(amount);
  Resources one;
  one.set(name, amount);
  const std::string text = describe(one);
  return amount == 0 ? "0" : text.substr(0, text.find(' '));
}

std::string age_of(const api::Node& node, const Style& look) {
  return node.since == WallTime{} ? "-" : age_text(look.now - node.since);
}

// Why it is as it is, and until when.
std::string why_text(const api::Node& node, const Style& look) {
  if (!node.deadline) return node.why;
  const Duration left = *node.deadline - look.now;
  return fmt::format("{} ({})", node.why, left > 0s ? "goes in " + age_text(left) : "overdue");
}

std::string job_ids(const api::Node& node) { return node.jobs.empty() ? "-" : join(node.jobs, " "); }

// Only what is worth a look: a head that nobody would restart, or that was.
std::string restarts_text(const std::optional<api::Supervisor>& supervisor) {
  if (!supervisor) return "";
  if (supervisor->kind == "none") return ", not supervised";
  if (supervisor->restarts == 0) return "";
  return fmt::format(", restarted {} time{}, last after {}", supervisor->restarts, supervisor->restarts == 1 ? "" : "s",
                     supervisor->last_end);
}

}  // namespace

std::string usage_text(const Resources& used, const Resources& all) {
  std::vector<std::string> names{std::string(kCpu), std::string(kGpu), std::string(kMemory)};
  for (const auto& [name, amount] : all.amounts()) {
    if (name != kCpu && name != kGpu && name != kMemory) names.push_back(name);
  }
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    if (all.of(name) == 0) continue;
    parts.push_back(fmt::format("{}/{} {}", amount_text(name, used.of(name)), amount_text(name, all.of(name)), name));
  }
  return parts.empty() ? "-" : join(parts, ", ");
}

Table nodes_table(const std::vector<api::Node>& nodes, const Style& look) {
  Table table({"NODE", "TYPE", "PHASE", "AGE", "USED", "JOBS", "WHY"});
  for (const api::Node& node : nodes) {
    table.add({{node.id, Hue::kCyan},
               {node.type},
               {node.phase, phase_hue(node.phase)},
               {age_of(node, look)},
               {usage_text(node.used, node.resources)},
               {job_ids(node)},
               {why_text(node, look)}});
  }
  return table;
}

std::string node_text(const api::Node& node, const Style& look) {
  std::string out = fmt::format("{}  {} for {}\n", paint(node.id, Hue::kBold, look.colour),
                                paint(node.phase, phase_hue(node.phase), look.colour), age_of(node, look));
  const auto fact = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) out += fmt::format("  {}  {}\n", paint(pad(name, 9), Hue::kDim, look.colour), value);
  };
  fact("why", why_text(node, look));
  fact("type", node.type);
  fact("address", node.address);
  fact("host", node.host);
  fact("used", usage_text(node.used, node.resources));
  fact("jobs", job_ids(node));
  return out;
}

std::string status_heading(const api::Status& status, const Style& look) {
  const api::Head& head = status.cluster.head;
  const std::string facts =
      fmt::format("head up {} (pid {}, epoch {}, journal {}{})", head.since ? age_text(look.now - *head.since) : "-",
                  head.pid, head.epoch, status.cluster.journal.offset, restarts_text(head.supervisor));
  const auto up = std::ranges::count(status.nodes, "up", &api::Node::phase);
  return fmt::format("cluster {}  {}\n{}/{} nodes up · {} · {} running, {} queued\n",
                     paint(status.cluster.name, Hue::kBold, look.colour), paint(facts, Hue::kDim, look.colour), up,
                     status.nodes.size(), usage_text(status.totals.used, status.totals.resources),
                     status.totals.running, status.totals.queued);
}

std::string status_text(const api::Status& status, const Style& look) {
  std::string out = status_heading(status, look);
  const Table nodes = nodes_table(status.nodes, look);
  if (!nodes.empty()) out += "\n" + nodes.text(look);
  out += "\n" + jobs_text(status.jobs, look);
  const std::string scaling = autoscaler_text(status.autoscaler, look);
  if (!scaling.empty()) out += "\n" + scaling;
  const std::string events = recent_events(status.events, look);
  if (!events.empty()) out += "\n" + paint("Last events", Hue::kBold, look.colour) + "\n" + events;
  return out;
}

std::string plan_text(const std::vector<api::PlannedChange>& changes, const Style& look) {
  std::string out;
  for (const api::PlannedChange& change : changes) {
    const std::string& action = change.action;
    const std::string nodes = fmt::format("{} {} node{}", change.count, change.node_type, change.count == 1 ? "" : "s");
    std::string text;
    Hue hue = Hue::kYellow;
    if (action == "add") {
      text = "+ add " + nodes;
      hue = Hue::kGreen;
    } else if (action == "remove") {
      text = "- remove " + nodes;
      hue = Hue::kRed;
    } else if (action == "replace") {
      text = "~ replace " + nodes;
    } else if (action == "update" && change.count > 0) {
      text = "~ update " + nodes;
    } else if (action == "setting") {
      text = "~ " + change.node_type;
    } else if (action == "text") {
      text = "~ take the file's new text";
    } else {
      text = fmt::format("~ {} {}", action, change.node_type);
    }
    out += "  " + paint(text, hue, look.colour) + (change.why.empty() ? "" : "  (" + change.why + ")") + "\n";
  }
  return out;
}

bool plan_removes(const std::vector<api::PlannedChange>& changes) {
  return std::ranges::any_of(
      changes, [](const api::PlannedChange& one) { return one.action == "remove" || one.action == "replace"; });
}

NodesUp nodes_up(const api::Status& status, int64_t wanted, const Style& look) {
  static const std::set<std::string> leaving{"draining", "removing", "gone"};
  NodesUp out;
  out.wanted = wanted;
  for (const api::Node& node : status.nodes) {
    if (node.phase == "up") {
      ++out.up;
    } else if (!leaving.contains(node.phase)) {
      out.not_up += fmt::format("  {} is {} since {}{}\n", node.id, node.phase, age_of(node, look),
                                node.why.empty() ? "" : ": " + node.why);
    }
  }
  return out;
}

}  // namespace rubato::cli
