#include "reconcile/admit.h"

#include <gtest/gtest.h>

#include "cluster/state_testing.h"
#include "model/limits.h"

namespace rubato::reconcile {
namespace {

using namespace cluster;  // NOLINT: a test of the same subject

SubmitJob submit(const std::string& id, const std::string& request_id = {}) {
  SubmitJob request;
  request.spec = job_of(1, 1);
  request.id = JobId{id};
  request.request_id = request_id;
  return request;
}

ConfigureCluster configure(int workers, const std::string& text) {
  ConfigureCluster request;
  request.spec = cluster_of({node_type("cpu", cpus(1), workers, workers)});
  request.text = text;
  return request;
}

// A cluster in memory into which everything goes through the front door.
struct Door {
  State state;
  uint64_t offset = 0;

  Admission ask(const Request& request, const AdmitLimits& limits = {}) {
    return admit(state, request, kTestStart, limits);
  }
  JobId let_in(const Request& request) {
    Admitted admitted = admit_or_throw(state, request, kTestStart);
    for (Event& event : admitted.events) apply(state, Record{++offset, kTestStart, std::move(event)});
    return admitted.job;
  }
  std::optional<Refusal> refusal(const Request& request, const AdmitLimits& limits = {}) {
    const Admission admission = ask(request, limits);
    const auto* const refused = std::get_if<Refused>(&admission);
    return refused ? std::optional(refused->reason) : std::nullopt;
  }
  bool asks_for_nothing(const Request& request) {
    const Admission admission = ask(request);
    const auto* const admitted = std::get_if<Admitted>(&admission);
    return admitted && admitted->events.empty();
  }
};

TEST(Admit, TheSameRequestIsTheSameJob) {
  Door door;
  EXPECT_EQ(door.let_in(submit("j-1", "r")), JobId{"j-1"});
  EXPECT_EQ(door.let_in(submit("j-2", "r")), JobId{"j-1"});
  EXPECT_EQ(door.let_in(submit("j-3")), JobId{"j-3"});
  EXPECT_EQ(door.state.jobs.size(), 2U);
}

TEST(Admit, ARequestOnItsWayToTheJournalIsNotMadeTwice) {
  Door door;
  SubmitJob again = submit("j-2", "r");
  again.pending = JobId{"j-1"};
  EXPECT_EQ(door.let_in(again), JobId{"j-1"});
  EXPECT_TRUE(door.state.jobs.empty());
}

TEST(Admit, AClusterThatShutsDownTakesNothingNewButAnswersWhatItHasTaken) {
  Door door;
  door.let_in(submit("j-1", "r"));
  door.let_in(ShutDown{});
  EXPECT_EQ(door.refusal(submit("j-2")), Refusal::kShuttingDown);
  EXPECT_EQ(door.refusal(RequestResources{{Bundle{cpus(1), 1}}}), Refusal::kShuttingDown);
  EXPECT_EQ(door.let_in(submit("j-2", "r")), JobId{"j-1"}) << "its answer got lost, and it is asked again";
}

TEST(Admit, UpOpensAClusterThatShutsDown) {
  Door door;
  door.let_in(configure(1, "a"));
  EXPECT_TRUE(door.asks_for_nothing(configure(1, "a")));
  door.let_in(ShutDown{});
  EXPECT_FALSE(door.asks_for_nothing(configure(1, "a")));
  door.let_in(configure(1, "a"));
  EXPECT_FALSE(door.state.shutting_down);
}

TEST(Admit, AJobNeedsItsPackage) {
  Door door;
  SubmitJob request = submit("j-1");
  request.package_is_here = false;
  EXPECT_EQ(door.refusal(request), Refusal::kPackageMissing);
}

TEST(Admit, AFileOfAnotherClusterIsRefused) {
  Door door;
  door.let_in(configure(1, "a"));
  ConfigureCluster other = configure(1, "b");
  other.spec.name = "other";
  EXPECT_EQ(door.refusal(other), Refusal::kOtherCluster);
}

TEST(Admit, IsolationStaysWhileThereAreNodes) {
  Door door;
  door.let_in(configure(1, "a"));
  ConfigureCluster other = configure(1, "b");
  other.spec.isolation = Isolation::kNetns;
  EXPECT_EQ(door.refusal(other), std::nullopt);
  NodeRequested requested;
  requested.node = NodeId{"cpu-1"};
  requested.type = "cpu";
  apply(door.state, Record{++door.offset, kTestStart, requested});
  EXPECT_EQ(door.refusal(other), Refusal::kIsolationChanged);
}

TEST(Admit, MoreNodesThanAHeadCanLeadAreRefusedWithoutOverflow) {
  Door door;
  ConfigureCluster many = configure(static_cast<int>(kNodesLedMax), "a");
  EXPECT_EQ(door.refusal(many), std::nullopt);
  many.spec.types["more"] = node_type("more", cpus(1), std::numeric_limits<int>::max(), 1);
  EXPECT_EQ(door.refusal(many), Refusal::kTooManyNodes);
}

TEST(Admit, StoppingTwiceIsStoppingOnce) {
  Door door;
  door.let_in(configure(1, "a"));
  door.let_in(submit("j-1"));
  EXPECT_EQ(door.refusal(StopJob{JobId{"j-9"}, "why"}), Refusal::kNoSuchJob);
  door.let_in(StopJob{JobId{"j-1"}, "why"});
  EXPECT_TRUE(door.asks_for_nothing(StopJob{JobId{"j-1"}, "why"}));
}

TEST(Admit, ANodeThatIsNotUpYetIsRemovedRatherThanDrained) {
  Door door;
  EXPECT_EQ(door.refusal(DrainNode{NodeId{"cpu-1"}, "why"}), Refusal::kNoSuchNode);
  NodeRequested requested;
  requested.node = NodeId{"cpu-1"};
  requested.type = "cpu";
  apply(door.state, Record{++door.offset, kTestStart, requested});
  door.let_in(DrainNode{NodeId{"cpu-1"}, "why"});
  EXPECT_EQ(door.state.nodes.at(NodeId{"cpu-1"}).phase, NodePhase::kRemoving);
  EXPECT_TRUE(door.asks_for_nothing(DrainNode{NodeId{"cpu-1"}, "why"}));
}

TEST(Admit, WhatTheJournalCannotTakeIsRefused) {
  Door door;
  SubmitJob request = submit("j-1");
  request.spec.args.assign(100, std::string(1000, 'x'));
  AdmitLimits limits;
  limits.record_bytes_max = 50'000;
  EXPECT_EQ(door.refusal(request, limits), Refusal::kTooLargeToRecord);
  limits.record_bytes_max = 500'000;
  EXPECT_EQ(door.refusal(request, limits), std::nullopt);
}

}  // namespace
}  // namespace rubato::reconcile
