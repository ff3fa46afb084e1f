#include <gtest/gtest.h>

#include "sim/churn_testing.h"

namespace rubato::sim {
namespace {

// Two hours in which far more jobs end than are remembered; the same head all the time, so that nothing is reset.
TEST(ClusterSoak, NothingGrowsWithTime) {
  Churn::Pace pace;
  pace.job_every = 2s;
  pace.node_loss_every = 3min;
  pace.head_loss_every = 24h;
  Churn churn(1, 30, pace);
  ASSERT_TRUE(churn.run_to(1h));
  const Churn::Sizes one = churn.sizes();
  ASSERT_EQ(churn.cluster.state().ended_jobs.size(), cluster::kEndedMax) << "the bound was not reached yet";
  ASSERT_TRUE(churn.run_to(2h));
  const Churn::Sizes two = churn.sizes();

  // Jobs that wait or run at this moment come on top of the ended ones; there are a few dozen.
  constexpr size_t kNow = 150;
  EXPECT_LT(churn.cluster.state().queued.size() + churn.cluster.state().active.size(), kNow) << "not keeping up";
  EXPECT_LE(two.jobs, cluster::kEndedMax + kNow);
  EXPECT_LE(two.requests, two.jobs);
  EXPECT_LE(two.nodes, 60u);
  EXPECT_LE(two.indexes, cluster::kEndedMax + 2 * kNow);
  EXPECT_LE(two.beside, 3 * kNow);
  EXPECT_LE(two.open_logs, kNow);
  EXPECT_LE(two.state_bytes, one.state_bytes + one.state_bytes / 10);
  EXPECT_GT(churn.submitted, 2 * cluster::kEndedMax);
  EXPECT_GT(churn.nodes_lost, 30u);
  EXPECT_TRUE(churn.cluster.broken.empty()) << churn.cluster.broken.front();
}

}  // namespace
}  // namespace rubato::sim
