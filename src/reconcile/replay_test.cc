// A long run, and the state rebuilt from its journal in every way that a head may do it.
#include <gtest/gtest.h>

#include "reconcile/invariants_testing.h"

namespace rubato::reconcile {
namespace {

void disturb(FakeCluster& cluster) {
  Random& random = cluster.random;
  if (random.chance(0.15)) {
    JobSpec spec = job_of(1 + static_cast<int>(random.below(3)), 3 + static_cast<int>(random.below(4)));
    spec.owner = random.chance(0.5) ? "ann" : "bob";
    spec.timeout = random.chance(0.2) ? Duration(20s) : Duration(0);
    cluster.submit(spec);
  }
  if (random.chance(0.04) && !cluster.agents.empty()) {
    const NodeId node = cluster.agents.begin()->first;
    if (cluster.state.nodes.contains(node)) cluster.kill(node);
  }
  if (random.chance(0.01))
    cluster.happen({ClusterConfigured{
        cluster_of({node_type("n", cpus(4 + static_cast<double>(random.below(2))), 3, 5)}), "text"}});
}

TEST(Replay, AtEveryOffsetGivesTheStateOfTheRecordsOrOfASnapshotAndTheRest) {
  FakeCluster cluster(20261115);
  cluster.failure_rate = 0.3;
  cluster.ends_rate = 0.1;
  std::vector<std::string> at_offset;  // the snapshot after each record, by the head that wrote it
  cluster.on_record = [&](const State&, const State& after, const Record&) {
    at_offset.push_back(encode_snapshot(after));
  };
  cluster.happen({HeadStarted{1, "test", 1}, ClusterConfigured{cluster_of({node_type("n", cpus(4), 3, 5)}), "text"}});
  while (cluster.journal.size() < 500) {
    disturb(cluster);
    cluster.step();
    ASSERT_EQ(at_offset.back(), encode_snapshot(cluster.state)) << "decide() and apply() of its records agree";
  }

  State from_records;
  std::map<size_t, State> from_snapshots;  // heads that began with the snapshot at that offset
  Random random(1);
  for (size_t i = 0; i < cluster.journal.size(); ++i) {
    const Record record = decode(i + 1, cluster.journal[i]);
    apply(from_records, record);
    ASSERT_EQ(encode_snapshot(from_records), at_offset[i]) << describe(record.event);
    for (auto& [begin, state] : from_snapshots) {
      apply(state, record);
      ASSERT_EQ(encode_snapshot(state), at_offset[i]) << "from the snapshot at " << begin;
    }
    if (from_snapshots.size() == 3) from_snapshots.erase(std::next(from_snapshots.begin(), 1));
    if (random.chance(0.1)) from_snapshots[i + 1] = decode_snapshot(at_offset[i]);
  }
}

TEST(Replay, ARunIsTheSameWithTheSameSeed) {
  std::vector<std::string> journals[2];
  for (std::vector<std::string>& journal : journals) {
    FakeCluster cluster(7);
    cluster.failure_rate = 0.3;
    cluster.happen({ClusterConfigured{cluster_of({node_type("n", cpus(4), 3, 5)}), "text"}});
    for (int i = 0; i < 300; ++i) {
      disturb(cluster);
      cluster.step();
    }
    journal = cluster.journal;
  }
  EXPECT_EQ(journals[0], journals[1]);
}

}  // namespace
}  // namespace rubato::reconcile
