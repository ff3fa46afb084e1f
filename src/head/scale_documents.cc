#include "head/scale_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "head/documents.h"
#include "policy/scale_state.h"
#include "reconcile/nodes.h"
#include "reconcile/scale_input.h"

namespace rubato::head {

using cluster::NodePhase;
using cluster::Reasons;
using cluster::State;

namespace {

double dollars(int64_t micros) { return static_cast<double>(micros) / 1e6; }

double per_hour(const State& state) {
  double sum = 0;
  for (const auto& [id, node] : state.nodes) sum += node.never_was ? 0 : node.offering.price_per_hour;
  return sum;
}

std::vector<api::Shortage> shortages(const State& state, WallTime now) {
  std::vector<api::Shortage> out;
  for (const auto& [key, shortage] : state.shortages) {
    if (now >= shortage.until) continue;
    out.push_back({key, std::string(to_string(shortage.code)), shortage.error, shortage.failures, shortage.until});
  }
  return out;
}

api::NotLaunching held_document(const State& state) {
  api::NotLaunching document;
  const Reasons& held = state.held;
  if (held.against.empty()) return document;
  document.text = held.wanted;
  document.time = state.held_time;
  document.offset = state.held_at;
  if (!held.wanted.empty()) document.wanted = held.wanted;
  document.against = obstacles(held.against);
  document.others = obstacles(held.others);
  document.changes = changes_of(held);
  return document;
}

}  // namespace

std::vector<api::PlannedChange> changes_document(const std::vector<reconcile::PlannedChange>& changes) {
  std::vector<api::PlannedChange> out;
  for (const reconcile::PlannedChange& one : changes) out.push_back({one.action, one.type, one.count, one.why});
  return out;
}

api::Autoscaler autoscaler_document(const State& state, WallTime now) {
  api::Autoscaler document;
  document.demand = reconcile::demand_texts(state, now);
  for (const auto& [id, node] : state.nodes) {
    if (node.phase == NodePhase::kRequested || node.phase == NodePhase::kStarting) ++document.launching[node.type];
  }
  document.held = held_document(state);
  for (const cluster::Bundle& one : state.wanted_bundles) document.requests.push_back({one.each, one.count});
  document.shortages = shortages(state, now);
  document.cost_per_hour = per_hour(state);
  document.cost_so_far = dollars(cluster::cost_so_far(state, now));
  return document;
}

api::Audit audit_document(const State& state, const std::optional<std::vector<NodeId>>& there, WallTime now) {
  api::Audit document;
  for (const auto& [id, node] : state.nodes) {
    api::Machine machine;
    machine.node = id.value;
    machine.type = node.type;
    machine.phase = to_string(node.phase);
    machine.zone = node.offering.zone;
    machine.market = to_string(node.offering.market);
    machine.price_per_hour = node.offering.price_per_hour;
    machine.age_s = to_seconds(std::max<Duration>(0s, now - node.requested));
    machine.cost = dollars(cluster::cost_of(node, now));
    if (there) machine.exists = {std::ranges::count(*there, id) > 0};
    document.owned.push_back(std::move(machine));
  }
  for (const NodeId& id : there.value_or(std::vector<NodeId>{})) {
    if (!state.nodes.contains(id)) document.leaked.push_back(id.value);
  }
  document.complete = there.has_value();
  document.strays_removed = static_cast<int64_t>(state.strays);
  for (const auto& [type, spent] : state.spent) {
    document.gone.push_back({type, spent.nodes, to_seconds(spent.time) / 3600, dollars(spent.micros)});
  }
  document.cost_per_hour = per_hour(state);
  document.cost_so_far = dollars(cluster::cost_so_far(state, now));
  return document;
}

// As in the states that `rubato plan` reads: their names have '_'.
static std::string plan_name(Market market) { return market == Market::kSpot ? "spot" : "on_demand"; }

api::Plan plan_document(const State& state, const ClusterSpec& next, WallTime now) {
  const policy::ScalePlan plan = reconcile::plan_with(state, next, now);
  const nlohmann::json told = policy::to_json(plan);
  api::Plan document;
  document.cluster = next.name;
  document.changes = changes_document(reconcile::plan_changes(state, next));
  for (const auto& [type, count] : plan.launches_by_type()) document.launch[type] = count;
  for (const policy::PlannedLaunch& one : plan.launches) {
    document.launches.push_back({one.type, one.count, one.zone, plan_name(one.market),
                                 one.price_per_hour, one.estimated, one.why});
  }
  for (const policy::PlannedTermination& one : plan.terminations) document.terminate.push_back({one.id.value, one.why});
  for (const nlohmann::json& one : told.at("unfulfilled")) document.unfulfilled.push_back(one);
  document.cost_per_hour = told.at("cost_per_hour").get<double>();
  document.cluster_cost_per_hour = plan.cluster_cost_per_hour;
  for (const nlohmann::json& one : told.at("reasons")) document.reasons.push_back(one);
  return document;
}

std::optional<api::ScaleDecision> decision_document(const cluster::Record& record) {
  api::ScaleDecision document;
  document.offset = record.offset;
  document.time = record.time;
  document.text = cluster::describe(record.event);
  const auto add = [&](const char* kind, const Reasons& reasons) {
    document.kind = kind;
    if (!reasons.wanted.empty()) document.wanted = reasons.wanted;
    document.against = obstacles(reasons.against);
    document.others = obstacles(reasons.others);
    document.changes = changes_of(reasons);
  };
  const auto about = [&](const char* kind, const NodeId& node, const Reasons& reasons) {
    add(kind, reasons);
    document.node = node.value;
    document.subject = fmt::format("node {}", node.value);
  };
  if (const auto* requested = std::get_if<cluster::NodeRequested>(&record.event)) {
    about("launch", requested->node, requested->reasons);
    document.node_type = requested->type;
  } else if (const auto* draining = std::get_if<cluster::NodeDraining>(&record.event)) {
    about("drain", draining->node, draining->reasons);
  } else if (const auto* removing = std::get_if<cluster::NodeRemoving>(&record.event)) {
    about("remove", removing->node, removing->reasons);
  } else if (const auto* held = std::get_if<cluster::ScaleHeld>(&record.event)) {
    add("hold", held->reasons);
    document.subject = "the autoscaler";
  } else {
    return std::nullopt;
  }
  return document;
}

std::optional<api::Why> why_from_records(const NodeId& node, const SharedRecords& records) {
  std::optional<api::ScaleDecision> last;
  std::vector<api::Change> history;
  bool gone = false;
  for (const auto& shared : records) {
    const cluster::Record& record = *shared;
    if (cluster::node_of(record.event) != node) continue;
    history.push_back({cluster::describe(record.event), record.time});
    gone = std::holds_alternative<cluster::NodeGone>(record.event);
    if (std::optional<api::ScaleDecision> decision = decision_document(record)) last = std::move(decision);
  }
  if (!last) return std::nullopt;
  api::Why document;
  document.subject = last->subject;
  document.phase = gone ? "gone" : "";
  document.wanted = last->wanted.value_or("");
  document.state = last->text;
  document.decision = {last->offset, last->time, last->text};
  document.against = last->against;
  document.others = last->others;
  document.changes = last->changes;
  document.history = std::move(history);
  document.offset = last->offset;
  document.time = last->time;
  document.text = last->text;
  document.kind = last->kind;
  document.node = last->node;
  document.node_type = last->node_type;
  return document;
}

}  // namespace rubato::head
