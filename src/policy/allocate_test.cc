#include "policy/allocate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "policy/allocate_testing.h"

namespace rubato::policy {
namespace {

size_t replicas(const AllocateDecision& decision, size_t job) { return decision.jobs[job].nodes.size(); }

TEST(Allocate, AJobAloneGrowsAsFarAsItGainsFromIt) {
  AllocateInput input{.nodes = test_nodes(4, 4), .jobs = {test_job("a", 1e6)}};
  input.jobs[0].model = test_model(0.1, 1000);
  EXPECT_EQ(replicas(allocate(input), 0), 16u);
  input.jobs[0].model = test_model(20, 0.01);  // a slow network, and nothing to gain from large batches
  EXPECT_LE(replicas(allocate(input), 0), 4u);
}

TEST(Allocate, LeastWorkLeftComesFirst) {
  AllocateInput input{.nodes = test_nodes(1, 1), .jobs = {test_job("long", 1e6), test_job("short", 1e4)}};
  AllocateDecision decision = allocate(input);
  EXPECT_EQ(replicas(decision, 0), 0u);
  EXPECT_EQ(replicas(decision, 1), 1u);
  EXPECT_EQ(decision.jobs[0].reason, "waits: others gain more from the room; 1 of 2 jobs come before it");
  input.jobs[0].priority = 2;
  decision = allocate(input);
  EXPECT_EQ(replicas(decision, 0), 1u);
  input.jobs[1].weight = 100;
  EXPECT_EQ(replicas(allocate(input), 1), 1u);
}

TEST(Allocate, WithoutDeclaredEndsTheJobWithLeastDoneComesFirst) {
  AllocateInput input{.nodes = test_nodes(1, 1), .jobs = {test_job("old", 10), test_job("new", 1e6)}};
  input.jobs[0].done_iters = 1e6;
  for (AllocateJob& job : input.jobs) job.total_iters.reset();
  EXPECT_EQ(replicas(allocate(input), 1), 1u);
}

TEST(Allocate, AnUnprofiledJobGetsItsLeast) {
  AllocateInput input{.nodes = test_nodes(2, 4), .jobs = {test_job("a", 1e5)}};
  input.jobs[0].model = {};
  AllocateDecision decision = allocate(input);
  EXPECT_EQ(replicas(decision, 0), 1u);
  EXPECT_FALSE(decision.jobs[0].batch);
  EXPECT_EQ(decision.jobs[0].reason, "1 worker: not profiled yet");
  input.jobs[0].min_replicas = 3;
  EXPECT_EQ(replicas(allocate(input), 0), 3u);
  input.jobs[0].attained_service_s = 1e4;  // it will hardly report any more
  EXPECT_GT(replicas(allocate(input), 0), 3u);
}

TEST(Allocate, AChangeMustPayForItsRestart) {
  AllocateInput input{.nodes = test_nodes(4, 4), .jobs = {test_job("a", 1e6)}};
  input.jobs[0].allocation = {"n2", "n2"};
  EXPECT_GT(replicas(allocate(input), 0), 2u);
  input.jobs[0].total_iters = 1000 + 300;  // it ends in less time than a restart takes
  const AllocateDecision decision = allocate(input);
  EXPECT_EQ(ids_of(input, decision.jobs[0]), (std::vector<std::string>{"n2", "n2"}));
  input.jobs[0].restart_cost_s = 0;
  EXPECT_GT(replicas(allocate(input), 0), 2u);
}

TEST(Allocate, UnchangedSizesStayWhereTheyAre) {
  AllocateInput input{.nodes = test_nodes(4, 4)};
  for (int i = 0; i < 6; ++i) input.jobs.push_back(test_job(fmt::format("j{}", i), 1e5 * (i + 1)));
  const AllocateDecision first = allocate(input);
  for (size_t i = 0; i < input.jobs.size(); ++i) input.jobs[i].allocation = ids_of(input, first.jobs[i]);
  const AllocateDecision second = allocate(input);
  for (size_t i = 0; i < input.jobs.size(); ++i)
    EXPECT_EQ(ids_of(input, second.jobs[i]), input.jobs[i].allocation) << i;
}

TEST(Allocate, DistributedJobsGetWholeNodes) {
  AllocateInput input{.nodes = test_nodes(3, 4), .jobs = {test_job("wide", 1e6), test_job("narrow", 1e3)}};
  input.jobs[0].min_replicas = input.jobs[0].max_replicas = 8;
  input.jobs[1].max_replicas = 1;
  input.jobs[1].allocation = {"n1"};
  const AllocateDecision decision = allocate(input);
  EXPECT_EQ(ids_of(input, decision.jobs[1]), std::vector<std::string>{"n1"});
  EXPECT_EQ(ids_of(input, decision.jobs[0]),
            (std::vector<std::string>{"n0", "n0", "n0", "n0", "n2", "n2", "n2", "n2"}));
}

TEST(Allocate, SmallJobsMakeRoomForWholeNodes) {
  AllocateInput input{.nodes = test_nodes(2, 4), .jobs = {test_job("wide", 1e6)}};
  input.jobs[0].min_replicas = input.jobs[0].max_replicas = 4;
  for (const char* node : {"n0", "n1"}) {
    input.jobs.push_back(test_job(std::string("on-") + node, 1e4));
    input.jobs.back().max_replicas = 1;
    input.jobs.back().allocation = {node};
  }
  const AllocateDecision decision = allocate(input);
  EXPECT_EQ(replicas(decision, 0), 4u);
  EXPECT_EQ(std::set<size_t>(decision.jobs[0].nodes.begin(), decision.jobs[0].nodes.end()).size(), 1u);
  EXPECT_EQ(replicas(decision, 1) + replicas(decision, 2), 2u);
}

TEST(Allocate, JobsThatAreNotPreemptibleStay) {
  AllocateInput input{.nodes = test_nodes(1, 4), .jobs = {test_job("fixed", 1e7), test_job("short", 10)}};
  input.jobs[0].preemptible = false;
  input.jobs[0].allocation = {"n0", "n0", "n0"};
  const AllocateDecision decision = allocate(input);
  EXPECT_EQ(ids_of(input, decision.jobs[0]), input.jobs[0].allocation);
  EXPECT_EQ(decision.jobs[0].reason, "not preemptible: stays with 3 workers");
  EXPECT_EQ(replicas(decision, 1), 1u);
}

TEST(Allocate, LostNodesAreNoSeats) {
  AllocateInput input{.nodes = test_nodes(1, 4), .jobs = {test_job("a", 1e6), test_job("b", 1e6)}};
  input.jobs[0].allocation = {"n0", "gone", "gone"};
  input.jobs[1].allocation = {"gone"};
  input.jobs[1].preemptible = false;
  const AllocateDecision decision = allocate(input);
  expect_rules(input, decision);
  EXPECT_GT(replicas(decision, 0) + replicas(decision, 1), 0u);
}

TEST(Allocate, SizesAreWholeSteps) {
  AllocateInput input{.nodes = test_nodes(4, 8), .jobs = {test_job("a", 1e6)}};
  input.jobs[0].step = 8;
  input.jobs[0].max_replicas = 31;
  EXPECT_EQ(replicas(allocate(input), 0) % 8, 0u);
  EXPECT_LE(replicas(allocate(input), 0), 24u);
  EXPECT_GT(replicas(allocate(input), 0), 0u);
}

TEST(Allocate, FasterNodesGoToWhoGainsFromThem) {
  AllocateInput input{.nodes = {test_node("slow", 4), test_node("fast", 4, "a100")},
                      .jobs = {test_job("same", 1e6), test_job("gains", 1e6)}};
  for (AllocateJob& job : input.jobs) job.min_replicas = job.max_replicas = 4;
  PerfParams fast = *input.jobs[1].model.perf;
  fast.alpha_c /= 5;
  fast.beta_c /= 5;
  input.jobs[1].model.perf_by_kind["a100"] = fast;
  const AllocateDecision decision = allocate(input);
  EXPECT_EQ(ids_of(input, decision.jobs[0]), std::vector<std::string>(4, "slow"));
  EXPECT_EQ(ids_of(input, decision.jobs[1]), std::vector<std::string>(4, "fast"));
}

TEST(Allocate, ScarceResourcesBesideTheGpuCount) {
  AllocateInput input{.nodes = test_nodes(1, 4), .jobs = {test_job("a", 1e6)}};
  input.nodes[0].resources.set(kCpu, 5000);
  input.jobs[0].resources.set(kCpu, 2000);
  EXPECT_EQ(replicas(allocate(input), 0), 2u);
}

TEST(Allocate, ADeadlineBringsAJobForward) {
  AllocateInput input{.now_s = 100, .nodes = test_nodes(1, 1), .jobs = {test_job("due", 2e5), test_job("short", 1e5)}};
  EXPECT_EQ(replicas(allocate(input), 1), 1u);
  input.jobs[0].deadline_s = 100 + 20000;
  EXPECT_EQ(replicas(allocate(input), 0), 1u);
}

TEST(Allocate, AJobThatHasMissedItsDeadlineDoesNotFallBehindAgain) {
  AllocateInput input{.now_s = 100, .nodes = test_nodes(1, 1), .jobs = {test_job("due", 2e5), test_job("short", 1e5)}};
  for (const double deadline : {101.0, 100.0, 99.0, -1e6}) {
    input.jobs[0].deadline_s = deadline;
    EXPECT_EQ(replicas(allocate(input), 0), 1u) << deadline;
  }
}

TEST(Allocate, ABoundOnSlowdownHelpsWhoHasWaited) {
  AllocateInput input{.nodes = test_nodes(1, 1), .jobs = {test_job("old", 2e5), test_job("short", 1e5)}};
  input.jobs[0].age_s = 1e6;
  EXPECT_EQ(replicas(allocate(input), 0), 0u);
  EXPECT_EQ(replicas(allocate(input, {.max_slowdown = 3}), 0), 1u);
}

TEST(Allocate, FairSharesEqually) {
  AllocateInput input{.nodes = test_nodes(4, 4)};
  for (int i = 0; i < 4; ++i) {
    input.jobs.push_back(test_job(fmt::format("j{}", i), std::pow(10, 3 + i)));
    input.jobs.back().age_s = 1e5;
  }
  const AllocateDecision decision = allocate(input, {.policy = AllocatePolicy::kFair});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(replicas(decision, i), 4u) << i;
}

TEST(Allocate, TellsWhichNodesAreWorthTheirMoney) {
  AllocateInput input{.nodes = test_nodes(4, 4), .jobs = {test_job("a", 1e6)}};
  input.jobs[0].max_replicas = 1;
  EXPECT_EQ(allocate(input).desired_nodes, 1);
  input.jobs[0].max_replicas = 64;
  input.jobs[0].model = test_model(0.01, 1e5);
  EXPECT_GT(allocate(input).desired_nodes, 4);
  for (AllocateNode& node : input.nodes) node.price_per_hour = 10;
  EXPECT_LE(allocate(input, {.budget_per_hour = 30}).desired_nodes, 3);
  input.nodes[0].price_per_hour = 1;  // the others cost ten times as much for the same
  EXPECT_LT(allocate({.nodes = input.nodes, .jobs = {test_job("b", 1e6)}}).desired_nodes, 4);
  input.jobs.clear();
  EXPECT_EQ(allocate(input).desired_nodes, 0);
}

TEST(Allocate, TheUtilityBandKeepsWhatIsWithinIt) {
  AllocateInput input{.nodes = test_nodes(2, 4), .jobs = {test_job("a", 1e6)}};
  input.jobs[0].max_replicas = 4;
  EXPECT_EQ(allocate(input, {.utility_band = std::pair(0.0, 1.0)}).desired_nodes, 2);
  EXPECT_NE(allocate(input, {.utility_band = std::pair(0.9, 1.0)}).desired_nodes, 2);
}

TEST(Allocate, SaysWhy) {
  AllocateInput input{.nodes = test_nodes(4, 4), .jobs = {test_job("a", 1e6)}};
  input.jobs[0].model = test_model(1, 3);
  const std::string reason = allocate(input).jobs[0].reason;
  EXPECT_NE(reason.find("throughput "), std::string::npos) << reason;
  EXPECT_NE(reason.find("/s × efficiency 0."), std::string::npos) << reason;
  EXPECT_NE(reason.find(" workers → "), std::string::npos) << reason;
  input.jobs[0].resources.set("TPU", 1000);
  EXPECT_EQ(allocate(input).jobs[0].reason, "waits: no node has 1 GPU, 1 TPU for it");
}

TEST(Allocate, MoreNodesNeverMakeTheTotalSmaller) {
  size_t before = 0;
  for (int nodes = 0; nodes < 20; ++nodes) {
    AllocateInput input{.nodes = test_nodes(nodes, 4)};
    for (int i = 0; i < 10; ++i) input.jobs.push_back(test_job(fmt::format("j{}", i), 1e4 * (i + 1)));
    size_t total = 0;
    const AllocateDecision decision = allocate(input);
    for (const JobAllocation& one : decision.jobs) total += one.nodes.size();
    EXPECT_GE(total, before);
    before = total;
  }
}

TEST(AllocateProperty, EveryDecisionKeepsTheRules) {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    Random random(seed);
    const AllocateInput input = random_state(random);
    for (const AllocatePolicy policy : {AllocatePolicy::kAdaptive, AllocatePolicy::kFair}) {
      const AllocateDecision decision = allocate(input, {.policy = policy});
      expect_rules(input, decision);
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    }
  }
}

TEST(AllocateProperty, TheOrderOfTheInputDoesNotMatter) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const AllocateInput input = random_state(random);
    AllocateInput other = input;
    std::reverse(other.jobs.begin(), other.jobs.end());
    const AllocateDecision one = allocate(input), two = allocate(other), again = allocate(input);
    for (size_t i = 0; i < input.jobs.size(); ++i) {
      EXPECT_EQ(one.jobs[i].nodes, again.jobs[i].nodes);
      EXPECT_EQ(one.jobs[i].nodes, two.jobs[input.jobs.size() - 1 - i].nodes) << "seed " << seed;
      EXPECT_EQ(one.jobs[i].reason, two.jobs[input.jobs.size() - 1 - i].reason);
    }
    EXPECT_EQ(one.desired_nodes, two.desired_nodes);
  }
}

