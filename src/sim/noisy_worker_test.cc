// Workers that print as fast as they can, while the head is slow, cut off, dead, or a disk is full: no line is lost
// while there is disk, none comes twice, and what a full disk costs is said.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "sim/cluster_testing.h"

namespace rubato::sim {
namespace {

using cluster::JobPhase;

// What is in the log of a job, by generation and rank: numbers of lines in their order, and what is missing.
struct Printed {
  std::map<std::pair<uint64_t, int>, std::vector<uint64_t>> numbers;
  uint64_t missing = 0;
};

Printed read_log(ClusterSim& cluster, size_t wish = 0) {
  Printed out;
  const SimFile* log = cluster.sim.machine(1).disk().find(cluster.controller().logs().path(*cluster.wishes[wish].job));
  if (!log) return out;
  for (const std::string_view line : split(trim(log->bytes), '\n')) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;
    if (entry.contains("missing")) {
      out.missing += entry["missing"]["lines"].get<uint64_t>();
      continue;
    }
    const std::string text = entry.at("text");
    out.numbers[{entry.at("generation"), entry.at("rank")}].push_back(std::stoull(text));
  }
  return out;
}

void expect_whole(const Printed& printed, uint64_t lines, int workers) {
  ASSERT_EQ(printed.numbers.size(), static_cast<size_t>(workers));
  EXPECT_EQ(printed.missing, 0u);
  for (const auto& [who, numbers] : printed.numbers) {
    ASSERT_EQ(numbers.size(), lines) << "rank " << who.second;
    for (uint64_t i = 0; i < lines; ++i) ASSERT_EQ(numbers[i], i) << "rank " << who.second;
  }
}

WorkerBehaviour prints(uint64_t lines, size_t bytes) {
  return [lines, bytes](const SpawnSpec&, const WorkerRecord&, Random&) {
    WorkerModel model;
    model.start_delay = 500ms;
    model.runs = 1s;
    model.lines = lines;
    model.line_bytes = bytes;
    return model;
  };
}

// 72 MB in little more than a second, over a network that takes a few of them a second: the worker is slowed.
TEST(NoisyWorker, IsSlowedByASlowHeadAndLosesNothing) {
  ClusterSim cluster(1, 1);
  cluster.sim.network.faults.latency_min = 1s;
  cluster.sim.network.faults.latency_max = 1s;
  cluster.behaviour = prints(18'000, 4000);
  cluster.start_head();
  cluster.submit(sim_job(1, 1));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 600s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded);
  EXPECT_EQ(cluster.job(0)->generation, 1u) << cluster.story();
  expect_whole(read_log(cluster), 18'000, 1);
  EXPECT_TRUE(cluster.sim.simulator.marks().contains("worker.waits_for_reader"));
}

TEST(NoisyWorker, GoesOnWithoutAHeadAndLosesNothing) {
  ClusterSim cluster(2, 2);
  cluster.behaviour = prints(6'000, 4000);
  cluster.start_head();
  cluster.submit(sim_job(2, 2));
  ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 2; }, 60s));
  cluster.sim.simulator.run_for(50ms);
  cluster.kill_head();
  cluster.sim.simulator.run_for(5s);
  EXPECT_EQ(cluster.sim.workers.live().size(), 0u) << "they have printed all of it, without a head";
  cluster.start_head();
  ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 600s)) << cluster.story();
  EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded);
  expect_whole(read_log(cluster), 6'000, 2);
}

// Heads and agents die at any moment, links are cut: each generation's lines are in the log once and in order.
TEST(NoisyWorker, LosesAndDoublesNothingWhateverDies) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    ClusterSim cluster(seed, 2, 4);
    cluster.behaviour = prints(2'000, 300);
    cluster.start_head();
    cluster.submit(sim_job(2, 2));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 2; }, 60s));
    cluster.sim.simulator.run_for(std::chrono::milliseconds(seed * 3));
    if (seed % 3 == 0) cluster.machines.agent(cluster.machines.list().at(seed % 2)).kill();
    if (seed % 3 == 1) {
      cluster.sim.network.cut({1}, {2, 3, 4, 5});
      cluster.sim.simulator.run_for(1s);
      cluster.sim.network.heal();
    }
    if (seed % 2 == 0) {
      cluster.kill_head();
      cluster.sim.simulator.run_for(1s);
      cluster.start_head();
    }
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 600s)) << cluster.story();
    cluster.sim.simulator.run_for(30s);
    const Printed printed = read_log(cluster);
    EXPECT_EQ(printed.missing, 0u);
    size_t whole = 0;
    for (const auto& [who, numbers] : printed.numbers) {
      for (uint64_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i) << "seed " << seed << cluster.story();
      whole += numbers.size() == 2'000 ? 1 : 0;
    }
    EXPECT_GE(whole, 1u) << "seed " << seed;
  }
}

