#include "head/housekeeping.h"

#include <gtest/gtest.h>

#include "sim/simulation.h"

namespace rubato::head {
namespace {

Task<int> keep_house_of(sim::SimProgram& self, std::shared_ptr<const cluster::State> state) {
  StateReaders readers(self.loop(), Offload(), std::move(state));
  co_await keep_house(self.world(), "/c", readers, Log());
  co_return 0;
}

class HousekeepingTest : public testing::Test {
 protected:
  HousekeepingTest()
      : program(sim.machine(1).start("head", [this](sim::SimProgram& self) { return keep_house_of(self, shared); })) {}
  void file(const std::string& path) {
    sim.machine(1).disk().make_folders("/c/" + path.substr(0, path.find_last_of('/') + 1));
    sim.machine(1).disk().write("/c/" + path, "x");
  }
  void remember(const std::string& id, const std::string& package) {
    cluster::Job& job = state.jobs[JobId{id}];
    job.id.value = id;
    job.spec.package = package;
  }
  std::vector<std::string> left() {
    std::vector<std::string> names;
    for (const auto& [path, one] : sim.machine(1).disk().files()) names.push_back(path.substr(3));
    return names;
  }
  using Words = std::vector<std::string>;

  const std::shared_ptr<cluster::State> shared = std::make_shared<cluster::State>();
  cluster::State& state = *shared;
  sim::Simulation sim{1, 1};
  sim::SimProgram& program;
};

TEST_F(HousekeepingTest, RemovesWhatForgottenJobsHaveLeft) {
  remember("j-1", "aa");
  for (const char* job : {"j-1", "j-2"}) {
    file(std::string("jobs/") + job + "/log");
    file(std::string("jobs/") + job + "/output/deep/model.pt");
  }
  file("jobs/notes.txt");
  file("jobs/mine/plot.png");
  file("journal.db");
  sim.simulator.run_for(6 * 24h);
  EXPECT_EQ(left().size(), 7u) << "somebody may still want it";
  sim.simulator.run_for(25h);
  EXPECT_EQ(left(), (Words{"jobs/j-1/log", "jobs/j-1/output/deep/model.pt", "jobs/mine/plot.png", "jobs/notes.txt",
                           "journal.db"}));
  state.jobs.clear();
  sim.simulator.run_for(15min);
  EXPECT_EQ(left(), (Words{"jobs/mine/plot.png", "jobs/notes.txt", "journal.db"}));
}

TEST_F(HousekeepingTest, APackageStaysWhileAJobNamesItOrMaySoon) {
  remember("j-1", "aa");
  file("packages/aa.tar.zst");
  file("packages/bb.tar.zst");
  file("packages/cc.tar.zst.part");
  sim.simulator.run_for(50min);
  EXPECT_EQ(left().size(), 3u) << "bb was sent just now: its job may come";
  sim.simulator.run_for(30min);
  EXPECT_EQ(left(), (Words{"packages/aa.tar.zst", "packages/cc.tar.zst.part"}));
  sim.simulator.run_for(25h);
  EXPECT_EQ(left(), Words{"packages/aa.tar.zst"});
}

}  // namespace
}  // namespace rubato::head