// The decision becomes the allocation, some jobs go on, nodes come and go: what is left keeps its rules.
TEST(AllocateProperty, ItsOwnDecisionsAreGoodInputs) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    AllocateInput input = random_state(random, 20, 10);
    for (AllocateJob& job : input.jobs) job.allocation.clear();
    for (int round = 0; round < 10; ++round) {
      const AllocateDecision decision = allocate(input);
      expect_rules(input, decision);
      for (size_t i = 0; i < input.jobs.size(); ++i) {
        input.jobs[i].allocation = ids_of(input, decision.jobs[i]);
        input.jobs[i].age_s += 60;
        if (input.jobs[i].done_iters) *input.jobs[i].done_iters += 100;
      }
      if (random.chance(0.3) && !input.nodes.empty())
        input.nodes.erase(input.nodes.begin() + static_cast<long>(random.below(input.nodes.size())));
      if (random.chance(0.3)) input.nodes.push_back(test_node(fmt::format("r{}", round), 4));
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    }
  }
}

TEST(AllocateProperty, ThousandsOfGpusAreSharedToo) {
  Random random(5);
  AllocateInput input{.nodes = test_nodes(300, 8)};
  for (int i = 0; i < 800; ++i)
    input.jobs.push_back(test_job(fmt::format("j{}", i), std::pow(10, 2 + 5 * random.unit())));
  for (AllocateJob& job : input.jobs) job.max_replicas = 2400;
  const AllocateDecision decision = allocate(input);
  expect_rules(input, decision);
  size_t total = 0;
  for (const JobAllocation& one : decision.jobs) total += one.nodes.size();
  EXPECT_GT(total, 2300u);
}

}  // namespace
}  // namespace rubato::policy
