// Outputs of nodes with disks of their own reach the head, whatever breaks on the way: real heads and agents.
#include <gtest/gtest.h>

#include "node/delivery.h"
#include "sim/cluster_testing.h"

namespace rubato::sim {
namespace {

using cluster::JobPhase;
using cluster::Output;

// Enough for several parts, and nothing that compresses.
std::string noise(uint64_t seed, size_t size) {
  Random random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random.next());
  return bytes;
}

class OutputsSim {
 public:
  explicit OutputsSim(uint64_t seed, int nodes = 2) : cluster(seed, nodes, nodes + 2) {
    cluster.machines.own_disk = true;
    cluster.machines.made.salvage = [this](rubato::NodeId node) {
      return cluster.machines.salvage(std::move(node), cluster.head_program().world().clock);
    };
    cluster.start_head();
    wish = cluster.submit(sim_job(nodes, nodes));
  }

  bool until(const std::function<bool()>& condition, Duration most = 600s) {
    return cluster.run_until(condition, most);
  }
  const cluster::Job* job() const { return cluster.job(wish); }
  bool runs() const { return job() && job()->phase == JobPhase::kRunning && cluster.training(job()->id) > 0; }
  bool ended() const { return job() && cluster::ended(job()->phase); }
  bool all(Output::Phase phase) const {
    if (!ended()) return false;
    for (const auto& [node, output] : job()->outputs) {
      if (output.phase != phase) return false;
    }
    return !job()->outputs.empty();
  }

  // What the workers of each node write, as they run.
  void write(size_t size = 3'000'000) {
    for (const cluster::Seat& seat : job()->seats) {
      const std::string bytes = noise(written.size() + 1, size);
      const std::string folder = "/node/" + seat.node.value + "/outputs/" + job()->id.value;
      SimDisk& disk = cluster.sim.machine(cluster.machines.machine_of(seat.node)).disk();
      disk.make_folders(folder + "/sub");
      disk.write(folder + "/sub/weights", bytes);
      disk.write(folder + "/rank", seat.node.value);
      written[seat.node] = bytes;
    }
  }

  std::string at_head(const rubato::NodeId& node, const std::string& file) {
    const SimFile* found =
        cluster.sim.machine(1).disk().find("/cluster/jobs/" + job()->id.value + "/nodes/" + node.value + "/" + file);
    return found ? found->bytes : "(not there)";
  }
  void expect_all() {
    for (const auto& [node, bytes] : written) {
      EXPECT_TRUE(at_head(node, "sub/weights") == bytes) << node.value << "\n" << cluster.story();
      EXPECT_EQ(at_head(node, "rank"), node.value);
    }
    for (const auto& [path, file] : cluster.sim.machine(1).disk().files()) {
      EXPECT_EQ(path.find(".part"), std::string::npos) << path;
      EXPECT_EQ(path.find(".draft"), std::string::npos) << path;
    }
  }

