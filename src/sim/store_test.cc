#include "sim/store.h"

#include <gtest/gtest.h>

#include "sim/simulation.h"

namespace rubato::sim {
namespace {

std::vector<StoreWrite> put(std::string key, std::string value, int64_t lease = 0) {
  StoreWrite write;
  write.key = std::move(key);
  write.value = std::move(value);
  write.lease = lease;
  return {write};
}

std::vector<StoreCondition> absent(std::string key) {
  StoreCondition condition;
  condition.key = std::move(key);
  return {condition};
}

TEST(Store, CommitsOnlyWhenTheConditionsHold) {
  Simulation sim(1, 1);
  SimProgram& program = sim.machine(1).start("p", [](SimProgram& self) -> Task<int> {
    const Instant deadline = self.loop().now() + 5s;
    Store& store = self.store();
    const CommitResult first = co_await store.commit(absent("a/1"), put("a/1", "x"), deadline);
    EXPECT_TRUE(first.committed);
    const CommitResult second = co_await store.commit(absent("a/1"), put("a/1", "y"), deadline);
    EXPECT_FALSE(second.committed);
    std::vector<StoreCondition> created = absent("a/1");
    created[0].created = first.revision;
    const CommitResult third = co_await store.commit(created, put("a/2", "z"), deadline);
    EXPECT_TRUE(third.committed);
    std::optional<StoreEntry> entry = co_await store.get("a/1", deadline);
    EXPECT_EQ(entry->value, "x");
    EXPECT_EQ(entry->created, first.revision);
    std::vector<StoreEntry> all = co_await store.scan("a/", deadline);
    EXPECT_EQ(all.size(), 2u);
    co_return 0;
  });
  sim.simulator.run_for(1s);
  EXPECT_EQ(program.exit_code(), 0);
}

Task<int> write_once(SimProgram& self, std::string key, Duration patience) {
  std::vector<StoreCondition> none;
  const CommitResult result = co_await self.store().commit(none, put(key, "v"), self.loop().now() + patience);
  co_return result.committed ? 0 : 3;
}

SimProgram::Main writer(std::string key, Duration patience) {
  return [key, patience](SimProgram& self) { return write_once(self, key, patience); };
}

TEST(Store, IsUnavailableWhileDownOrCutOff) {
  for (const bool down : {true, false}) {
    Simulation sim(1, 2);
    if (down) {
      sim.store.set_up(false);
    } else {
      sim.network.cut({1}, {sim.store.node()});
    }
    SimProgram& program = sim.machine(1).start("p", writer("k", 3s));
    SimProgram& other = sim.machine(2).start("p", writer("l", 3s));
    sim.simulator.run_for(10s);
    EXPECT_EQ(program.exit_code(), 1);
    EXPECT_EQ(other.exit_code(), down ? 1 : 0);
    EXPECT_FALSE(sim.store.entries().contains("k"));
  }
}

TEST(Store, AnswersLateWhenItComesBackInTime) {
  Simulation sim(1, 1);
  sim.store.set_up(false);
  SimProgram& program = sim.machine(1).start("p", writer("k", 10s));
  sim.simulator.run_for(5s);
  sim.store.set_up(true);
  sim.simulator.run_for(1s);
  EXPECT_EQ(program.exit_code(), 0);
}

TEST(Store, MayCommitWithoutTheClientKnowing) {
  Simulation sim(1, 1);
  SimProgram& program = sim.machine(1).start("p", writer("k", 3s));
  sim.simulator.run_until([&] { return sim.store.entries().contains("k"); }, Instant{} + 1s);
  sim.network.isolate(1);
  sim.simulator.run_for(5s);
  EXPECT_EQ(program.exit_code(), 1);
  EXPECT_TRUE(sim.store.entries().contains("k"));
  EXPECT_EQ(sim.simulator.marked("store.answer_lost"), 1u);
}

TEST(Store, ARequestOutlivesItsSender) {
  Simulation sim(1, 1);
  sim.machine(1).start("p", writer("k", 3s)).kill();
  sim.simulator.run_for(1s);
  EXPECT_TRUE(sim.store.entries().contains("k"));
}

struct LeaseLife {
  bool renewed = false;
  std::optional<bool> late;
};

Task<int> hold_lease(SimProgram& self, LeaseLife& life, Duration pause) {
  Store& store = self.store();
  const int64_t lease = co_await store.grant_lease(4500ms, self.loop().now() + 1s);  // becomes 5 s
  std::vector<StoreCondition> none;
  co_await store.commit(none, put("agents/1", "here", lease), self.loop().now() + 1s);
  co_await Sleep(self.loop(), self.loop().now() + 4s);
  life.renewed = co_await store.renew_lease(lease, self.loop().now() + 1s);
  co_await Sleep(self.loop(), self.loop().now() + pause);
  life.late = co_await store.renew_lease(lease, self.loop().now() + 10s);
  co_return 0;
}

SimProgram::Main leaseholder(LeaseLife& life, Duration pause) {
  return [&life, pause](SimProgram& self) { return hold_lease(self, life, pause); };
}

TEST(Lease, KeysVanishWhenItIsNotRenewed) {
  Simulation sim(1, 1);
  LeaseLife life;
  sim.machine(1).start("p", leaseholder(life, 6s));
  sim.simulator.run_for(8s);
  EXPECT_TRUE(life.renewed);
  EXPECT_TRUE(sim.store.entries().contains("agents/1"));
  sim.simulator.run_for(1500ms);
  EXPECT_FALSE(sim.store.entries().contains("agents/1"));
  sim.simulator.run_for(2s);
  EXPECT_EQ(life.late, false);
  EXPECT_EQ(sim.simulator.marked("store.lease_expired"), 1u);
}

TEST(Lease, AnOutageDoesNotExpireIt) {
  Simulation sim(1, 1);
  LeaseLife life;
  sim.machine(1).start("p", leaseholder(life, 2s));
  sim.simulator.run_for(5s);
  sim.store.set_up(false);
  sim.simulator.run_for(8s);
  sim.store.set_up(true);
  sim.simulator.run_for(1s);
  EXPECT_EQ(life.late, true);
  EXPECT_TRUE(sim.store.entries().contains("agents/1"));
}

TEST(Lease, ExpiresWhenTheHoldersMachineIsGone) {
  Simulation sim(1, 1);
  LeaseLife life;
  sim.machine(1).start("p", leaseholder(life, 1s));
  sim.simulator.run_for(1s);
  sim.machine(1).crash();
  sim.simulator.run_for(6s);
  EXPECT_FALSE(sim.store.entries().contains("agents/1"));
}

Task<void> collect(Channel<StoreChange>& changes, std::vector<std::string>& seen) {
  while (std::optional<StoreChange> change = co_await changes.pop()) {
    seen.push_back(change->key.empty() ? "read again" : change->key + "=" + change->value.value_or("gone"));
  }
}

Task<int> watch_all(SimProgram& self, std::vector<std::string>& seen) {
  Channel<StoreChange> changes(self.loop());
  Scope scope(self.loop());
  scope.spawn(self.store().watch("a/", changes));
  scope.spawn(collect(changes, seen));
  co_await scope.join();
  co_return 0;
}

TEST(Watch, TellsChangesInOrderAndOfGaps) {
  Simulation sim(1, 2);
  std::vector<std::string> seen;
  SimProgram& watcher = sim.machine(1).start("watcher", [&seen](SimProgram& self) { return watch_all(self, seen); });
  const auto write = [&](const std::string& key) { sim.store.commit({}, put(key, "v")); };
  write("a/1");
  write("b/1");
  sim.store.commit({}, {StoreWrite{"a/1", std::nullopt, 0}});
  sim.simulator.run_for(1s);
  EXPECT_EQ(seen, (std::vector<std::string>{"a/1=v", "a/1=gone"}));
  sim.network.cut({1}, {0});
  write("a/2");
  sim.simulator.run_for(1s);
  write("a/3");
  sim.network.heal();
  sim.simulator.run_for(1s);
  write("a/4");
  sim.simulator.run_for(1s);
  EXPECT_EQ(seen, (std::vector<std::string>{"a/1=v", "a/1=gone", "read again", "a/4=v"}));
  watcher.kill();
  write("a/5");
  sim.simulator.run_for(1s);
  EXPECT_EQ(seen.size(), 4u);
}

}  // namespace
}  // namespace rubato::sim
