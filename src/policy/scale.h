// plan_scale: which nodes to launch and which to let go, at the least cost. Pure; each result says why.
//
// The input is a plain value, so that `rubato plan --state`, the head's reconciler and the simulator ask the same
// question. In this order (as Ray has it):
//   min_workers   of each type;
//   requests      the cluster as a whole must be able to hold them, whatever runs there; they keep nodes alive;
//   gangs         all bundles or none;
//   demands       everything else that waits;
//   idle          what nobody needs goes after the idle time-out.
// Room on nodes that are there or coming is used first. What is left is packed into new nodes so that the sum of their
// prices is small; nothing stays unfulfilled that one more node within the limits could hold.
//
// The same input gives the same plan. The plan, once carried out, asks for nothing more: a second decision on nodes
// that are still coming launches none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "model/ids.h"
#include "model/market.h"
#include "model/resources.h"

namespace rubato::policy {

// PACK wishes for one node, SPREAD for a node for each bundle, where that costs nothing more; STRICT_ ones insist.
enum class GangStrategy { kPack, kSpread, kStrictPack, kStrictSpread, kAnywhere };
std::string_view to_string(GangStrategy strategy);  // "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD", "ANYWHERE"

// One way to get a node of a type.
struct Offering {
  std::string zone;  // empty: wherever the provider likes
  Market market = Market::kOnDemand;
  std::optional<double> price_per_hour;  // absent: the type's, or estimated from its resources
  std::string blocked;                   // why it cannot be had now ("no capacity until 12:31"); empty: it can
  std::optional<int> limit;              // nodes at most, with those that are there and coming
};

struct ScaleType {
  Resources resources;
  int min_workers = 0;
  int max_workers = 0;
  std::optional<double> price_per_hour;  // on demand; absent: estimated from the resources
  std::vector<Offering> offerings;       // empty: one, on demand, anywhere
  int64_t priority = 0;                  // a type is launched only when none of a higher one would do
};

struct ScaleNode {
  NodeId id;
  std::string type;  // of ScaleInput::types, or one that is not there any more: such a node takes no new work
  bool head = false;
  std::string zone;
  Market market = Market::kOnDemand;
  std::optional<Resources> available;  // absent: all is free
  Duration idle{};                     // for how long nothing has run there; zero: something runs, or just ended
  std::string keep;      // why it must not be removed ("job j-1 runs there"); empty: it may, when it is idle
  bool leaving = false;  // draining or being removed: it takes no new work, but counts against the limits
};

// Nodes with work on them where nothing that is asked for fits. They count against the limits, and need not be looked
// at one by one.
struct ScaleFull {
  std::string type;
  int count = 1;
  std::string zone;
  Market market = Market::kOnDemand;
  Resources left;  // the most that is free of each resource on one of them
};

// Nodes that were asked for and are not usable yet.
struct ScaleLaunching {
  std::string type;
  int count = 1;
  std::string zone;
  Market market = Market::kOnDemand;
};

// So many workers of one size.
struct Bundles {
  Resources each;
  int64_t count = 1;
};

struct Gang {
  std::string name;                                 // for the reasons ("job j-1"); may be empty
  GangStrategy strategy = GangStrategy::kAnywhere;  // of jobs: where their workers go is the queue's decision
  std::vector<Bundles> bundles;
};

// Ray's first autoscaler: so many workers that their use is this fraction of them. Absent in files of today.
struct LegacyScaling {
  double target_utilization_fraction = 0.8;
  int initial_workers = 0;
  bool aggressive = false;  // all initial workers as soon as there is load
  bool bringup = false;     // the cluster is being brought up: initial workers count
  std::string worker_type;
};

struct ScaleInput {
  std::map<std::string, ScaleType> types;
  std::string head_type;
  int max_workers = 0;
  double upscaling_speed = 1;             // launches under way of a type: at most max(5, speed * those that run or 1)
  std::optional<int> launch_concurrency;  // launches under way of all types
  Duration idle_timeout = 5min;

  std::vector<ScaleNode> nodes;
  std::vector<ScaleFull> full;  // besides `nodes`; not with requests and legacy scaling, which look into each node
  std::vector<ScaleLaunching> launching;

