// A cluster whose journal somebody deletes, cuts or damages: heads end or refuse, workers train on, and nothing that
// was acknowledged is gone without a word.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cluster/apply.h"
#include "sim/cluster_testing.h"

namespace rubato::sim {
namespace {

using cluster::JobPhase;

EncodeLoss encode_at(ClusterSim& cluster) {
  return [&cluster](const JournalLoss& loss) {
    cluster::JournalLost lost;
    lost.first = loss.first;
    lost.last = loss.last;
    lost.epoch = loss.epoch;
    lost.cause = loss.cause;
    return cluster::encode(cluster.sim.machine(1).clock().wall(), lost);
  };
}

void start_long_job(ClusterSim& cluster) {
  cluster.behaviour = [](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model;
    model.start_delay = 300ms;
    model.runs = 60s;
    return model;
  };
  cluster.start_head();
  cluster.submit(sim_job(2, 2));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(*cluster.wishes[0].job) == 2; }, 60s))
      << cluster.story();
}

TEST(JournalLoss, AHeadWhoseJournalIsDeletedEndsAndItsWorkersTrainOn) {
  ClusterSim cluster(1, 2);
  start_long_job(cluster);
  const JobId job = *cluster.wishes[0].job;
  cluster.journal.remove_file();
  cluster.submit(sim_job(1, 1));
  ASSERT_TRUE(cluster.run_until([&] { return !cluster.head_up(); }, 10s));
  EXPECT_FALSE(cluster.wishes[1].job) << "nobody was told that it is in";
  EXPECT_NE(cluster.head_program().console().err_text().find("deleted"), std::string::npos)
      << cluster.head_program().console().err_text();
  cluster.sim.simulator.run_for(10s);
  EXPECT_EQ(cluster.training(job), 2);

  cluster.start_head();
  cluster.sim.simulator.run_for(2s);
  EXPECT_FALSE(cluster.head_program().running()) << "the next one refuses";
  EXPECT_EQ(cluster.training(job), 2);
}

TEST(JournalLoss, AHeadThatIsToldToGoOnTakesItsAgentsOver) {
  ClusterSim cluster(1, 2);
  start_long_job(cluster);
  const uint64_t epoch = cluster.state().epoch;
  cluster.kill_head();
  cluster.journal.remove_file();
  cluster.journal.accept_loss = encode_at(cluster);
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.head_up(); }, 10s));
  EXPECT_GT(cluster.state().epoch, epoch) << "agents obey no older head";
  // The person submits again: what was lost is forgotten.
  cluster.wishes[0].job.reset();
  cluster.behaviour = nullptr;
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 300s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded);
  EXPECT_NE(cluster.story().find("lost and given up"), std::string::npos) << cluster.story();
}

// Whatever is done to the journal, at any time: a head that starts afterwards has every job that was acknowledged, or
// it does not start.
TEST(JournalLoss, AJobThatWasAcknowledgedIsThereOrNoHeadStarts) {
  const char* one = std::getenv("RUBATO_SEED");
  const char* count = std::getenv("RUBATO_SEEDS");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  const uint64_t last = one ? first : (count ? std::strtoull(count, nullptr, 10) : 60);
  std::map<std::string, uint64_t> marks;
  for (uint64_t seed = first; seed <= last; ++seed) {
    ClusterSim cluster(seed, 2);
    Random random(seed);
    cluster.start_head();
    for (int i = 0; i < 4; ++i) cluster.submit(sim_job(1, 1));
    cluster.sim.simulator.run_for(500ms + seconds(random.unit() * 5));
    const uint64_t kind = random.below(3);
    const bool while_up = random.chance(0.5);
    if (!while_up && cluster.head_up()) cluster.kill_head();
    if (kind == 0) cluster.journal.cut_tail(1 + random.below(10));
    if (kind == 1) cluster.journal.damage_record(1 + random.below(std::max<uint64_t>(cluster.journal.end(), 1)));
    if (kind == 2) cluster.journal.remove_file();
    cluster.sim.simulator.run_for(seconds(random.unit() * 3));
    if (cluster.head_up()) cluster.kill_head();
    cluster.sim.simulator.run_for(100ms);
    cluster.start_head();
    cluster.sim.simulator.run_for(3s);
    if (cluster.head_up()) {
      for (const Wish& wish : cluster.wishes) {
        EXPECT_TRUE(!wish.job || cluster.state().jobs.contains(*wish.job))
            << "RUBATO_SEED=" << seed << ": an acknowledged job is gone\n"
            << cluster.story();
      }
    } else {
      EXPECT_NE(cluster.head_program().console().err_text().find("--accept-journal-loss"), std::string::npos)
          << seed << cluster.head_program().console().err_text();
    }
    for (const auto& [name, times] : cluster.sim.simulator.marks()) marks[name] += times;
  }
  if (one) return;
  for (const char* mark : {"journal.tail_cut", "journal.record_damaged", "journal.file_gone", "journal.refused"}) {
    EXPECT_GT(marks[mark], 0u) << mark;
  }
}

}  // namespace
}  // namespace rubato::sim