  ClusterSim cluster;
  size_t wish = 0;
  std::map<rubato::NodeId, std::string> written;
};

TEST(Outputs, AreBroughtWhenTheWorkersHaveEnded) {
  OutputsSim sim(1);
  ASSERT_TRUE(sim.until([&] { return sim.runs(); })) << sim.cluster.story();
  EXPECT_EQ(sim.job()->outputs.size(), 2u);
  sim.write();
  ASSERT_TRUE(sim.until([&] { return sim.all(Output::Phase::kKept); })) << sim.cluster.story();
  sim.expect_all();
  // The nodes have no copy any more.
  sim.cluster.sim.simulator.run_for(5s);
  for (const auto& [node, bytes] : sim.written) {
    const SimDisk& disk = sim.cluster.sim.machine(sim.cluster.machines.machine_of(node)).disk();
    for (const auto& [path, file] : disk.files()) EXPECT_EQ(path.find("weights"), std::string::npos) << path;
  }
}

TEST(Outputs, SurviveHeadsThatDieAndNetworksThatBreak) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    OutputsSim sim(seed);
    Random random(seed);
    ASSERT_TRUE(sim.until([&] { return sim.runs(); })) << seed;
    sim.write();
    ASSERT_TRUE(sim.until([&] { return sim.ended(); })) << seed;
    for (int i = 0; i < 6; ++i) {
      sim.cluster.sim.simulator.run_for(seconds(random.unit() * 0.3));
      if (random.unit() < 0.5) {
        sim.cluster.kill_head();
        sim.cluster.sim.simulator.run_for(seconds(random.unit()));
        sim.cluster.start_head();
      } else {
        // Shorter than the heartbeat: nobody is given up, but connections may be.
        const auto cut = sim.cluster.sim.network.isolate(2 + static_cast<int>(random.next() % 2));
        sim.cluster.sim.simulator.run_for(seconds(random.unit() * 2));
        sim.cluster.sim.network.heal(cut);
      }
    }
    ASSERT_TRUE(sim.until([&] { return sim.all(Output::Phase::kKept); })) << seed << "\n" << sim.cluster.story();
    sim.expect_all();
  }
}

TEST(Outputs, OfADeadAgentAreFetchedFromItsDisk) {
  OutputsSim sim(3);
  ASSERT_TRUE(sim.until([&] { return sim.runs(); }));
  sim.write(20'000'000);
  ASSERT_TRUE(sim.until([&] { return sim.ended(); }));
  ASSERT_FALSE(sim.all(Output::Phase::kKept));
  for (const auto& [node, bytes] : sim.written) sim.cluster.machines.agent(node).kill();
  ASSERT_TRUE(sim.until([&] { return sim.all(Output::Phase::kKept); })) << sim.cluster.story();
  sim.expect_all();
}

TEST(Outputs, OfAMachineThatIsGoneAreSaidToBeMissing) {
  OutputsSim sim(4, 1);
  sim.cluster.machines.made.salvage = nullptr;
  ASSERT_TRUE(sim.until([&] { return sim.runs(); }));
  sim.write(20'000'000);
  ASSERT_TRUE(sim.until([&] { return sim.ended(); }));
  ASSERT_FALSE(sim.all(Output::Phase::kKept));
  sim.cluster.machines.agent(sim.written.begin()->first).kill();
  ASSERT_TRUE(sim.until([&] { return sim.all(Output::Phase::kMissing); })) << sim.cluster.story();
  EXPECT_NE(sim.job()->outputs.begin()->second.reason.find("its agent is gone"), std::string::npos)
      << sim.job()->outputs.begin()->second.reason;
}

TEST(Outputs, AFullDiskOfTheHeadIsSaidAndThenOvercome) {
  OutputsSim sim(5, 1);
  ASSERT_TRUE(sim.until([&] { return sim.runs(); }));
  sim.write();
  SimDisk& disk = sim.cluster.sim.machine(1).disk();
  const uint64_t free = disk.free_bytes();
  disk.set_free_bytes(1'000'000);
  ASSERT_TRUE(sim.until([&] { return sim.all(Output::Phase::kMissing); })) << sim.cluster.story();
  EXPECT_TRUE(sim.cluster.head_up());
  EXPECT_FALSE(sim.job()->outputs.begin()->second.reason.empty());
  sim.cluster.sim.simulator.run_for(120s);
  int missing = 0;
  for (const auto& [offset, bytes] : sim.cluster.journal.records())
    missing += std::holds_alternative<cluster::OutputMissing>(cluster::decode(offset, bytes).event);
  EXPECT_LE(missing, 2) << "each attempt is not news";
  disk.set_free_bytes(free);
  ASSERT_TRUE(sim.until([&] { return sim.all(Output::Phase::kKept); })) << sim.cluster.story();
  sim.expect_all();
}

}  // namespace
}  // namespace rubato::sim