  std::vector<Bundles> demands;
  std::vector<Gang> gangs;
  std::vector<Bundles> requests;

  SpotPolicy spot = SpotPolicy::kPrefer;
  int on_demand_base = 0;                 // so many workers are on demand before the first on spot, where it can be had
  std::optional<double> price_cap;        // per node and hour
  std::optional<double> budget_per_hour;  // of all nodes
  std::optional<LegacyScaling> legacy;
};

// What stands against something.
enum class ScaleLimit {
  kNone,
  kTooLarge,        // no node type holds it
  kTypeMax,         // node_types.X.max_workers
  kMax,             // max_workers
  kUpscalingSpeed,  // launches under way
  kConcurrency,
  kBlocked,  // the offerings that would do cannot be had now
  kOfferingLimit,
  kSpotPolicy,
  kPriceCap,
  kBudget,
  kDearer,  // of an alternative: it would cost more, or has a lower priority
};
std::string_view to_string(ScaleLimit limit);  // "max_workers", "budget_per_hour", ...

struct PlannedLaunch {
  std::string type;
  std::string zone;
  Market market = Market::kOnDemand;
  int count = 0;
  double price_per_hour = 0;  // of one
  bool estimated = false;     // the price is
  bool for_minimum = false;   // all of them are there for min_workers, and hold nothing that waits
  std::string why;            // "min_workers", "10 bundles", ...
};

struct PlannedTermination {
  NodeId id;
  std::string why;
};

struct Unfulfilled {
  Resources each;
  int64_t count = 0;
  ScaleLimit limit = ScaleLimit::kNone;
  std::string type;  // the node type whose limit it is, where it is one type's
  std::string why;   // names the limit and its value
  std::string gang;  // the name of its gang or "request"; empty: a demand
};

// One decision, or one that was not taken, for `rubato why` and `rubato plan`.
struct ScaleReason {
  enum class Kind { kLaunch, kTerminate, kKeep, kUnfulfilled, kCost };
  struct Against {
    ScaleLimit limit = ScaleLimit::kNone;
    std::string type;     // the node type that the limit is of
    std::string subject;  // what was rejected: "large", "large spot in a"; empty: the text says it
    std::string text;     // by what: "too small"

    std::string whole() const { return subject.empty() ? text : subject + ": " + text; }
  };
  Kind kind = Kind::kLaunch;
  std::string subject;  // a node type, a node, or a bundle
  std::string text;
  std::vector<Against> against;      // alternatives, and what each was rejected by
  std::vector<std::string> changes;  // what would change it
};
std::string_view to_string(ScaleReason::Kind kind);  // "launch", "terminate", "keep", "unfulfilled", "cost"

// Where bundles were put. For gangs and demands only; requests take no room.
struct Placement {
  enum class On { kNode, kLaunching, kLaunch };
  On on = On::kNode;
  size_t index = 0;    // in ScaleInput::nodes, ScaleInput::launching or ScalePlan::launches
  int ordinal = 0;     // which of `count`
  int gang = -1;       // index of the gang; -1: a demand
  size_t bundles = 0;  // index in the demands, or in the gang's bundles
  int64_t count = 0;
};

struct ScalePlan {
  std::vector<PlannedLaunch> launches;           // by type, zone, market
  std::vector<PlannedTermination> terminations;  // in the order of the input
  std::vector<Unfulfilled> unfulfilled;
  std::vector<ScaleReason> reasons;
  std::vector<Placement> placements;  // of all bundles that are not unfulfilled
  double cost_per_hour = 0;           // of the launches
  double cluster_cost_per_hour = 0;   // of all nodes after this plan
  bool estimated = false;             // some price is

  std::map<std::string, int> launches_by_type() const;
};

// Throws a usage Error when the input contradicts itself (a node count below zero, a head type that is not there).
ScalePlan plan_scale(const ScaleInput& input);

// What a node with these resources costs per hour when nobody knows: on demand, as large clouds charge it.
double estimated_price(const Resources& resources);

}  // namespace rubato::policy
