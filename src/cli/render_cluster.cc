#include "cli/render_cluster.h"

#include <fmt/format.h>

#include <set>

#include "cli/document.h"
#include "cli/render_events.h"
#include "cli/render_jobs.h"
#include "cli/render_scale.h"
#include "core/error.h"
#include "core/text.h"
#include "model/resources.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

Resources amounts(const json& object) {
  try {
    return resources_from_json(object);
  } catch (const Error&) {
    return {};  // from a newer head, perhaps: shown as nothing rather than not at all
  }
}

std::string amount_text(std::string_view name, int64_t amount) {
  if (name == kMemory) return format_bytes(amount);
  Resources one;
  one.set(name, amount);
  const std::string text = describe(one);
  return amount == 0 ? "0" : text.substr(0, text.find(' '));
}

std::string age_in(const json& object, const Look& look) {
  if (const auto since = time_in(object, "since")) return age_text(look.now - *since);
  return object.contains("age_s") ? age_text(seconds(number_in(object, "age_s"))) : "-";
}

std::string job_ids(const json& node) {
  std::vector<std::string> ids;
  for (const json& id : list_in(node, "jobs")) {
    if (id.is_string()) ids.push_back(clean(id.get<std::string>()));
  }
  return ids.empty() ? "-" : join(ids, " ");
}

}  // namespace

std::string usage_text(const json& used_json, const json& resources_json) {
  const Resources used = amounts(used_json), all = amounts(resources_json);
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

Table nodes_table(const json& nodes, const Look& look) {
  Table table({"NODE", "TYPE", "PHASE", "AGE", "USED", "JOBS", "WHY"});
  for (const json& node : nodes) {
    const std::string phase = text_in(node, "phase");
    table.add({{text_in(node, "id"), Hue::kCyan},
               {text_in(node, "type")},
               {phase, phase_hue(phase)},
               {age_in(node, look)},
               {usage_text(object_in(node, "used"), object_in(node, "resources"))},
               {job_ids(node)},
               {text_in(node, "why")}});
  }
  return table;
}

std::string node_text(const json& node, const Look& look) {
  const std::string phase = text_in(node, "phase");
  std::string out = fmt::format("{}  {} for {}\n", paint(text_in(node, "id"), Hue::kBold, look.colour),
                                paint(phase, phase_hue(phase), look.colour), age_in(node, look));
  const auto fact = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) out += fmt::format("  {}  {}\n", paint(pad(name, 9), Hue::kDim, look.colour), value);
  };
  fact("why", text_in(node, "why"));
  fact("type", text_in(node, "type"));
  fact("address", text_in(node, "address"));
  fact("host", text_in(node, "host"));
  if (int_in(node, "pid") > 0) fact("pid", fmt::format("{}", int_in(node, "pid")));
  fact("used", usage_text(object_in(node, "used"), object_in(node, "resources")));
  fact("jobs", job_ids(node));
  return out;
}

// Only what is worth a look: a head that nobody would restart, or that was.
static std::string restarts_text(const json& head) {
  const json& supervisor = object_in(head, "supervisor");
  const int64_t restarts = int_in(supervisor, "restarts");
  if (raw_in(supervisor, "kind") == "none") return ", not supervised";
  if (restarts == 0) return "";
  return fmt::format(", restarted {} time{}, last after {}", restarts, restarts == 1 ? "" : "s",
                     text_in(supervisor, "last_end"));
}

std::string status_heading(const json& status, const Look& look) {
  const json& cluster = object_in(status, "cluster");
  const json& head = object_in(cluster, "head");
  const json& totals = object_in(status, "totals");
  const std::string facts =
      fmt::format("head up {} (pid {}, epoch {}, journal {}{})", age_in(head, look), int_in(head, "pid"),
                  int_in(head, "epoch"), int_in(object_in(cluster, "journal"), "offset"), restarts_text(head));
  int64_t up = 0;
  const json& nodes = list_in(status, "nodes");
  for (const json& node : nodes) up += raw_in(node, "phase") == "up" ? 1 : 0;
  return fmt::format("cluster {}  {}\n{}/{} nodes up · {} · {} running, {} queued\n",
                     paint(text_in(cluster, "name"), Hue::kBold, look.colour), paint(facts, Hue::kDim, look.colour), up,
                     nodes.size(), usage_text(object_in(totals, "used"), object_in(totals, "resources")),
                     int_in(totals, "running"), int_in(totals, "queued"));
}

std::string status_text(const json& status, const Look& look) {
  std::string out = status_heading(status, look);
  const Table nodes = nodes_table(list_in(status, "nodes"), look);
  if (!nodes.empty()) out += "\n" + nodes.text(look);
  out += "\n" + jobs_text(list_in(status, "jobs"), look);
  const std::string scaling = autoscaler_text(object_in(status, "autoscaler"), look);
  if (!scaling.empty()) out += "\n" + scaling;
  const std::string events = recent_events(list_in(status, "events"), look);
  if (!events.empty()) out += "\n" + paint("Last events", Hue::kBold, look.colour) + "\n" + events;
  return out;
}

std::string plan_text(const json& plan, const Look& look) {
  std::string out;
  for (const json& change : list_in(plan, "changes")) {
    const std::string action = raw_in(change, "action");
    const int64_t count = int_in(change, "count");
    const std::string nodes = fmt::format("{} {} node{}", count, text_in(change, "node_type"), count == 1 ? "" : "s");
    std::string words;
    Hue hue = Hue::kYellow;
    if (action == "add") {
      words = "+ add " + nodes;
      hue = Hue::kGreen;
    } else if (action == "remove") {
      words = "- remove " + nodes;
      hue = Hue::kRed;
    } else if (action == "replace") {
      words = "~ replace " + nodes;
    } else if (action == "update" && count > 0) {
      words = "~ update " + nodes;
    } else if (action == "setting") {
      words = "~ " + text_in(change, "node_type");
    } else if (action == "text") {
      words = "~ take the file's new text";
    } else {
      words = fmt::format("~ {} {}", clean(action), text_in(change, "node_type"));
    }
    const std::string why = text_in(change, "why");
    out += "  " + paint(words, hue, look.colour) + (why.empty() ? "" : "  (" + why + ")") + "\n";
  }
  return out;
}

bool plan_removes(const json& plan) {
  for (const json& change : list_in(plan, "changes")) {
    const std::string action = raw_in(change, "action");
    if (action == "remove" || action == "replace") return true;
  }
  return false;
}

NodesUp nodes_up(const json& status, int64_t wanted, const Look& look) {
  static const std::set<std::string> leaving{"draining", "removing", "gone"};
  NodesUp out;
  out.wanted = wanted;
  for (const json& node : list_in(status, "nodes")) {
    const std::string phase = raw_in(node, "phase");
    if (phase == "up") {
      ++out.up;
    } else if (!leaving.contains(phase)) {
      const std::string why = text_in(node, "why");
      out.not_up += fmt::format("  {} is {} since {}{}\n", text_in(node, "id"), clean(phase), age_in(node, look),
                                why.empty() ? "" : ": " + why);
    }
  }
  return out;
}

}  // namespace rubato::cli
