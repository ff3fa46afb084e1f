#include "reconcile/autoscale.h"

#include <gtest/gtest.h>

#include "reconcile/cluster_testing.h"
#include "reconcile/consolidate.h"

namespace rubato::reconcile {
namespace {

using Counts = std::map<std::string, int>;

// What one plan does: launches by type, removals, the words of what is held.
struct Done {
  Counts launched;
  std::vector<std::string> removed;
  std::vector<NodeRequested> requests;
  std::vector<NodeRemoving> removals;
  std::optional<Reasons> held;
  std::optional<NodeDraining> drained;
  Wake wake;
};

Done scale(History& history) {
  Done done;
  for (const Event& event : advance_scale(history.state, history.now, done.wake)) {
    if (const auto* request = std::get_if<NodeRequested>(&event)) {
      ++done.launched[request->type];
      done.requests.push_back(*request);
    }
    if (const auto* removing = std::get_if<NodeRemoving>(&event)) {
      done.removed.push_back(removing->node.value);
      done.removals.push_back(*removing);
    }
    if (const auto* held = std::get_if<ScaleHeld>(&event)) done.held = held->reasons;
    if (const auto* draining = std::get_if<NodeDraining>(&event)) done.drained = *draining;
    history.add(event);
  }
  return done;
}

// Everything that was asked for joins.
void join_all(History& history) {
  for (const auto& [id, node] : std::map(history.state.nodes)) {
    if (node.phase != NodePhase::kRequested) continue;
    history.add(NodeCreated{id, node.runtime});
    history.add(History::joined(id, "agent-" + id.value, history.state.spec->types.at(node.type).resources));
  }
}

History empty_cluster(int max, double each = 4) {
  History history;
  history.configure({node_type("n", cpus(each), 0, max)});
  return history;
}

Offering offering(const std::string& zone, Market market, double price) { return Offering{zone, market, price}; }

TEST(Demand, AJobInStepsGetsNodesForWholeStepsOnly) {
  History history = empty_cluster(5);
  JobSpec spec = job_of(8, 40, cpus(1));
  spec.workers_step = 8;
  history.submit(spec);
  // Its minimum and one step more; a fifth node would hold half of the next.
  EXPECT_EQ(scale(history).launched, (Counts{{"n", 4}}));
  join_all(history);
  const Done again = scale(history);
  EXPECT_EQ(again.launched, Counts{});
}

TEST(Demand, AGangGetsAllItsNodesOrNone) {
  History history = empty_cluster(3);
  history.submit(12, 12);
  const Done all = scale(history);
  EXPECT_EQ(all.launched, (Counts{{"n", 3}}));
  EXPECT_TRUE(all.requests.front().why.find("job j-00000001") != std::string::npos) << all.requests.front().why;

  History none = empty_cluster(3);
  none.submit(13, 13);
  const Done held = scale(none);
  EXPECT_EQ(held.launched, Counts{});
  ASSERT_TRUE(held.held);
  EXPECT_FALSE(held.held->against.empty());
}

TEST(Demand, ElasticJobsWantTheirMaximum) {
  History history = empty_cluster(4);
  history.submit(1, 8);
  EXPECT_EQ(scale(history).launched, (Counts{{"n", 2}}));
  History running = empty_cluster(4);
  running.node_up("n");
  running.running(job_of(1, 8), {{"n-1", 4}});
  EXPECT_EQ(scale(running).launched, (Counts{{"n", 1}}));
}

TEST(Demand, AJobWhoseFirstWorkersAreDoneDoesNotGrow) {
  History history = empty_cluster(4);
  history.nodes_up("n", 2);
  const JobId job = history.running(job_of(1, 16), {{"n-1", 4}, {"n-2", 4}});
  history.add(SeatDone{job, 1, NodeId{"n-1"}});
  EXPECT_EQ(scale(history).launched, Counts{});
}

TEST(Demand, WorkersThatAreLeavingMakeRoom) {
  History history = empty_cluster(4);
  history.node_up("n");
  const JobId first = history.running(job_of(4, 4), {{"n-1", 4}});
  history.submit(4, 4);
  history.add(JobStopping{first, false, "asked"});
  EXPECT_EQ(scale(history).launched, Counts{}) << "the first one's workers go";
}

TEST(Demand, ANodeThatAJobShunsIsNoRoomForIt) {
  History history = empty_cluster(4);
  history.nodes_up("n", 1);
  const JobId job = history.submit(4, 4);
  history.place(job, {{"n-1", 4}});
  JobPlaced placed;
  placed.job = job;
  placed.generation = 2;
  placed.shunned = {NodeId{"n-1"}};
  history.add(placed);
  history.add(JobHeld{job, {}});
  history.add(SeatVacated{job, NodeId{"n-1"}});
  EXPECT_EQ(scale(history).launched, (Counts{{"n", 1}}));
}

TEST(Demand, ARequestLaunchesNodesAndKeepsThem) {
  History history = empty_cluster(4);
  history.add(ResourcesRequested{{Bundle{cpus(1), 8}}});
  EXPECT_EQ(scale(history).launched, (Counts{{"n", 2}}));
  join_all(history);
  history.pass(1h);
  const Done kept = scale(history);
  EXPECT_EQ(kept.removed, std::vector<std::string>{});
  EXPECT_EQ(kept.launched, Counts{});
  history.add(ResourcesRequested{{Bundle{cpus(1), 4}}});
  EXPECT_EQ(scale(history).removed.size(), 1u);
  history.add(ResourcesRequested{});
  EXPECT_EQ(scale(history).removed.size(), 1u);
}

TEST(Demand, InitialWorkersAreThereForTheFirstIdleTime) {
  ClusterSpec spec = cluster_of({node_type("n", cpus(4), 0, 5)});
  spec.scaling.initial_workers = 2;
  History history;
  history.add(ClusterConfigured{spec, "text"});
  const Done first = scale(history);
  EXPECT_EQ(first.launched, (Counts{{"n", 2}}));
  EXPECT_EQ(first.wake.at, later(history.now, 5min));
  join_all(history);
  history.pass(6min);
  EXPECT_EQ(scale(history).removed.size(), 2u);
}

TEST(Demand, ASeedEraFileScalesByUtilisation) {
  ClusterSpec spec = cluster_of({node_type("n", cpus(4), 0, 10)});
  spec.scaling.target_utilization = 0.5;
  spec.scaling.upscaling_speed = 100;
  History history;
  history.add(ClusterConfigured{spec, "text"});
  history.nodes_up("n", 2);
  history.running(job_of(8, 8), {{"n-1", 4}, {"n-2", 4}});
  EXPECT_GE(scale(history).launched["n"], 1) << "both are full: the target is half";
}

TEST(Demand, AMachineOfUnknownSizeIsTriedOnce) {
  History history;
  history.configure({node_type("host", Resources(), 0, 3)});
  EXPECT_EQ(scale(history).launched, Counts{});
  history.submit(6, 6);
  EXPECT_EQ(scale(history).launched, (Counts{{"host", 1}}));
  EXPECT_EQ(scale(history).launched, Counts{});
  history.add(NodeCreated{NodeId{"host-1"}, ""});
  history.add(History::joined(NodeId{"host-1"}, "a", cpus(2)));
  EXPECT_EQ(scale(history).launched, (Counts{{"host", 2}})) << "now it is known what one holds";
}

TEST(Launches, NodesOnTheirWayCountAsThere) {
  History history = empty_cluster(10);
  history.submit(8, 8);
  EXPECT_EQ(scale(history).launched, (Counts{{"n", 2}}));
  EXPECT_EQ(scale(history).launched, Counts{});
  history.add(NodeCreated{NodeId{"n-1"}, ""});
  EXPECT_EQ(scale(history).launched, Counts{});
}

TEST(Launches, KeepTheLimits) {
  History history;
  history.configure({node_type("a", cpus(1), 0, 2), node_type("b", cpus(1), 0, 9)});
  ClusterSpec spec = *history.state.spec;
  spec.max_workers = 5;
  history.add(ClusterConfigured{spec, "text"});
  for (int i = 0; i < 20; ++i) history.submit(1, 1);
  Counts all;
  for (int i = 0; i < 5; ++i) {
    for (const auto& [type, count] : scale(history).launched) all[type] += count;
    join_all(history);
  }
  EXPECT_LE(all["a"], 2);
  EXPECT_EQ(all["a"] + all["b"], 5);
  EXPECT_FALSE(history.state.held.against.empty());
  EXPECT_EQ(history.state.held.against.front().where, "cluster.yaml:3:14");
}

// Two types, each with a place of its own for its limit.
History two_types(int large_max) {
  History history;
  NodeType small = node_type("small", cpus(1), 0, 5), large = node_type("large", cpus(8), 0, large_max);
  small.resources_where = "cluster.yaml:11:16";
  large.max_where = "cluster.yaml:22:18";
  history.configure({small, large});
  return history;
}

TEST(Launches, SayWhereTheLimitOfTheRightTypeStands) {
  History held = two_types(1);
  held.submit(2, 2, cpus(8));
  const Done none = scale(held);
  EXPECT_EQ(none.launched, Counts{});
  ASSERT_TRUE(none.held);
  EXPECT_EQ(none.held->against.front().text, "max_workers of large is 1");
  EXPECT_EQ(none.held->against.front().where, "cluster.yaml:22:18");

  // The alternative that was too small is small's affair, not that of the type that was taken.
  History taken = two_types(1);
  taken.submit(1, 1, cpus(8));
  const Done one = scale(taken);
  ASSERT_EQ(one.launched, (Counts{{"large", 1}}));
  const Reasons& reasons = one.requests.front().reasons;
  ASSERT_EQ(reasons.others.size(), 1U);
  EXPECT_EQ(reasons.others.front().text, "small: too small, a bundle needs 8 CPU");
  EXPECT_EQ(reasons.others.front().where, "cluster.yaml:11:16");
}

TEST(Launches, AreSpreadOverTimeBySpeedAndConcurrency) {
  History history = empty_cluster(100, 1);
  for (int i = 0; i < 50; ++i) history.submit(1, 1);
  EXPECT_EQ(scale(history).launched, (Counts{{"n", 5}})) << "five at a time when none is there";
  ClusterSpec spec = *history.state.spec;
  spec.scaling.launch_concurrency = 7;
  spec.scaling.upscaling_speed = 100;
  history.add(ClusterConfigured{spec, "text"});
  join_all(history);
  EXPECT_EQ(scale(history).launched, (Counts{{"n", 7}}));
  EXPECT_EQ(scale(history).launched, Counts{});
}

TEST(Launches, TakeTheCheapestOfferingAndSayWhatElseThereWas) {
  NodeType small = node_type("small", cpus(4), 0, 10), gpu = node_type("gpu", cpus(4, 0, 1), 0, 10);
  small.offerings = {offering("z1", Market::kOnDemand, 0.2), offering("z2", Market::kSpot, 0.07)};
  gpu.offerings = {offering("z1", Market::kOnDemand, 3)};
  History history;
  history.configure({small, gpu});
  history.submit(4, 4);
  const Done done = scale(history);
  ASSERT_EQ(done.launched, (Counts{{"small", 1}}));
  const NodeRequested& request = done.requests.front();
  EXPECT_EQ(request.offering, offering("z2", Market::kSpot, 0.07));
  EXPECT_FALSE(request.reasons.wanted.empty());
  bool other = false;
  for (const Reasons::Obstacle& one : request.reasons.others) other |= one.text.find("gpu") != std::string::npos;
  EXPECT_TRUE(other) << "the other type is named";
}

TEST(Launches, FallBackWhenThereIsNoCapacityAndComeBack) {
  NodeType type = node_type("n", cpus(4), 0, 10);
  type.offerings = {offering("a", Market::kSpot, 0.1), offering("b", Market::kSpot, 0.1),
                    offering("a", Market::kOnDemand, 0.4)};
  History history;
  history.configure({type});
  history.submit(4, 4);
  std::vector<Offering> tried;
  for (int i = 0; i < 3; ++i) {
    const Done done = scale(history);
    ASSERT_EQ(done.requests.size(), 1u) << i;
    tried.push_back(done.requests.front().offering);
    history.add(NodeFailed{done.requests.front().node, "none left", LaunchFailure::kNoCapacity});
    history.add(NodeRemoving{done.requests.front().node, "none left"});
    history.add(NodeGone{done.requests.front().node});
  }
  EXPECT_EQ(tried[0].market, Market::kSpot);
  EXPECT_EQ(tried[1].market, Market::kSpot);
  EXPECT_NE(tried[0].zone, tried[1].zone);
  EXPECT_EQ(tried[2].market, Market::kOnDemand);
  const Done none = scale(history);
  EXPECT_TRUE(none.requests.empty());
  ASSERT_TRUE(none.held);
  ASSERT_TRUE(none.wake.at) << "it is tried again";
  history.now = *none.wake.at;
  EXPECT_EQ(scale(history).requests.size(), 1u);
}

TEST(Launches, AQuotaLeavesTheOtherMarket) {
  NodeType type = node_type("n", cpus(4), 0, 10);
  type.offerings = {offering("a", Market::kSpot, 0.1), offering("b", Market::kSpot, 0.1),
                    offering("a", Market::kOnDemand, 0.4)};
  History history;
  history.configure({type});
  history.submit(4, 4);
  const Done first = scale(history);
  history.add(NodeFailed{first.requests.at(0).node, "8 vCPUs", LaunchFailure::kQuota});
  EXPECT_EQ(scale(history).requests.at(0).offering.market, Market::kOnDemand);
}

TEST(Launches, StopAtThePriceCapAndTheBudgets) {
  NodeType type = node_type("n", cpus(4), 0, 10);
  type.offerings = {offering("", Market::kOnDemand, 1)};
  const auto with = [&](auto change) {
    ClusterSpec spec = cluster_of({type});
    change(spec.scaling);
    History history;
    history.add(ClusterConfigured{spec, "text"});
    history.submit(1, 12);
    return scale(history).launched["n"];
  };
  EXPECT_EQ(with([](Scaling&) {}), 3);
  EXPECT_EQ(with([](Scaling& scaling) { scaling.price_cap = 0.5; }), 0);
  EXPECT_EQ(with([](Scaling& scaling) { scaling.budget_per_hour = 2; }), 2);
  EXPECT_EQ(with([](Scaling& scaling) { scaling.budget = 0; }), 0) << "all is spent";
  EXPECT_EQ(with([](Scaling& scaling) { scaling.spot = SpotPolicy::kOnly; }), 0);
}

TEST(Launches, HaveTheirBaseOnDemand) {
  NodeType type = node_type("n", cpus(1), 0, 10);
  type.offerings = {offering("", Market::kSpot, 0.1), offering("", Market::kOnDemand, 1)};
  ClusterSpec spec = cluster_of({type});
  spec.scaling.on_demand_base = 2;
  History history;
  history.add(ClusterConfigured{spec, "text"});
  history.submit(1, 5);
  int spot = 0;
  const Done done = scale(history);
  for (const NodeRequested& request : done.requests) spot += request.offering.market == Market::kSpot ? 1 : 0;
  EXPECT_EQ(done.requests.size(), 5u);
  EXPECT_EQ(spot, 3);
}

TEST(Launches, NodesOnHostsOfOnesOwnCostNothing) {
  History history = empty_cluster(2);
  history.submit(1, 1);
  EXPECT_EQ(scale(history).requests.at(0).offering.price_per_hour, 0);
  ClusterSpec spec = cluster_of({node_type("n", cpus(4), 0, 2)});
  spec.provider = "external";
  History cloud;
  cloud.add(ClusterConfigured{spec, "text"});
  cloud.submit(1, 1);
  EXPECT_GT(scale(cloud).requests.at(0).offering.price_per_hour, 0) << "estimated";
}

TEST(Removal, IdleNodesGoAfterTheirTimeAndNotBefore) {
  History history = empty_cluster(3);
  history.nodes_up("n", 2);
  const Done early = scale(history);
  EXPECT_TRUE(early.removed.empty());
  EXPECT_EQ(early.wake.at, later(history.now, 5min));
  history.pass(4min + 59s);
  EXPECT_TRUE(scale(history).removed.empty());
  history.pass(1s);
  const Done done = scale(history);
  EXPECT_EQ(done.removed, (std::vector<std::string>{"n-1", "n-2"}));
  EXPECT_EQ(done.removals.front().reason, "nothing to do for 5m00s");
  EXPECT_FALSE(done.removals.front().reasons.wanted.empty());
}

TEST(Removal, ATypeMayHaveItsOwnTime) {
  NodeType quick = node_type("quick", cpus(4), 0, 2), slow = node_type("slow", cpus(4), 0, 2);
  quick.idle_timeout = 10s;
  History history;
  history.configure({quick, slow});
  history.node_up("quick");
  history.node_up("slow");
  history.pass(11s);
  EXPECT_EQ(scale(history).removed, std::vector<std::string>{"quick-1"});
}

TEST(Removal, KeepsMinWorkersBusyNodesAndTheHead) {
  ClusterSpec spec = cluster_of({node_type("n", cpus(4), 1, 5)});
  spec.head_type = "n";
  History history;
  history.add(ClusterConfigured{spec, "text"});
  NodeRequested head{NodeId{"head"}, "n", launch_hash(spec, spec.types.at("n")), "the head"};
  head.head = true;
  history.add(head);
  history.add(NodeCreated{NodeId{"head"}, ""});
  history.add(History::joined(NodeId{"head"}, "a0", cpus(4)));
  history.nodes_up("n", 3);
  history.running(job_of(1, 1), {{"n-1", 1}});
  history.pass(1h);
  EXPECT_EQ(scale(history).removed, (std::vector<std::string>{"n-2", "n-3"}))
      << "n-1 is busy, and the one of min_workers";
  history.pass(1h);
  EXPECT_TRUE(scale(history).removed.empty());
}

TEST(Removal, AnIdleNodeThatWaitingWorkNeedsStays) {
  History history = empty_cluster(2);
  history.nodes_up("n", 1);
  history.pass(1h);
  // Held for another reason than room: one that has waited longer goes first.
  history.submit(4, 4);
  EXPECT_TRUE(scale(history).removed.empty());
}

TEST(Held, IsToldOnceAndTakenBack) {
  History history = empty_cluster(1);
  const JobId job = history.submit(9, 9);
  EXPECT_TRUE(scale(history).held);
  EXPECT_FALSE(scale(history).held) << "nothing new";
  history.add(JobStopping{job, false, "asked"});
  history.add(JobEnded{job, JobResult::kStopped, ""});
  const Done met = scale(history);
  ASSERT_TRUE(met.held);
  EXPECT_TRUE(met.held->against.empty());
}

TEST(Held, NumbersAloneAreNotToldEachTime) {
  History history = empty_cluster(0);
  ClusterSpec spec = cluster_of({node_type("n", cpus(4), 0, 1)});
  history.add(ClusterConfigured{spec, "text"});
  history.node_up("n");
  history.running(job_of(4, 4), {{"n-1", 4}});
  history.submit(1, 1);
  EXPECT_TRUE(scale(history).held);
  history.submit(1, 1);
  const Done more = scale(history);
  EXPECT_FALSE(more.held);
  EXPECT_EQ(more.wake.at, later(history.now, kHeldAgain));
  history.pass(kHeldAgain);
  EXPECT_TRUE(scale(history).held);
}

// Two nodes of $1/h with half their room used by elastic jobs.
History half_used(Duration consolidate_after, int min, int max) {
  NodeType type = node_type("n", cpus(4), 0, 5);
  type.offerings = {offering("", Market::kOnDemand, 1)};
  ClusterSpec spec = cluster_of({type});
  spec.scaling.consolidate_after = consolidate_after;
  History history;
  history.add(ClusterConfigured{spec, "text"});
  for (const char* id : {"n-1", "n-2"}) {
    NodeRequested request{NodeId{id}, "n", launch_hash(spec, type), "test"};
    request.offering = type.offerings.front();
    history.add(request);
    history.add(NodeCreated{NodeId{id}, ""});
    history.add(History::joined(NodeId{id}, std::string("agent-") + id, cpus(4)));
  }
  history.running(job_of(min, max), {{"n-1", 2}});
  history.running(job_of(min, max), {{"n-2", 2}});
  return history;
}

TEST(Consolidation, MovesElasticWorkTogetherWhenItPays) {
  History history = half_used(10min, 1, 2);
  const Done early = scale(history);
  EXPECT_FALSE(early.drained);
  EXPECT_EQ(early.wake.at, later(history.now, 10min));
  history.pass(10min);
  const Done done = scale(history);
  ASSERT_TRUE(done.drained);
  EXPECT_FALSE(done.drained->reasons.wanted.empty());
  EXPECT_FALSE(scale(history).drained) << "one at a time";
}

TEST(Consolidation, LeavesFixedJobsAloneAndDoesNotPayAtOnce) {
  History fixed = half_used(10min, 2, 2);
  fixed.pass(1h);
  EXPECT_FALSE(scale(fixed).drained);
  History soon = half_used(30s, 1, 2);
  soon.pass(1h);
  EXPECT_FALSE(scale(soon).drained) << "a move costs a minute, and only 30 s are looked ahead";
  History hungry = half_used(10min, 1, 3);
  hungry.pass(1h);
  EXPECT_FALSE(scale(hungry).drained) << "they want more, not less";
}

TEST(WhenDue, ThePlanIsMadeOnceForTheSameState) {
  History history = empty_cluster(3);
  history.nodes_up("n", 1);
  Wake wake;
  const State& state = history.state;
  PlanMemory memory;
  advance_scale_when_due(state, memory, history.now, wake);
  EXPECT_EQ(memory.seen, state.scale_changes);
  const WallTime first = memory.at;
  history.pass(1min);
  Wake again;
  EXPECT_TRUE(advance_scale_when_due(state, memory, history.now, again).empty());
  EXPECT_EQ(memory.at, first) << "not asked again";
  EXPECT_EQ(again.at, later(first, 5min));
  history.submit(9, 9);
  Wake new_job;
  EXPECT_FALSE(advance_scale_when_due(state, memory, history.now, new_job).empty());
  EXPECT_EQ(memory.at, history.now);
  history.submit(1, 1);
  Wake too_soon;
  EXPECT_TRUE(advance_scale_when_due(state, memory, later(history.now, 1ms), too_soon).empty());
  EXPECT_EQ(too_soon.at, later(history.now, scale_every(state)));
}

}  // namespace
}  // namespace rubato::reconcile
