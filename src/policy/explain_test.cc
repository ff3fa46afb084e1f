#include "policy/explain.h"

#include "policy/place_testing.h"

namespace rubato::policy {
namespace {

Reasons::Obstacle obstacle(const std::string& text, const std::string& where) { return {text, where}; }

TEST(Explain, SaysWhatWasWanted) {
  EXPECT_EQ(wanted(job_of(1, 1)), "1 worker of 1 CPU each");
  EXPECT_EQ(wanted(job_of(2, 4, cpus(2, 0, 1))), "2 to 4 workers of 2 CPU, 1 GPU each");
}

TEST(Explain, AWorkerThatNoTypeHoldsNamesTheNearestType) {
  History history = nodes_of(1, 4);
  const JobId job = history.submit(1, 1, cpus(8));
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.held.at(job).reasons.against,
            (std::vector{obstacle("no node type can hold one worker of 8 CPU; the nearest, 'n', has 4 CPU",
                                  "cluster.yaml:5:16")}));
}

// Hosts of one's own: one type for all, the head's machine among them, and the file does not say what they have.
History own_hosts(const std::vector<Resources>& hosts) {
  History history;
  ClusterSpec spec = cluster_of({node_type("host", Resources(), 0, static_cast<int>(hosts.size()) - 1)});
  spec.head_type = "host";
  history.add(ClusterConfigured{spec, "text"});
  for (size_t i = 0; i < hosts.size(); ++i) {
    const NodeId id{fmt::format("host-{}", i + 1)};
    NodeRequested request{id, "host", "", "test"};
    request.head = i == 0;
    history.add(request);
    history.add(NodeCreated{id});
    if (!hosts[i].empty()) history.add(History::joined(id, "agent-" + id.value, hosts[i]));
  }
  history.pass(10s);
  return history;
}

TEST(Explain, HostsOfOnesOwnAreKnownByWhatTheyHave) {
  const History up = own_hosts({cpus(2), cpus(8, 0, 1)});
  EXPECT_FALSE(why_never(up.state, job_of(1, 1))) << "it starts at once";
  EXPECT_FALSE(why_never(up.state, job_of(10, 10))) << "the head's machine holds two of them";
  EXPECT_FALSE(why_never(up.state, job_of(1, 1, cpus(1, 0, 1))));
  ASSERT_TRUE(why_never(up.state, job_of(11, 11)));
  ASSERT_TRUE(why_never(up.state, job_of(1, 1, cpus(1, 0, 2))));
  EXPECT_EQ(why_never(up.state, job_of(1, 1, cpus(9)))->against.at(0).text,
            "no node type can hold one worker of 9 CPU; the nearest, 'host', has 8 CPU, 1 GPU");
  const History coming = own_hosts({cpus(2), Resources()});
  EXPECT_FALSE(why_never(coming.state, job_of(1, 1, cpus(64)))) << "nobody knows what the other host has";
}

TEST(Explain, MoreWorkersThanTheTypesAllowNamesMaxWorkers) {
  History history = nodes_of(1, 4);
  const JobId job = history.submit(500, 500);
  EXPECT_EQ(
      place_now(history).held.at(job).reasons.against,
      (std::vector{obstacle("the cluster can hold 400 workers of this size at most ('n': 4 a node, max_workers 100)",
                            "cluster.yaml:7:18")}));
}

TEST(Explain, MoreNodesThanTheClusterMayHaveNamesItsLimit) {
  History history;
  ClusterSpec spec = cluster_of({node_type("a", cpus(4), 1, 10), node_type("b", cpus(2), 0, 10)});
  spec.max_workers = 3;
  history.add(ClusterConfigured{spec, "text"});
  history.node_up("a");
  const JobId job = history.submit(13, 13);
  const JobId fits = history.submit(12, 12);
  const PlacedJobs result = place_now(history);
  EXPECT_EQ(result.held.at(job).reasons.against,
            (std::vector{obstacle("the cluster can hold 12 workers of this size at most (max_workers 3 over all types)",
                                  "cluster.yaml:3:14")}));
  EXPECT_EQ(result.against(fits), "the nodes that are up hold 4 of 12 workers");
}

TEST(Explain, MoreNodesThanThereAreAreForTheAutoscaler) {
  History history = nodes_of(2, 4);
  const JobId job = history.submit(10, 10);
  const Reasons reasons = place_now(history).held.at(job).reasons;
  ASSERT_EQ(reasons.against.size(), 2u);
  EXPECT_EQ(reasons.against[1], obstacle("type 'n' has 2 nodes, and may have 100", "cluster.yaml:7:18"));
  EXPECT_EQ(reasons.changes.at(0), "more nodes of 'n' are launched; what holds them up: rubato why --last");
}

TEST(Explain, SaysThatNodesAreComing) {
  History history;
  history.configure({node_type("n", cpus(4), 2, 2)});
  history.node_up("n");
  history.add(NodeRequested{NodeId{"n-2"}, "n", "", ""});
  const JobId job = history.submit(8, 8);
  EXPECT_EQ(place_now(history).held.at(job).reasons.against.at(1), obstacle("1 node of type 'n' not up yet", ""));
}

TEST(Explain, NamesTheJobsThatAreInTheWay) {
  History history = nodes_of(1, 4);
  const JobId holder = history.running(job_of(4, 4), {{"n-1", 4}});
  const JobId job = history.submit(2, 2);
  const Reasons reasons = place_now(history).held.at(job).reasons;
  EXPECT_EQ(reasons.against.front().text, "room for 0 of 2 workers now");
  EXPECT_EQ(reasons.against.back().text, "in use by " + holder.value + " (train)");
  EXPECT_EQ(reasons.changes.back(), holder.value + " (train) ends");
}

// Behind others of the same size, or as one of many, a job that can not run still says so.
TEST(Explain, NamesTheLimitForEveryJobThatCanNotRun) {
  History history = nodes_of(1, 4);
  history.running(job_of(4, 4), {{"n-1", 4}});
  history.submit(2, 2);
  for (int i = 0; i < 10; ++i) {
    const JobId job = history.submit(500 + i, 600);
    EXPECT_EQ(place_now(history).held.at(job).reasons.against.at(0).where, "cluster.yaml:7:18") << i;
  }
}

TEST(Explain, AGrownJobKnowsWhyItHasNoMore) {
  History history = nodes_of(1, 4);
  const JobId job = history.submit(1, 8);
  const Reasons reasons = place_now(history).placed.at(job).reasons;
  EXPECT_EQ(reasons.against.at(0).text, "no room for more than 4 workers");
  EXPECT_EQ(reasons.against.at(1).where, "cluster.yaml:7:18");
  const JobId all = history.submit(2, 2);
  history.configure({node_type("n", cpus(4), 1, 1)});
  EXPECT_TRUE(place_now(history).placed.at(all).reasons.against.empty());
}

TEST(Explain, NodesThatOfferMoreThanTheFileSaysAreNoSurprise) {
  History history = nodes_of(1, 4);
  history.add(History::joined(NodeId{"n-1"}, "other", cpus(16)));
  const JobId held = history.submit(2, 2, cpus(10));
  const JobId placed = history.submit(1, 1, cpus(10));
  const PlacedJobs result = place_now(history);
  EXPECT_TRUE(result.placed.contains(placed));
  EXPECT_EQ(result.held.at(held).reasons.against.at(0).where, "cluster.yaml:5:16");
}

TEST(Explain, ReasonsThatOnlyDifferInNumbersAreWrittenSeldom) {
  History history = nodes_of(2, 4);
  const JobId small = history.running(job_of(2, 2), {{"n-1", 2}});
  history.running(job_of(2, 2), {{"n-1", 2}});
  history.running(job_of(4, 4), {{"n-2", 4}});
  const JobId job = history.submit(8, 8);
  EXPECT_EQ(place_and_apply(history).against(job), "room for 0 of 8 workers now");
  EXPECT_TRUE(place_now(history).held.empty()) << "said already";
  history.add(JobEnded{small, JobResult::kSucceeded, ""});
  const PlacedJobs soon = place_now(history);
  EXPECT_TRUE(soon.held.empty());
  ASSERT_TRUE(soon.wake.at);
  EXPECT_GE(*soon.wake.at, later(history.now, kHoldAgain));
  EXPECT_LT(*soon.wake.at, later(history.now, kHoldAgain * 2));
  history.now = *soon.wake.at;
  EXPECT_EQ(place_now(history).against(job), "room for 2 of 8 workers now");
}

}  // namespace
}  // namespace rubato::policy
