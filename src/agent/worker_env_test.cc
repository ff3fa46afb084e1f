#include "agent/worker_env.h"

#include <gtest/gtest.h>

#include "core/text.h"

namespace rubato::agent {
namespace {

LaunchSpec two_workers() {
  LaunchSpec spec;
  spec.nproc = 2;
  spec.role = "trainer";
  spec.run_id = "run7";
  spec.max_restarts = 5;
  return spec;
}

WorkerPlace second_worker_of_third_agent() {
  WorkerPlace place;
  place.local_rank = 1;
  place.generation = 4;
  place.assignment = elastic::Assignment{2, 3, 4, 6, 1, 3};
  place.master_addr = "10.0.0.1";
  place.master_port = 29500;
  place.restarts_used = 2;
  place.error_file = "/logs/error.json";
  return place;
}

Environment as_map(const std::vector<std::string>& env) {
  Environment map;
  for (const std::string& entry : env) {
    const auto parts = split_once(entry, '=');
    EXPECT_TRUE(parts) << entry;
    EXPECT_TRUE(map.emplace(parts->first, parts->second).second) << entry << " twice";
  }
  return map;
}

Environment environment(const LaunchSpec& spec, const WorkerPlace& place, const Environment& inherited = {},
                        bool old_torch = false) {
  return as_map(worker_environment(group_environment(inherited, spec, old_torch), spec, place));
}

TEST(WorkerEnvironment, IsTorchrunsVariableByVariable) {
  const Environment env = environment(two_workers(), second_worker_of_third_agent());
  const Environment expected{{"LOCAL_RANK", "1"},
                             {"RANK", "5"},
                             {"GROUP_RANK", "2"},
                             {"ROLE_RANK", "2"},
                             {"ROLE_NAME", "trainer"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"WORLD_SIZE", "6"},
                             {"GROUP_WORLD_SIZE", "3"},
                             {"ROLE_WORLD_SIZE", "3"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_MAX_RESTARTS", "5"},
                             {"TORCHELASTIC_RUN_ID", "run7"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                             {"TORCHELASTIC_ERROR_FILE", "/logs/error.json"},
                             {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                             {"OMP_NUM_THREADS", "1"},
                             {"RUBATO_GENERATION", "4"}};
  EXPECT_EQ(env, expected);
}

TEST(WorkerEnvironment, IsAdaptdlsToo) {
  const Environment expected{{"ADAPTDL_JOB_ID", "run7"},         {"ADAPTDL_MASTER_ADDR", "10.0.0.1"},
                             {"ADAPTDL_MASTER_PORT", "29500"},   {"ADAPTDL_REPLICA_RANK", "5"},
                             {"ADAPTDL_NUM_REPLICAS", "6"},      {"ADAPTDL_NUM_NODES", "3"},
                             {"ADAPTDL_NUM_RESTARTS", "3"}};
  EXPECT_EQ(adaptdl_variables({}, two_workers(), second_worker_of_third_agent()), expected);
  const Environment supervised{{"ADAPTDL_SUPERVISOR_URL", "http://127.0.0.1:1/x"}};
  EXPECT_EQ(adaptdl_variables(supervised, two_workers(), second_worker_of_third_agent()), Environment{});
}

TEST(WorkerEnvironment, AnOldPyTorchAlsoGetsTheOldNcclName) {
  const Environment env = environment(two_workers(), {}, {}, true);
  EXPECT_EQ(env.at("NCCL_ASYNC_ERROR_HANDLING"), "1");
  EXPECT_FALSE(environment(two_workers(), {}).contains("NCCL_ASYNC_ERROR_HANDLING"));
}

TEST(WorkerEnvironment, WhatTheUserHasSetForNcclStays) {
  const Environment inherited{{"NCCL_ASYNC_ERROR_HANDLING", "0"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}};
  const Environment env = environment(two_workers(), {}, inherited, true);
  EXPECT_EQ(env.at("NCCL_ASYNC_ERROR_HANDLING"), "0");
  EXPECT_EQ(env.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
}

TEST(WorkerEnvironment, TheInheritedOneIsPassedOnButNotItsRanks) {
  const Environment inherited{
      {"PATH", "/bin"}, {"EQUALS", "a=b="}, {"EMPTY", ""}, {"RANK", "99"}, {"MASTER_PORT", "1"}};
  const Environment env = environment(two_workers(), second_worker_of_third_agent(), inherited);
  EXPECT_EQ(env.at("PATH"), "/bin");
  EXPECT_EQ(env.at("EQUALS"), "a=b=");
  EXPECT_EQ(env.at("EMPTY"), "");
  EXPECT_EQ(env.at("RANK"), "5");
  EXPECT_EQ(env.at("MASTER_PORT"), "29500");
}

TEST(WorkerEnvironment, NamesTheSignalsThatArePassedOn) {
  LaunchSpec spec = two_workers();
  spec.signals = {15, 10};
  EXPECT_EQ(environment(spec, {}).at("TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGTERM,SIGUSR1");
}

TEST(Threads, AreLimitedForSeveralWorkersUnlessTheUserSetThem) {
  LaunchSpec spec = two_workers();
  EXPECT_TRUE(limits_threads({}, spec));
  EXPECT_FALSE(limits_threads({{"OMP_NUM_THREADS", "8"}}, spec));
  EXPECT_EQ(environment(spec, {}, {{"OMP_NUM_THREADS", "8"}}).at("OMP_NUM_THREADS"), "8");
  spec.nproc = 1;
  EXPECT_FALSE(limits_threads({}, spec));
  EXPECT_FALSE(environment(spec, {}).contains("OMP_NUM_THREADS"));
}

TEST(VirtualLocalRank, ShowsEachWorkerOneGpuAsItsFirst) {
  LaunchSpec spec = two_workers();
  spec.virtual_local_rank = true;
  const Environment env = environment(spec, second_worker_of_third_agent());
  EXPECT_EQ(env.at("LOCAL_RANK"), "0");
  EXPECT_EQ(env.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_EQ(env.at("RANK"), "5");
  EXPECT_EQ(env.at("ROLE_RANK"), "2");
}

// A scheduler has given this job GPUs 4 to 7 of a machine that it shares.
TEST(VirtualLocalRank, ChoosesAmongTheGpusThatWereInherited) {
  LaunchSpec spec = two_workers();
  spec.virtual_local_rank = true;
  const Environment env = environment(spec, second_worker_of_third_agent(), {{"CUDA_VISIBLE_DEVICES", "4, 5,6,7"}});
  EXPECT_EQ(env.at("CUDA_VISIBLE_DEVICES"), "5");
}

TEST(WorkerArguments, StartPythonUnbufferedAsTorchrunDoes) {
  using Words = std::vector<std::string>;
  LaunchSpec spec;
  spec.program = "train.py";
  spec.args = {"--lr", "0.1"};
  EXPECT_EQ(worker_arguments(spec, "python3", 0), (Words{"python3", "-u", "train.py", "--lr", "0.1"}));
  spec.kind = ProgramKind::kModule;
  spec.program = "pkg.train";
  EXPECT_EQ(worker_arguments(spec, "python3", 0), (Words{"python3", "-u", "-m", "pkg.train", "--lr", "0.1"}));
  spec.kind = ProgramKind::kBinary;
  spec.program = "./train";
  EXPECT_EQ(worker_arguments(spec, "", 0), (Words{"./train", "--lr", "0.1"}));
}

TEST(WorkerArguments, TheLocalRankComesBeforeTheScriptsOwn) {
  using Words = std::vector<std::string>;
  LaunchSpec spec;
  spec.program = "train.py";
  spec.args = {"--lr", "0.1"};
  spec.local_rank_flag = "--local_rank";
  EXPECT_EQ(worker_arguments(spec, "python3", 3),
            (Words{"python3", "-u", "train.py", "--local_rank=3", "--lr", "0.1"}));
}

TEST(WorkerArguments, OfRunPathGoThroughRunpy) {
  LaunchSpec spec;
  spec.kind = ProgramKind::kRunPath;
  spec.program = "train.py";
  spec.args = {"x"};
  const auto argv = worker_arguments(spec, "python3", 0);
  ASSERT_EQ(argv.size(), 6u);
  EXPECT_EQ(argv[2], "-c");
  EXPECT_NE(argv[3].find("runpy.run_path"), std::string::npos);
  EXPECT_EQ(argv[4], "train.py");
  EXPECT_EQ(argv[5], "x");
}

TEST(WorkerArguments, HaveTheLocalRankPutIn) {
  LaunchSpec spec;
  spec.program = "train.py";
  spec.args = {"--out=${local_rank}/${local_rank}.log", "${other}", "$"};
  const auto argv = worker_arguments(spec, "python3", 12);
  EXPECT_EQ(argv[3], "--out=12/12.log");
  EXPECT_EQ(argv[4], "${other}");
  EXPECT_EQ(argv[5], "$");
}

}  // namespace
}  // namespace rubato::agent
