#include "node/job_launch.h"

#include <gtest/gtest.h>

namespace rubato::node {
namespace {

using elastic::Errand;

Errand some_errand() {
  Errand errand;
  errand.job.value = "j-1";
  errand.generation = 4;
  errand.phase = elastic::Phase::kRunning;
  errand.workers = 2;
  errand.grace = 7s;
  errand.place = elastic::Assignment{1, 2, 2, 4, 2, 4};
  errand.master_addr = "127.0.0.5";
  errand.master_port = 2900;
  errand.restarts_used = 1;
  errand.output = "/out";
  errand.spec.name = "train";
  errand.spec.program = "train.py";
  errand.spec.max_restarts = 5;
  errand.spec.per_worker.set(kCpu, 2500);
  return errand;
}

agent::Environment environment(const Errand& errand, const std::optional<std::string>& devices = std::nullopt) {
  return job_environment({{"PATH", "/bin"}, {"OMP_NUM_THREADS", "64"}}, errand, NodeId{"small-3"}, devices, false);
}

TEST(JobLaunch, WorkersGetRubatosAndAdaptDlsNames) {
  const agent::Environment env = environment(some_errand());
  EXPECT_EQ(env.at("PATH"), "/bin");
  EXPECT_EQ(env.at("RUBATO_OUTPUT"), "/out");
  EXPECT_EQ(env.at("RUBATO_JOB_ID"), "j-1");
  EXPECT_EQ(env.at("RUBATO_JOB_NAME"), "train");
  EXPECT_EQ(env.at("RUBATO_NODE"), "small-3");
  EXPECT_EQ(env.at("ADAPTDL_JOB_ID"), "rubato/j-1");
  EXPECT_EQ(env.at("ADAPTDL_MASTER_ADDR"), "127.0.0.5");
  EXPECT_EQ(env.at("ADAPTDL_MASTER_PORT"), "2900");
  EXPECT_EQ(env.at("ADAPTDL_NUM_REPLICAS"), "4");
  EXPECT_EQ(env.at("ADAPTDL_NUM_NODES"), "2");
  EXPECT_EQ(env.at("ADAPTDL_NUM_RESTARTS"), "3");
  EXPECT_EQ(env.at("ADAPTDL_CHECKPOINT_PATH"), "/out/adaptdl-checkpoint");
  EXPECT_EQ(env.at("TORCHELASTIC_RUN_ID"), "j-1");
  EXPECT_EQ(env.at("TORCHELASTIC_MAX_RESTARTS"), "5");
  agent::WorkerPlace place;
  place.local_rank = 1;
  place.assignment = some_errand().place;
  EXPECT_EQ(own_variables(place).at("ADAPTDL_REPLICA_RANK"), "3");
}

TEST(JobLaunch, ThreadsFollowTheCpusUnlessTheUserSaysOtherwise) {
  Errand errand = some_errand();
  EXPECT_EQ(environment(errand).at("OMP_NUM_THREADS"), "2");
  errand.spec.per_worker.set(kCpu, 500);
  EXPECT_EQ(environment(errand).at("OMP_NUM_THREADS"), "1");
  errand.spec.env["OMP_NUM_THREADS"] = "9";
  EXPECT_EQ(environment(errand).at("OMP_NUM_THREADS"), "9");
}

TEST(JobLaunch, OnlyANodeWithDevicesSaysWhichAreSeen) {
  Errand errand = some_errand();
  EXPECT_FALSE(environment(errand).contains("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(environment(errand, "2,3").at("CUDA_VISIBLE_DEVICES"), "2,3");
  EXPECT_EQ(environment(errand, "").at("CUDA_VISIBLE_DEVICES"), "");
}

TEST(JobLaunch, TheUserMayMoveTheCheckpointButNotTheJob) {
  Errand errand = some_errand();
  errand.spec.env = {{"ADAPTDL_CHECKPOINT_PATH", "/data/ck"}, {"RUBATO_JOB_ID", "mine"}, {"SEED", "7"}};
  const agent::Environment env = environment(errand);
  EXPECT_EQ(env.at("ADAPTDL_CHECKPOINT_PATH"), "/data/ck");
  EXPECT_EQ(env.at("RUBATO_JOB_ID"), "j-1");
  EXPECT_EQ(env.at("SEED"), "7");
}

TEST(JobLaunch, ThePlaceIsTheHeads) {
  const Errand errand = some_errand();
  const elastic::View view = errand_view(errand);
  EXPECT_EQ(view.legacy.generation, 4u);
  EXPECT_EQ(view.legacy.restarts_used, 1);
  EXPECT_EQ(view.assignment, errand.place);
  EXPECT_EQ(view.master_addr, "127.0.0.5");
  EXPECT_EQ(view.master_port, 2900);
  EXPECT_EQ(launch_spec(errand).nproc, 2);
  EXPECT_EQ(launch_spec(errand).grace, 7s);
}

}  // namespace
}  // namespace rubato::node
