#include "node/job_launch.h"

#include <gtest/gtest.h>

namespace rubato::node {
namespace {

using elastic::JobOrder;

JobOrder some_job_order() {
  JobOrder job_order;
  job_order.job.value = "j-1";
  job_order.generation = 4;
  job_order.phase = elastic::Phase::kRunning;
  job_order.workers = 2;
  job_order.grace = 7s;
  job_order.place = elastic::Assignment{1, 2, 2, 4, 2, 4};
  job_order.master_addr = "127.0.0.5";
  job_order.master_port = 2900;
  job_order.restarts_used = 1;
  job_order.output = "/out";
  job_order.checkpoint_folder = "/node/checkpoints/j";
  job_order.spec.name = "train";
  job_order.spec.program = "train.py";
  job_order.spec.max_restarts = 5;
  job_order.spec.per_worker.set(kCpu, 2500);
  return job_order;
}

agent::Environment environment(const JobOrder& job_order, const std::optional<std::string>& devices = std::nullopt) {
  return job_environment({{"PATH", "/bin"}, {"OMP_NUM_THREADS", "64"}}, job_order, NodeId{"small-3"}, devices, false);
}

TEST(JobLaunch, WorkersGetRubatosAndAdaptDlsNames) {
  const agent::Environment env = environment(some_job_order());
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
  EXPECT_EQ(env.at("RUBATO_CHECKPOINT"), "/node/checkpoints/j");
  EXPECT_EQ(env.at("ADAPTDL_CHECKPOINT_PATH"), "/node/checkpoints/j/adaptdl");
  EXPECT_EQ(env.at("TORCHELASTIC_RUN_ID"), "j-1");
  EXPECT_EQ(env.at("TORCHELASTIC_MAX_RESTARTS"), "5");
  agent::WorkerPlace place;
  place.local_rank = 1;
  place.assignment = some_job_order().place;
  EXPECT_EQ(own_variables(place).at("ADAPTDL_REPLICA_RANK"), "3");
}

TEST(JobLaunch, TheUsersModulesComeBeforeTheLibraryAndDoNotHideIt) {
  JobOrder job_order = some_job_order();
  const auto path = [&job_order](const agent::Environment& inherited) {
    return job_environment(inherited, job_order, NodeId{"small-3"}, std::nullopt, false)["PYTHONPATH"];
  };
  EXPECT_EQ(path({{"PYTHONPATH", "/library"}}), "/library");
  job_order.spec.env["PYTHONPATH"] = "/mine";
  EXPECT_EQ(path({{"PYTHONPATH", "/library"}}), "/mine:/library");
  EXPECT_EQ(path({}), "/mine");
  job_order.spec.env["PYTHONPATH"] = "";
  EXPECT_EQ(path({{"PYTHONPATH", "/library"}}), "") << "who wants none gets none";
  job_order.spec.env = {{"PYTHONPATH", "/mine"}, {"RUBATO_ADAPTDL", "rubato"}};
  EXPECT_EQ(path({{"PYTHONPATH", "/library"}, {"RUBATO_LIBRARY", "/library"}}), "/library/adaptdl:/mine:/library");
}

TEST(JobLaunch, ThreadsFollowTheCpusUnlessTheUserSaysOtherwise) {
  JobOrder job_order = some_job_order();
  EXPECT_EQ(environment(job_order).at("OMP_NUM_THREADS"), "2");
  job_order.spec.per_worker.set(kCpu, 500);
  EXPECT_EQ(environment(job_order).at("OMP_NUM_THREADS"), "1");
  job_order.spec.env["OMP_NUM_THREADS"] = "9";
  EXPECT_EQ(environment(job_order).at("OMP_NUM_THREADS"), "9");
}

TEST(JobLaunch, OnlyANodeWithDevicesSaysWhichAreSeen) {
  JobOrder job_order = some_job_order();
  EXPECT_FALSE(environment(job_order).contains("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(environment(job_order, "2,3").at("CUDA_VISIBLE_DEVICES"), "2,3");
  EXPECT_EQ(environment(job_order, "").at("CUDA_VISIBLE_DEVICES"), "");
}

TEST(JobLaunch, TheUserMayMoveTheCheckpointButNotTheJob) {
  JobOrder job_order = some_job_order();
  job_order.spec.env = {{"ADAPTDL_CHECKPOINT_PATH", "/data/ck"}, {"RUBATO_JOB_ID", "mine"}, {"SEED", "7"}};
  const agent::Environment env = environment(job_order);
  EXPECT_EQ(env.at("ADAPTDL_CHECKPOINT_PATH"), "/data/ck");
  EXPECT_EQ(env.at("RUBATO_JOB_ID"), "j-1");
  EXPECT_EQ(env.at("SEED"), "7");
}

TEST(JobLaunch, BoardsAreKeptWithTheOutputUnlessTheUserSaysWhere) {
  JobOrder job_order = some_job_order();
  EXPECT_EQ(environment(job_order).at("ADAPTDL_TENSORBOARD_LOGDIR"), "/out/tensorboard");
  job_order.spec.env = {{"ADAPTDL_TENSORBOARD_LOGDIR", "/boards"}};
  EXPECT_EQ(environment(job_order).at("ADAPTDL_TENSORBOARD_LOGDIR"), "/boards");
}

TEST(JobLaunch, AProxyIsNotAskedForTheSupervisor) {
  JobOrder job_order = some_job_order();
  EXPECT_FALSE(environment(job_order).contains("no_proxy")) << "nobody has a proxy";
  job_order.spec.env = {{"http_proxy", "http://proxy:3128"}};
  EXPECT_EQ(environment(job_order).at("no_proxy"), "127.0.0.1");
  EXPECT_EQ(environment(job_order).at("NO_PROXY"), "127.0.0.1");
  job_order.spec.env["NO_PROXY"] = "internal, 10.0.0.1";
  EXPECT_EQ(environment(job_order).at("no_proxy"), "internal, 10.0.0.1,127.0.0.1");
  EXPECT_EQ(environment(job_order).at("NO_PROXY"), "internal, 10.0.0.1,127.0.0.1");
  job_order.spec.env["no_proxy"] = "localhost,127.0.0.1";
  EXPECT_EQ(environment(job_order).at("no_proxy"), "localhost,127.0.0.1");
}

TEST(JobLaunch, ThePlaceIsTheHeads) {
  const JobOrder job_order = some_job_order();
  const elastic::View view = job_order_view(job_order);
  EXPECT_EQ(view.legacy.generation, 4u);
  EXPECT_EQ(view.legacy.restarts_used, 1);
  EXPECT_EQ(view.assignment, job_order.place);
  EXPECT_EQ(view.master_addr, "127.0.0.5");
  EXPECT_EQ(view.master_port, 2900);
  EXPECT_EQ(launch_spec(job_order).nproc, 2);
  EXPECT_EQ(launch_spec(job_order).grace, 7s);
}

}  // namespace
}  // namespace rubato::node
