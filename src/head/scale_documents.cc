#include "head/scale_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "policy/scale_state.h"
#include "reconcile/nodes.h"
#include "reconcile/scale_input.h"

namespace rubato::head {

using cluster::Node;
using cluster::NodePhase;
using cluster::Reasons;
using cluster::State;
using nlohmann::json;

namespace {

double dollars(int64_t micros) { return static_cast<double>(micros) / 1e6; }

json obstacles(const std::vector<Reasons::Obstacle>& list) {
  json out = json::array();
  for (const Reasons::Obstacle& one : list) {
    json document = {{"text", one.text}};
    if (!one.where.empty()) document["where"] = one.where;
    out.push_back(std::move(document));
  }
  return out;
}

json bundles(const std::vector<cluster::Bundle>& list) {
  json out = json::array();
  for (const cluster::Bundle& one : list) out.push_back({{"resources", to_json(one.each)}, {"count", one.count}});
  return out;
}

double per_hour(const State& state) {
  double sum = 0;
  for (const auto& [id, node] : state.nodes) sum += node.never_was ? 0 : node.offering.price_per_hour;
  return sum;
}

json shortages(const State& state, WallTime now) {
  json out = json::array();
  for (const auto& [key, shortage] : state.shortages) {
    if (now >= shortage.until) continue;
    out.push_back({{"offering", key},
                   {"why", to_string(shortage.code)},
                   {"error", shortage.error},
                   {"failures", shortage.failures},
                   {"until", format_time(shortage.until)}});
  }
  return out;
}

}  // namespace

void add_reasons(json& document, const Reasons& reasons) {
  if (!reasons.wanted.empty()) document["wanted"] = reasons.wanted;
  document["others"] = obstacles(reasons.others);
  for (const json& one : obstacles(reasons.against)) document["against"].push_back(one);
  for (const std::string& text : reasons.changes) document["changes"].push_back({{"text", text}});
}

json autoscaler_document(const State& state, WallTime now) {
  std::map<std::string, int> coming;
  for (const auto& [id, node] : state.nodes) {
    if (node.phase == NodePhase::kRequested || node.phase == NodePhase::kStarting) ++coming[node.type];
  }
  json held = json::object();
  if (!state.held.against.empty()) {
    held = {{"text", state.held.wanted}, {"time", format_time(state.held_time)}, {"offset", state.held_at}};
    held["against"] = json::array();
    held["changes"] = json::array();
    add_reasons(held, state.held);
  }
  return {{"demand", reconcile::demand_words(state, now)},
          {"launching", coming},
          {"held", std::move(held)},
          {"requests", bundles(state.wanted_bundles)},
          {"shortages", shortages(state, now)},
          {"cost_per_hour", per_hour(state)},
          {"cost_so_far", dollars(cluster::cost_so_far(state, now))}};
}

json audit_document(const State& state, const std::optional<std::vector<NodeId>>& there, WallTime now) {
  json owned = json::array(), leaked = json::array(), gone = json::array();
  for (const auto& [id, node] : state.nodes) {
    const bool listed = there && std::ranges::count(*there, id) > 0;
    owned.push_back({{"node", id.value},
                     {"type", node.type},
                     {"phase", to_string(node.phase)},
                     {"zone", node.offering.zone},
                     {"market", to_string(node.offering.market)},
                     {"price_per_hour", node.offering.price_per_hour},
                     {"age_s", to_seconds(std::max<Duration>(0s, now - node.requested))},
                     {"cost", dollars(cluster::cost_of(node, now))},
                     {"exists", there ? json(listed) : json()}});
  }
  for (const NodeId& id : there.value_or(std::vector<NodeId>{})) {
    if (!state.nodes.contains(id)) leaked.push_back(id.value);
  }
  for (const auto& [type, spent] : state.spent) {
    gone.push_back({{"type", type},
                    {"nodes", spent.nodes},
                    {"hours", to_seconds(spent.time) / 3600},
                    {"cost", dollars(spent.micros)}});
  }
  return {{"owned", std::move(owned)},
          {"leaked", std::move(leaked)},
          {"complete", there.has_value()},
          {"strays_removed", state.strays},
          {"gone", std::move(gone)},
          {"cost_per_hour", per_hour(state)},
          {"cost_so_far", dollars(cluster::cost_so_far(state, now))}};
}

json plan_document(const State& state, const ClusterSpec& next, WallTime now) {
  const policy::ScalePlan plan = reconcile::plan_with(state, next, now);
  json out = policy::to_json(plan);
  out["changes"] = json::array();
  for (const reconcile::PlannedChange& change : reconcile::plan_changes(state, next)) {
    out["changes"].push_back(
        {{"action", change.action}, {"node_type", change.type}, {"count", change.count}, {"why", change.why}});
  }
  out["launches"] = json::array();
  for (const policy::PlannedLaunch& one : plan.launches) {
    out["launches"].push_back({{"type", one.type},
                               {"count", one.count},
                               {"zone", one.zone},
                               {"market", policy::to_string(one.market)},
                               {"price_per_hour", one.price_per_hour},
                               {"estimated", one.estimated},
                               {"why", one.why}});
  }
  out["cluster_cost_per_hour"] = plan.cluster_cost_per_hour;
  out["cluster"] = next.name;
  return out;
}

std::optional<json> decision_document(const cluster::Record& record) {
  json out = {{"offset", record.offset},
              {"time", format_time(record.time)},
              {"text", cluster::describe(record.event)},
              {"against", json::array()},
              {"changes", json::array()}};
  const auto about = [&](const char* kind, const NodeId& node, const Reasons& reasons) {
    out["kind"] = kind;
    out["node"] = node.value;
    out["subject"] = fmt::format("node {}", node.value);
    add_reasons(out, reasons);
  };
  if (const auto* requested = std::get_if<cluster::NodeRequested>(&record.event)) {
    about("launch", requested->node, requested->reasons);
    out["node_type"] = requested->type;
  } else if (const auto* draining = std::get_if<cluster::NodeDraining>(&record.event)) {
    about("drain", draining->node, draining->reasons);
  } else if (const auto* removing = std::get_if<cluster::NodeRemoving>(&record.event)) {
    about("remove", removing->node, removing->reasons);
  } else if (const auto* held = std::get_if<cluster::ScaleHeld>(&record.event)) {
    out["kind"] = "hold";
    out["subject"] = "the autoscaler";
    add_reasons(out, held->reasons);
  } else {
    return std::nullopt;
  }
  return out;
}

std::optional<json> why_from_records(const NodeId& node, const std::vector<cluster::Record>& records) {
  std::optional<json> last;
  json history = json::array();
  bool gone = false;
  for (const cluster::Record& record : records) {
    if (cluster::node_of(record.event) != node) continue;
    history.push_back({{"text", cluster::describe(record.event)}, {"when", format_time(record.time)}});
    gone = std::holds_alternative<cluster::NodeGone>(record.event);
    if (std::optional<json> decision = decision_document(record)) last = std::move(decision);
  }
  if (!last) return std::nullopt;
  json out = *last;
  out["phase"] = gone ? "gone" : "";
  out["state"] = (*last)["text"];
  out["decision"] = {{"offset", (*last)["offset"]}, {"time", (*last)["time"]}, {"text", (*last)["text"]}};
  out["history"] = std::move(history);
  return out;
}

}  // namespace rubato::head