// The head's disk is full for a while, also when the workers end: nothing is lost, and nobody is slowed.
TEST(NoisyWorker, AFullDiskOfTheHeadCostsNothing) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    ClusterSim cluster(seed, 1);
    cluster.behaviour = prints(4'000, 1000);
    cluster.start_head();
    cluster.submit(sim_job(1, 1));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 1; }, 60s));
    SimDisk& disk = cluster.sim.machine(1).disk();
    cluster.sim.simulator.run_for(10ms);
    const uint64_t free = disk.free_bytes();
    disk.set_free_bytes(seed * 100'000);
    cluster.sim.simulator.run_for(60s);
    EXPECT_EQ(cluster.sim.workers.live().size(), 0u) << "it has printed all of it";
    EXPECT_FALSE(cluster.all_ended()) << "whoever hears that it has ended may look for its lines";
    if (seed % 3 == 0) cluster.kill_head();
    disk.set_free_bytes(free);
    if (seed % 3 == 0) cluster.start_head();
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 600s)) << cluster.story();
    EXPECT_EQ(cluster.job(0)->phase, JobPhase::kSucceeded) << cluster.story();
    EXPECT_EQ(cluster.job(0)->generation, 1u) << cluster.story();
    expect_whole(read_log(cluster), 4'000, 1);
  }
}

// The node's disk is full for a while: the log says exactly how many lines are missing.
TEST(NoisyWorker, AFullDiskIsCountedToTheLine) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    ClusterSim cluster(seed, 1);
    cluster.behaviour = prints(4'000, 1000);
    cluster.start_head();
    cluster.submit(sim_job(1, 1));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.job(0) && cluster.training(cluster.job(0)->id) == 1; }, 60s));
    SimDisk& disk = cluster.sim.machine(cluster.machines.machine_of(cluster.machines.list().at(0))).disk();
    cluster.sim.simulator.run_for(10ms);
    const uint64_t free = disk.free_bytes();
    disk.set_free_bytes(0);
    cluster.sim.simulator.run_for(20ms);
    disk.set_free_bytes(free);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 600s)) << cluster.story();
    cluster.sim.simulator.run_for(30s);
    const Printed printed = read_log(cluster);
    uint64_t kept = 0;
    for (const auto& [who, numbers] : printed.numbers) kept += numbers.size();
    EXPECT_EQ(kept + printed.missing, 4'000u) << "seed " << seed;
    uint64_t told = 0;
    for (const auto& [rank, missing] : cluster.controller().logs().missing(*cluster.wishes[0].job))
      told += missing.lines;
    EXPECT_EQ(told, printed.missing) << "seed " << seed;
  }
}

// It is full until long after they have ended: both jobs say how many lines they have lost.
TEST(NoisyWorker, ADiskThatStaysFullIsCountedForEachJob) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    ClusterSim cluster(seed, 1);
    cluster.text.replace(cluster.text.find("CPU: 1"), 6, "CPU: 2");
    cluster.behaviour = prints(4'000, 1000);
    cluster.start_head();
    cluster.submit(sim_job(1, 1));
    cluster.submit(sim_job(1, 1));
    ASSERT_TRUE(cluster.run_until(
        [&] {
          return cluster.job(0) && cluster.training(cluster.job(0)->id) == 1 && cluster.job(1) &&
                 cluster.training(cluster.job(1)->id) == 1;
        },
        60s))
        << cluster.story();
    SimDisk& disk = cluster.sim.machine(cluster.machines.machine_of(cluster.machines.list().at(0))).disk();
    cluster.sim.simulator.run_for(std::chrono::milliseconds(seed * 10));
    const uint64_t free = disk.free_bytes();
    disk.set_free_bytes(0);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_ended(); }, 600s)) << cluster.story();
    cluster.sim.simulator.run_for(30s);
    disk.set_free_bytes(free);
    cluster.sim.simulator.run_for(30s);
    for (size_t wish = 0; wish < 2; ++wish) {
      const Printed printed = read_log(cluster, wish);
      uint64_t kept = 0;
      for (const auto& [who, numbers] : printed.numbers) kept += numbers.size();
      EXPECT_GT(printed.missing, 0u) << "seed " << seed << ", job " << wish;
      EXPECT_EQ(kept + printed.missing, 4'000u) << "seed " << seed << ", job " << wish;
      uint64_t told = 0;
      for (const auto& [rank, missing] : cluster.controller().logs().missing(*cluster.wishes[wish].job))
        told += missing.lines;
      EXPECT_EQ(told, printed.missing) << "seed " << seed << ", job " << wish;
    }
  }
}

}  // namespace
}  // namespace rubato::sim
