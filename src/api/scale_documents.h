// Documents of the autoscaler: demand, decisions, costs, plans.
#pragma once

#include "api/reasons.h"

namespace rubato::api {

// One of the autoscaler, with its reasons.
struct ScaleDecision {
  static constexpr const char* kName = "ScaleDecision";
  uint64_t offset = 0;
  WallTime time{};
  std::string text;
  std::string kind;
  std::string subject;
  std::optional<std::string> node;
  std::optional<std::string> node_type;
  std::optional<std::string> wanted;
  std::vector<Obstacle> against;
  std::vector<Obstacle> others;
  std::vector<Change> changes;
};
template <class Io>
void fields(Io& io, ScaleDecision& d) {
  io("offset", d.offset, "its place in the journal");
  io("time", d.time, "");
  io("text", d.text, "");
  io("kind", d.kind, "", {"launch", "drain", "remove", "hold"});
  io("subject", d.subject, "");
  io("node", d.node, "");
  io("node_type", d.node_type, "");
  io("wanted", d.wanted, "");
  io("against", d.against, "");
  io("others", d.others, "alternatives, and what stands against each");
  io("changes", d.changes, "");
}

struct ScaleDecisions {
  static constexpr const char* kName = "ScaleDecisions";
  std::vector<ScaleDecision> decisions;
};
template <class Io>
void fields(Io& io, ScaleDecisions& d) {
  io("decisions", d.decisions, "the oldest first");
}

struct Bundle {
  static constexpr const char* kName = "Bundle";
  Resources resources;
  int64_t count = 1;
};
template <class Io>
void fields(Io& io, Bundle& d) {
  io("resources", d.resources, "of each");
  io("count", d.count, "");
}

struct Shortage {
  static constexpr const char* kName = "Shortage";
  std::string offering;
  std::string why;
  std::string error;
  int64_t failures = 0;
  WallTime until{};
};
template <class Io>
void fields(Io& io, Shortage& d) {
  io("offering", d.offering, "type, zone and market that had none");
  io("why", d.why, "");
  io("error", d.error, "what the provider said");
  io("failures", d.failures, "in a row");
  io("until", d.until, "it is not tried before");
}

struct NotLaunching {
  static constexpr const char* kName = "NotLaunching";
  std::optional<std::string> text;
  std::optional<WallTime> time;
  std::optional<uint64_t> offset;
  std::optional<std::string> wanted;
  std::optional<std::vector<Obstacle>> against, others;
  std::optional<std::vector<Change>> changes;
};
template <class Io>
void fields(Io& io, NotLaunching& d) {
  io("text", d.text, "what is wanted; all of this is absent when nothing is held back");
  io("time", d.time, "");
  io("offset", d.offset, "");
  io("wanted", d.wanted, "");
  io("against", d.against, "");
  io("others", d.others, "");
  io("changes", d.changes, "");
}

struct Autoscaler {
  static constexpr const char* kName = "Autoscaler";
  std::vector<std::string> demand;
  std::map<std::string, int64_t> launching;
  NotLaunching held;
  std::vector<Bundle> requests;
  std::vector<Shortage> shortages;
  double cost_per_hour = 0;
  double cost_so_far = 0;
};
template <class Io>
void fields(Io& io, Autoscaler& d) {
  io("demand", d.demand, "what waits for nodes, for people");
  io("launching", d.launching, "nodes that are coming, by type");
  io("held", d.held, "");
  io("requests", d.requests, "");
  io("shortages", d.shortages, "");
  io("cost_per_hour", d.cost_per_hour, "");
  io("cost_so_far", d.cost_so_far, "");
}

struct Machine {
  static constexpr const char* kName = "Machine";
  std::string node;
  std::string type;
  std::string phase;
  std::string zone;
  std::string market;
  double price_per_hour = 0;
  double age_s = 0;
  double cost = 0;
  Nullable<bool> exists;
};
template <class Io>
void fields(Io& io, Machine& d) {
  io("node", d.node, "");
  io("type", d.type, "");
  io("phase", d.phase, "");
  io("zone", d.zone, "");
  io("market", d.market, "");
  io("price_per_hour", d.price_per_hour, "");
  io("age_s", d.age_s, "");
  io("cost", d.cost, "so far");
  io("exists", d.exists, "null: the provider could not tell");
}

struct GoneMachines {
  static constexpr const char* kName = "GoneMachines";
  std::string type;
  int64_t nodes = 0;
  double hours = 0;
  double cost = 0;
};
template <class Io>
void fields(Io& io, GoneMachines& d) {
  io("type", d.type, "");
  io("nodes", d.nodes, "");
  io("hours", d.hours, "");
  io("cost", d.cost, "");
}

struct Audit {
  static constexpr const char* kName = "Audit";
  std::vector<Machine> owned;
  std::vector<std::string> leaked;
  bool complete = false;
  int64_t strays_removed = 0;
  std::vector<GoneMachines> gone;
  double cost_per_hour = 0;
  double cost_so_far = 0;
};
template <class Io>
void fields(Io& io, Audit& d) {
  io("owned", d.owned, "");
  io("leaked", d.leaked, "machines of this cluster that nobody knows");
  io("complete", d.complete, "the provider could tell what there is");
  io("strays_removed", d.strays_removed, "");
  io("gone", d.gone, "");
  io("cost_per_hour", d.cost_per_hour, "");
  io("cost_so_far", d.cost_so_far, "");
}

struct PlannedChange {
  static constexpr const char* kName = "PlannedChange";
  std::string action;
  std::string node_type;
  int64_t count = 0;
  std::string why;
};
template <class Io>
void fields(Io& io, PlannedChange& d) {
  io("action", d.action, "");
  io("node_type", d.node_type, "");
  io("count", d.count, "");
  io("why", d.why, "");
}

struct Configured {
  static constexpr const char* kName = "Configured";
  std::vector<PlannedChange> changes;
  int64_t wanted_nodes = 0;
};
template <class Io>
void fields(Io& io, Configured& d) {
  io("changes", d.changes, "");
  io("wanted_nodes", d.wanted_nodes, "");
}

struct Launch {
  static constexpr const char* kName = "Launch";
  std::string type;
  int64_t count = 0;
  std::string zone;
  std::string market;
  double price_per_hour = 0;
  bool estimated = false;
  std::string why;
};
template <class Io>
void fields(Io& io, Launch& d) {
  io("type", d.type, "");
  io("count", d.count, "");
  io("zone", d.zone, "");
  io("market", d.market, "");
  io("price_per_hour", d.price_per_hour, "of one");
  io("estimated", d.estimated, "the price is");
  io("why", d.why, "");
}

struct Termination {
  static constexpr const char* kName = "Termination";
  std::string id;
  std::string reason;
};
template <class Io>
void fields(Io& io, Termination& d) {
  io("id", d.id, "");
  io("reason", d.reason, "");
}

struct Plan {
  static constexpr const char* kName = "Plan";
  std::string cluster;
  std::vector<PlannedChange> changes;
  std::map<std::string, int64_t> launch;
  std::vector<Launch> launches;
  std::vector<Termination> terminate;
  std::vector<Json> unfulfilled;
  double cost_per_hour = 0;
  double cluster_cost_per_hour = 0;
  std::vector<Json> reasons;
};
template <class Io>
void fields(Io& io, Plan& d) {
  io("cluster", d.cluster, "its name");
  io("changes", d.changes, "what `up` does at once");
  io("launch", d.launch, "nodes by type");
  io("launches", d.launches, "");
  io("terminate", d.terminate, "");
  io("unfulfilled", d.unfulfilled, "bundles; [bundle, count] when there are many");
  io("cost_per_hour", d.cost_per_hour, "of what is launched");
  io("cluster_cost_per_hour", d.cluster_cost_per_hour, "of all of it then");
  io("reasons", d.reasons, "as of `rubato plan --json`: docs/autoscaler.md");
}

}  // namespace rubato::api
