// The scaling decision, rule by rule.
#include "policy/scale.h"

#include <algorithm>

#include "core/error.h"
#include "policy/scale_bound.h"
#include "policy/scale_testing.h"

namespace rubato::policy {
namespace {

ScalePlan judged(const ScaleInput& input) {
  ScalePlan plan = plan_scale(input);
  judge(input, plan);
  return plan;
}

Counts launched(const ScaleInput& input) { return judged(input).launches_by_type(); }

std::vector<std::string> removed(const ScalePlan& plan) {
  std::vector<std::string> out;
  for (const PlannedTermination& one : plan.terminations) out.push_back(one.id.value);
  return out;
}

const ScaleReason* reason_for(const ScalePlan& plan, ScaleReason::Kind kind, const std::string& subject) {
  const auto found = std::find_if(plan.reasons.begin(), plan.reasons.end(), [&](const ScaleReason& reason) {
    return reason.kind == kind && reason.subject == subject;
  });
  return found == plan.reasons.end() ? nullptr : &*found;
}

bool says(const std::vector<ScaleReason::Against>& against, ScaleLimit limit, const std::string& message) {
  return std::any_of(against.begin(), against.end(), [&](const ScaleReason::Against& one) {
    return one.limit == limit && one.whole().find(message) != std::string::npos;
  });
}

TEST(Scale, NothingToDo) {
  const ScalePlan plan = judged(three_types());
  EXPECT_TRUE(plan.launches.empty());
  EXPECT_TRUE(plan.terminations.empty());
  EXPECT_EQ(plan.cost_per_hour, 0);
}

TEST(Scale, TakesTheCheapestNodesThatHoldTheDemand) {
  ScaleInput input = three_types();
  input.demands = {{cpu(1), 2}};
  EXPECT_EQ(launched(input), (Counts{{"small", 1}}));
  input.demands = {{cpu(4), 4}};
  EXPECT_EQ(launched(input), (Counts{{"large", 1}}));
  input.demands = {{cpu(16), 1}, {cpu(1), 1}};
  EXPECT_EQ(launched(input), (Counts{{"large", 1}, {"small", 1}}));
}

TEST(Scale, KeepsCpuWorkOffGpuMachinesUnlessTheirCpusAreThereAnyway) {
  ScaleInput input = three_types();
  input.demands = {{cpu(8), 2}};
  EXPECT_EQ(launched(input), (Counts{{"large", 1}}));
  input.demands = {{gpu(1, 1), 2}, {cpu(7), 2}};
  EXPECT_EQ(launched(input), (Counts{{"gpu", 2}})) << "a GPU machine has seven CPUs to spare";
  input.types["large"].max_workers = 0;
  input.types["small"].max_workers = 0;
  input.demands = {{cpu(8), 1}};
  EXPECT_EQ(launched(input), (Counts{{"gpu", 1}})) << "no other fits";
}

TEST(Scale, FillsNodesThatAreThereOrComingFirst) {
  ScaleInput input = three_types();
  input.nodes = {worker("n1", "large", cpu(6))};
  input.launching = {{.type = "small", .count = 2}};
  input.demands = {{cpu(2), 5}};
  EXPECT_EQ(launched(input), Counts{});
  input.demands = {{cpu(2), 6}};
  EXPECT_EQ(launched(input), (Counts{{"small", 1}}));
}

TEST(Scale, TheHeadsRoomCountsToo) {
  ScaleInput input = three_types();
  input.nodes = {{.id = {"h"}, .type = "head", .head = true, .available = cpu(3)}};
  input.demands = {{cpu(1), 3}};
  EXPECT_EQ(launched(input), Counts{});
}

TEST(Scale, ANodeThatLeavesTakesNoWorkButCounts) {
  ScaleInput input = three_types();
  input.nodes = {worker("n1", "small")};
  input.nodes[0].leaving = true;
  input.demands = {{cpu(2), 1}};
  EXPECT_EQ(launched(input), (Counts{{"small", 1}}));
  input.max_workers = 1;
  EXPECT_EQ(judged(input).unfulfilled.at(0).limit, ScaleLimit::kMax);
}

TEST(Scale, MinWorkersComeFirst) {
  ScaleInput input = three_types();
  input.types["large"].min_workers = 2;
  input.demands = {{cpu(2), 3}};
  const ScalePlan plan = judged(input);
  EXPECT_EQ(plan.launches_by_type(), (Counts{{"large", 2}})) << "and the demand fits there";
  EXPECT_EQ(plan.launches.at(0).why, "2 for min_workers, room for 3 waiting bundles");
  EXPECT_FALSE(plan.launches.at(0).for_minimum);
  input.max_workers = 1;
  const ScalePlan cut = judged(input);
  EXPECT_EQ(cut.launches_by_type(), (Counts{{"large", 1}}));
  EXPECT_NE(reason_for(cut, ScaleReason::Kind::kUnfulfilled, "large"), nullptr);
}

TEST(Scale, LimitsAreKeptAndNamed) {
  ScaleInput input = three_types();
  input.demands = {{cpu(16), 3}};
  input.max_workers = 2;
  ScalePlan plan = judged(input);
  EXPECT_EQ(plan.launches_by_type(), (Counts{{"large", 2}}));
  ASSERT_EQ(waiting(plan), 1);
  EXPECT_EQ(plan.unfulfilled[0].limit, ScaleLimit::kMax);
  EXPECT_EQ(plan.unfulfilled[0].why, "max_workers is 2");
  EXPECT_EQ(reason_for(plan, ScaleReason::Kind::kUnfulfilled, "16 CPU")->changes.at(0),
            "max_workers of 3: 1 more, the launches would cost $2.40/h");

  input.max_workers = 100;
  input.types["large"].max_workers = 1;
  plan = judged(input);
  EXPECT_EQ(waiting(plan), 2);
  EXPECT_EQ(plan.unfulfilled[0].limit, ScaleLimit::kTypeMax);
  EXPECT_EQ(plan.unfulfilled[0].why, "max_workers of large is 1");
  EXPECT_EQ(plan.unfulfilled[0].type, "large");

  input.demands = {{cpu(17), 1}};
  plan = judged(input);
  EXPECT_EQ(plan.unfulfilled.at(0).limit, ScaleLimit::kTooLarge);
  EXPECT_EQ(reason_for(plan, ScaleReason::Kind::kUnfulfilled, "17 CPU")->changes.at(0),
            "a node type with at least 17 CPU");
}

TEST(Scale, TakesLargerNodesWhenTheirNumberIsShort) {
  ScaleInput input = three_types();
  input.types["large"].price_per_hour = 1.6;  // small ones are cheaper for the same CPUs
  input.demands = {{cpu(2), 8}};
  EXPECT_EQ(launched(input), (Counts{{"small", 8}}));
  input.max_workers = 1;
  EXPECT_EQ(launched(input), (Counts{{"large", 1}}));
}

TEST(Scale, ATypeAtItsLimitGivesWayToADearerOne) {
  ScaleInput input = three_types();
  input.types["small"].max_workers = 1;
  input.demands = {{cpu(2), 9}};
  EXPECT_EQ(launched(input), (Counts{{"small", 1}, {"large", 1}}));
  input.demands = {{cpu(2), 2}};  // the dearer one holds both
  EXPECT_EQ(launched(input), (Counts{{"large", 1}}));
}

TEST(Scale, UpscalingSpeedBoundsTheLaunchesUnderWay) {
  ScaleInput input = three_types();
  input.upscaling_speed = 1;
  input.types.erase("small");
  input.demands = {{cpu(16), 20}};
  ScalePlan plan = judged(input);
  EXPECT_EQ(plan.launches_by_type(), (Counts{{"large", 5}})) << "five at least";
  EXPECT_EQ(waiting(plan), 15);
  EXPECT_EQ(plan.unfulfilled[0].limit, ScaleLimit::kUpscalingSpeed);
  input.launching = {{.type = "large", .count = 3}};
  EXPECT_EQ(launched(input), (Counts{{"large", 2}}));
  input.launching.clear();
  for (int at = 0; at < 7; ++at) input.nodes.push_back(worker("n" + std::to_string(at), "large", cpu(0)));
  EXPECT_EQ(launched(input), (Counts{{"large", 7}})) << "as many as run";
  input.launch_concurrency = 3;
  EXPECT_EQ(launched(input), (Counts{{"large", 3}}));
}

TEST(Scale, MinWorkersRequestsAndGangsDoNotWaitForUpscalingSpeed) {
  ScaleInput input = three_types();
  input.upscaling_speed = 1;
  input.types["large"].min_workers = 8;
  EXPECT_EQ(launched(input), (Counts{{"large", 8}}));
  input.types["large"].min_workers = 0;
  input.requests = {{cpu(16), 8}};
  EXPECT_EQ(launched(input), (Counts{{"large", 8}}));
  input.requests.clear();
  input.gangs = {{.bundles = {{cpu(16), 8}}}};
  EXPECT_EQ(launched(input), (Counts{{"large", 8}}));
}

TEST(ScaleGangs, AreAllOrNothing) {
  ScaleInput input = three_types();
  input.max_workers = 3;
  input.gangs = {{.name = "job j-1", .bundles = {{cpu(16), 4}}}};
  input.demands = {{cpu(16), 1}};
  const ScalePlan plan = judged(input);
  EXPECT_EQ(plan.launches_by_type(), (Counts{{"large", 1}})) << "the demand only";
  ASSERT_EQ(plan.unfulfilled.size(), 1U);
  EXPECT_EQ(plan.unfulfilled[0].gang, "job j-1");
  EXPECT_EQ(plan.unfulfilled[0].count, 4);
  EXPECT_EQ(plan.unfulfilled[0].limit, ScaleLimit::kMax);
}

TEST(ScaleGangs, GoBeforeDemands) {
  ScaleInput input = three_types();
  input.max_workers = 2;
  input.gangs = {{.bundles = {{cpu(16), 2}}}};
  input.demands = {{cpu(16), 5}};
  const ScalePlan plan = judged(input);
  EXPECT_EQ(waiting(plan), 5);
  EXPECT_EQ(
      std::count_if(plan.placements.begin(), plan.placements.end(), [](const Placement& one) { return one.gang == 0; }),
      2);
}

TEST(ScaleGangs, ASmallerOneGoesWhereALargerOneDoesNotFit) {
  ScaleInput input = three_types();
  input.max_workers = 2;
  input.gangs = {{.bundles = {{cpu(16), 3}}}, {.bundles = {{cpu(16), 2}}}};
  const ScalePlan plan = judged(input);
  EXPECT_EQ(plan.launches_by_type(), (Counts{{"large", 2}}));
  EXPECT_EQ(plan.unfulfilled.at(0).gang, "gang 1");
}

TEST(ScaleGangs, StrictSpreadTakesANodeEach) {
  ScaleInput input = three_types();
  input.nodes = {worker("n1", "large")};
  input.gangs = {{.strategy = GangStrategy::kStrictSpread, .bundles = {{cpu(2), 3}}}};
  EXPECT_EQ(launched(input), (Counts{{"small", 2}}));
  input.max_workers = 2;
  const ScalePlan plan = judged(input);
  EXPECT_TRUE(plan.launches.empty());
  EXPECT_EQ(waiting(plan), 3);
}

TEST(ScaleGangs, StrictPackTakesOneNode) {
  ScaleInput input = three_types();
  input.gangs = {{.strategy = GangStrategy::kStrictPack, .bundles = {{cpu(1), 2}, {cpu(2), 3}}}};
  EXPECT_EQ(launched(input), (Counts{{"large", 1}}));
  input.gangs[0].bundles.push_back({cpu(9), 1});
  EXPECT_EQ(judged(input).unfulfilled.at(0).limit, ScaleLimit::kTooLarge);
}

TEST(ScaleGangs, PackMayUseSeveralNodes) {
  ScaleInput input = three_types();
  input.gangs = {{.strategy = GangStrategy::kPack, .bundles = {{cpu(16), 2}}},
                 {.strategy = GangStrategy::kSpread, .bundles = {{cpu(2), 2}}}};
  EXPECT_EQ(launched(input), (Counts{{"large", 2}, {"small", 2}}));
}

// How many bundles of the first gang each node has, whatever node that is.
std::vector<int64_t> heaps(const ScalePlan& plan) {
  std::map<std::tuple<Placement::On, size_t, int>, int64_t> on;
  for (const Placement& one : plan.placements) {
    if (one.gang == 0) on[{one.on, one.index, one.ordinal}] += one.count;
  }
  std::vector<int64_t> out;
  for (const auto& [node, count] : on) out.push_back(count);
  std::sort(out.begin(), out.end());
  return out;
}

TEST(ScaleGangs, PackWishesForOneNodeAndSpreadForManyAtTheSameCost) {
  ScaleInput input = three_types();  // a large one costs as much as the eight small ones that have as many CPUs
  input.gangs = {{.strategy = GangStrategy::kPack, .bundles = {{cpu(2), 8}}}};
  EXPECT_EQ(launched(input), (Counts{{"large", 1}}));
  EXPECT_EQ(heaps(judged(input)), (std::vector<int64_t>{8}));
  input.gangs[0].strategy = GangStrategy::kSpread;
  EXPECT_EQ(launched(input), (Counts{{"small", 8}}));
  EXPECT_EQ(heaps(judged(input)), (std::vector<int64_t>(8, 1)));
}

TEST(ScaleGangs, AWishIsWorthNoMoney) {
  ScaleInput input = three_types();
  input.types["large"].price_per_hour = 0.9;
  input.gangs = {{.strategy = GangStrategy::kPack, .bundles = {{cpu(2), 8}}}};
  EXPECT_EQ(launched(input), (Counts{{"small", 8}}));
  input.types["large"].price_per_hour = 0.7;
  input.gangs[0].strategy = GangStrategy::kSpread;
  EXPECT_EQ(launched(input), (Counts{{"large", 1}}));
  // Two of the dearer kind are needed anyway: then half of the bundles go to each.
  input.gangs[0].bundles = {{cpu(5), 4}};
  EXPECT_EQ(launched(input), (Counts{{"large", 2}}));
  EXPECT_EQ(heaps(judged(input)), (std::vector<int64_t>{2, 2}));
}

TEST(ScaleGangs, WishesAreHeededOnNodesThatAreThere) {
  ScaleInput input = three_types();
  input.nodes = {worker("a", "small", cpu(1)), worker("b", "small", cpu(1)), worker("c", "large", cpu(3)),
                 worker("d", "large", {}, 10min)};
  input.gangs = {{.strategy = GangStrategy::kPack, .bundles = {{cpu(1), 3}}}};
  ScalePlan plan = judged(input);
  EXPECT_EQ(heaps(plan), (std::vector<int64_t>{3}));
  EXPECT_TRUE(plan.launches.empty());
  EXPECT_EQ(removed(plan), (std::vector<std::string>{"d"}));  // c has the room
  input.gangs[0].strategy = GangStrategy::kSpread;
  plan = judged(input);
  EXPECT_EQ(heaps(plan), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_TRUE(plan.launches.empty());
  // More than there are nodes: as even as they can be, and nothing is launched for it.
  input.gangs[0].bundles = {{cpu(1), 6}};
  plan = judged(input);
  EXPECT_TRUE(plan.launches.empty());
  EXPECT_EQ(heaps(plan), (std::vector<int64_t>{1, 1, 2, 2}));
}

TEST(ScaleGangs, OneLargerThanAllNodesFailsAtOnce) {
  ScaleInput input = three_types();
  input.max_workers = 10'000'000;
  for (auto& [name, type] : input.types) type.max_workers = 10'000'000;
  for (const GangStrategy strategy : {GangStrategy::kStrictSpread, GangStrategy::kSpread, GangStrategy::kPack}) {
    input.gangs = {{.strategy = strategy, .bundles = {{cpu(1), 1'000'000'000}}}};
    EXPECT_EQ(waiting(plan_scale(input)), 1'000'000'000) << to_string(strategy);
  }
}

TEST(ScalePriority, GoesBeforeThePrice) {
  ScaleInput input = three_types();
  input.demands = {{cpu(2), 3}};
  EXPECT_EQ(launched(input), (Counts{{"small", 3}}));
  input.types["gpu"].priority = 5;
  input.types["large"].priority = -1;
  EXPECT_EQ(launched(input), (Counts{{"gpu", 1}}));
  const ScalePlan plan = judged(input);
  const ScaleReason* reason = reason_for(plan, ScaleReason::Kind::kLaunch, "gpu");
  ASSERT_NE(reason, nullptr);
  EXPECT_TRUE(says(reason->against, ScaleLimit::kDearer, "small: its priority 0 is below 5 of gpu"));
  // What it cannot hold, or has no nodes for, goes to the next.
  input.types["gpu"].max_workers = 1;
  input.demands = {{cpu(8), 1}, {cpu(2), 2}, {cpu(10), 1}};
  EXPECT_EQ(launched(input), (Counts{{"gpu", 1}, {"large", 1}, {"small", 2}}));
  input.demands = {};
  input.gangs = {{.strategy = GangStrategy::kStrictSpread, .bundles = {{cpu(1), 2}}}};
  EXPECT_EQ(launched(input), (Counts{{"gpu", 1}, {"small", 1}}));
}

TEST(ScaleRequests, CountWhatNodesCanHoldNotWhatIsFree) {
  ScaleInput input = three_types();
  input.nodes = {worker("n1", "large", cpu(0))};
  input.requests = {{cpu(8), 2}};
  EXPECT_EQ(launched(input), Counts{});
  input.requests = {{cpu(8), 3}};
  EXPECT_EQ(launched(input), (Counts{{"large", 1}}));
}

TEST(ScaleRequests, ShareNodesWithDemands) {
  ScaleInput input = three_types();
  input.requests = {{cpu(8), 1}};
  input.demands = {{gpu(1, 4), 1}};
  EXPECT_EQ(launched(input), (Counts{{"gpu", 1}})) << "the GPU machine holds the request as well";
}

TEST(ScaleRequests, KeepIdleNodesAlive) {
  ScaleInput input = three_types();
  input.nodes = {worker("n1", "large", {}, 10min), worker("n2", "large", {}, 20min)};
  input.requests = {{cpu(16), 1}};
  const ScalePlan plan = judged(input);
  EXPECT_EQ(removed(plan), std::vector<std::string>{"n2"});
  EXPECT_EQ(reason_for(plan, ScaleReason::Kind::kKeep, "n1")->text,
            "idle for 10m00s, but an explicit request needs it");
}

TEST(ScaleIdle, NodesGoAfterTheTimeout) {
  ScaleInput input = three_types();
  input.nodes = {worker("n1", "small", {}, 4min), worker("n2", "small", {}, 6min), worker("n3", "small", cpu(1), 6min),
                 worker("n4", "small")};
  EXPECT_EQ(removed(judged(input)), std::vector<std::string>{"n2"}) << "n3 is in use, n1 is not idle long enough";
  input.idle_timeout = 1min;
  EXPECT_EQ(removed(judged(input)), (std::vector<std::string>{"n1", "n2"}));
}

TEST(ScaleIdle, TheHeadAndWhatIsHeldNeverGo) {
  ScaleInput input = three_types();
  input.nodes = {worker("h", "head", {}, 1h), worker("n1", "small", {}, 1h)};
  input.nodes[0].head = true;
  input.nodes[1].keep = "job j-1 has its files there";
  const ScalePlan plan = judged(input);
  EXPECT_TRUE(plan.terminations.empty());
  EXPECT_EQ(reason_for(plan, ScaleReason::Kind::kKeep, "n1")->text, "idle for 1h00m, but job j-1 has its files there");
}

TEST(ScaleIdle, MinWorkersStayTheMostRecentlyUsedOnes) {
  ScaleInput input = three_types();
  input.types["small"].min_workers = 1;
  input.nodes = {worker("n1", "small", {}, 10min), worker("n2", "small", {}, 8min), worker("n3", "small", {}, 9min)};
  EXPECT_EQ(removed(judged(input)), (std::vector<std::string>{"n1", "n3"}));
}

TEST(ScaleIdle, ANodeThatWaitingWorkNeedsStays) {
  ScaleInput input = three_types();
  input.nodes = {worker("n1", "small", {}, 10min), worker("n2", "small", {}, 10min)};
  input.demands = {{cpu(1), 2}};
  const ScalePlan plan = judged(input);
  EXPECT_EQ(removed(plan).size(), 1U) << "both bundles go to one node";
  EXPECT_TRUE(plan.launches.empty());
}

TEST(ScaleIdle, NodesBeyondTheLimitsGoAtOnceWhenNothingRunsThere) {
  ScaleInput input = three_types();
  input.types["small"].max_workers = 1;
  input.nodes = {worker("n1", "small", cpu(0)), worker("n2", "small"), worker("n3", "small", {}, 1min),
                 worker("n4", "older")};
  const ScalePlan plan = judged(input);
  EXPECT_EQ(removed(plan), (std::vector<std::string>{"n2", "n3", "n4"}));
  EXPECT_EQ(plan.terminations[2].why, "idle, and the type older is not in the file any more");
}

TEST(ScaleSpot, IsPreferredWhereItIsCheaper) {
  ScaleInput input = three_types();
  input.types["small"].offerings = {{.zone = "a", .market = Market::kOnDemand},
                                    {.zone = "a", .market = Market::kSpot},
                                    {.zone = "b", .market = Market::kSpot, .price_per_hour = 0.02}};
  input.demands = {{cpu(2), 1}};
  ScalePlan plan = judged(input);
  EXPECT_EQ(plan.launches.at(0).market, Market::kSpot);
  EXPECT_EQ(plan.launches.at(0).zone, "b");
  EXPECT_EQ(plan.cost_per_hour, 0.02);
  input.types["small"].offerings[2].blocked = "no capacity until 12:31";
  plan = judged(input);
  EXPECT_EQ(plan.launches.at(0).zone, "a");
  EXPECT_TRUE(plan.launches.at(0).estimated) << "35 % of on demand";
  EXPECT_TRUE(says(reason_for(plan, ScaleReason::Kind::kLaunch, "small")->against, ScaleLimit::kBlocked,
                   "spot in b: no capacity until 12:31"));
  input.spot = SpotPolicy::kNever;
  plan = judged(input);
  EXPECT_EQ(plan.launches.at(0).market, Market::kOnDemand);
  EXPECT_EQ(plan.cost_per_hour, 0.1);
}

TEST(ScaleSpot, OnlySpotWaitsWhenThereIsNone) {
  ScaleInput input = three_types();
  input.spot = SpotPolicy::kOnly;
  input.demands = {{cpu(2), 1}};
  EXPECT_EQ(judged(input).unfulfilled.at(0).limit, ScaleLimit::kSpotPolicy);
  input.types["large"].offerings = {{.market = Market::kSpot}};
  EXPECT_EQ(launched(input), (Counts{{"large", 1}}));
}

TEST(ScaleSpot, FallsBackAcrossOfferingsAndTypes) {
  ScaleInput input = three_types();
  input.types["small"].offerings = {{.zone = "a", .market = Market::kSpot, .limit = 1},
                                    {.zone = "a", .blocked = "no capacity"}};
  input.demands = {{cpu(2), 9}};
  const ScalePlan plan = judged(input);
  EXPECT_EQ(plan.launches_by_type(), (Counts{{"small", 1}, {"large", 1}}));
  EXPECT_TRUE(plan.unfulfilled.empty());
}

TEST(ScaleSpot, TheBaseIsOnDemand) {
  ScaleInput input = three_types();
  input.types["small"].offerings = {{.market = Market::kOnDemand}, {.market = Market::kSpot}};
  input.types.erase("large");
  input.on_demand_base = 2;
  input.nodes = {worker("n1", "small", cpu(0))};
  input.demands = {{cpu(2), 3}};
  const ScalePlan plan = judged(input);
  ASSERT_EQ(plan.launches.size(), 2U);
  EXPECT_EQ(plan.launches[0].market, Market::kOnDemand);
  EXPECT_EQ(plan.launches[0].count, 1) << "one is there already";
  EXPECT_EQ(plan.launches[1].count, 2);
}

TEST(ScaleMoney, BudgetAndCap) {
  ScaleInput input = three_types();
  input.nodes = {worker("n1", "large", cpu(0))};
  input.demands = {{cpu(16), 3}};
  input.budget_per_hour = 2.4;
  ScalePlan plan = judged(input);
  EXPECT_EQ(plan.launches_by_type(), (Counts{{"large", 2}})) << "0.8 are spent already";
  EXPECT_NEAR(plan.cluster_cost_per_hour, 2.4, 1e-9);
  EXPECT_EQ(plan.unfulfilled.at(0).limit, ScaleLimit::kBudget);
  input.budget_per_hour.reset();
  input.price_cap = 0.5;
  plan = judged(input);
  EXPECT_TRUE(plan.launches.empty());
  EXPECT_EQ(plan.unfulfilled.at(0).limit, ScaleLimit::kPriceCap);
}

TEST(ScaleMoney, UnknownPricesAreEstimatedLikeThoseOfLargeClouds) {
  EXPECT_NEAR(estimated_price(bundle({{kCpu, 2}, {kMemory, 8}})), 0.096, 0.001);
  EXPECT_NEAR(estimated_price(bundle({{kCpu, 32}, {kMemory, 256}})), 2.016, 0.05);
  EXPECT_NEAR(estimated_price(bundle({{kCpu, 8}, {kGpu, 1}, {kMemory, 61}})), 3.06, 0.01);
  Resources shared = cpu(2);  // Ray's object store is a part of the memory
  shared.set("object_store_memory", int64_t{1} << 33);
  EXPECT_EQ(estimated_price(shared), estimated_price(cpu(2)));
}

TEST(ScaleMoney, AlternativesAreNamedWithWhatTheyWouldCost) {
  ScaleInput input = three_types();
  input.demands = {{cpu(4), 4}};
  const ScalePlan plan = judged(input);
  const ScaleReason* const reason = reason_for(plan, ScaleReason::Kind::kLaunch, "large");
  ASSERT_NE(reason, nullptr);
  EXPECT_EQ(reason->text, "1 x large on demand at $0.8/h: room for 4 waiting bundles");
  EXPECT_TRUE(says(reason->against, ScaleLimit::kTooLarge, "small: too small, a bundle needs 4 CPU"));
  EXPECT_TRUE(says(reason->against, ScaleLimit::kDearer, "gpu: at least 2 of them, $6.00/h"));
}

TEST(ScaleMoney, TheBoundIsBelowThePlanAndNotFar) {
  ScaleInput input = three_types();
  Random random(7);
  for (int at = 0; at < 300; ++at) {
    const double cpus = 0.1 * static_cast<double>(1 + random.below(80));
    input.demands.push_back({random.chance(0.2) ? gpu(1, cpus) : cpu(cpus), 1});
  }
  const ScalePlan plan = judged(input);
  const double bound = cost_lower_bound(input);
  EXPECT_TRUE(plan.unfulfilled.empty());
  EXPECT_LE(bound, plan.cost_per_hour + 1e-9);
  EXPECT_LE(plan.cost_per_hour, bound * 1.05);
}

TEST(ScaleLegacy, WorkersFollowTheUse) {
  ScaleInput input = three_types();
  input.types = {{"head", input.types["head"]}, {"large", input.types["large"]}};
  input.types["large"].max_workers = 10;
  input.legacy = LegacyScaling{.target_utilization_fraction = 0.5, .worker_type = "large"};
  input.nodes = {{.id = {"h"}, .type = "head", .head = true, .available = cpu(0)},
                 worker("n1", "large", bundle({{kCpu, 4}, {kMemory, 64}}))};
  // (1 + 0.75) / 0.5 = 3.5: four nodes, one of them the head.
  EXPECT_EQ(launched(input), (Counts{{"large", 2}}));
  input.nodes[0].available = cpu(4);
  input.nodes[1] = worker("n1", "large", {}, 1h);
  EXPECT_EQ(removed(judged(input)), std::vector<std::string>{"n1"}) << "no use, no workers";
  input.legacy->initial_workers = 3;
  EXPECT_EQ(launched(input), Counts{}) << "initial workers are for bring-up";
  input.legacy->bringup = true;
  EXPECT_EQ(launched(input), (Counts{{"large", 2}}));
  input.legacy->bringup = false;
  input.legacy->aggressive = true;
  EXPECT_EQ(launched(input), Counts{}) << "no load";
  input.nodes[0].available = cpu(3);
  EXPECT_EQ(launched(input), (Counts{{"large", 2}}));
  input.legacy->initial_workers = 30;
  EXPECT_EQ(launched(input), (Counts{{"large", 9}})) << "ten at most";
}

TEST(Scale, BundlesThatNeedNothingAreFulfilled) {
  ScaleInput input = three_types();
  input.demands = {{Resources{}, 5}, {cpu(2), 0}};
  const ScalePlan plan = judged(input);
  EXPECT_TRUE(plan.launches.empty());
  EXPECT_TRUE(plan.unfulfilled.empty());
}

TEST(Scale, ManyEqualBundlesCostNoTimeEach) {
  ScaleInput input = three_types();
  input.max_workers = 3;
  input.demands = {{cpu(0.001), 1'000'000'000}};
  const ScalePlan plan = judged(input);
  EXPECT_EQ(plan.launches_by_type(), (Counts{{"large", 3}}));
  EXPECT_EQ(waiting(plan), 1'000'000'000 - 3 * 16'000);
}

TEST(Scale, ContradictionsAreErrors) {
  ScaleInput input = three_types();
  input.head_type = "nothing";
  EXPECT_THROW(plan_scale(input), Error);
  input = three_types();
  input.demands = {{cpu(1), -1}};
  EXPECT_THROW(plan_scale(input), Error);
  input = three_types();
  input.types["small"].offerings = {{.zone = "a"}, {.zone = "a"}};
  EXPECT_THROW(plan_scale(input), Error);
}

}  // namespace
}  // namespace rubato::policy
