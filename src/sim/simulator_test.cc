#include "sim/simulator.h"

#include <gtest/gtest.h>

#include "core/channel.h"
#include "core/scope.h"
#include "sim/simulation.h"

namespace rubato::sim {
namespace {

Task<void> tick(Loop& loop, Duration every, std::vector<Instant>& seen) {
  for (int i = 0; i < 3; ++i) {
    co_await Sleep(loop, loop.now() + every);
    seen.push_back(loop.now());
  }
}

TEST(Simulator, JumpsFromTimerToTimer) {
  Simulator simulator(1);
  std::vector<Instant> seen;
  Scope scope(simulator);
  scope.spawn(tick(simulator, 1h, seen));
  simulator.run_for(150min);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_EQ(simulator.now(), Instant{} + 150min);
  EXPECT_TRUE(simulator.run_until([&] { return seen.size() == 3; }, Instant::max()));
  EXPECT_EQ(simulator.now(), Instant{} + 3h);
  EXPECT_EQ(simulator.events(), 3u);
}

TEST(Simulator, SaysWhenTheConditionNeverCame) {
  Simulator simulator(1);
  EXPECT_FALSE(simulator.run_until([] { return false; }, Instant{} + 5s));
  EXPECT_EQ(simulator.now(), Instant{} + 5s);
  std::vector<Instant> seen;
  Alarm never(simulator, [&] { seen.push_back(simulator.now()); });
  never.set(Instant::max());
  EXPECT_FALSE(simulator.run_until([] { return false; }, Instant::max()));
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(simulator.now(), Instant{} + 5s);
}

TEST(Simulator, CallsTheHookAfterEachEventAndRunsPlannedFaults) {
  Simulator simulator(1);
  int hooks = 0, faults = 0;
  simulator.after_each_event([&] { ++hooks; });
  simulator.at(Instant{} + 1s, [&] {
    ++faults;
    simulator.at(Instant{} + 2s, [&] { ++faults; });
  });
  simulator.run_for(3s);
  EXPECT_EQ(faults, 2);
  EXPECT_EQ(hooks, 2);
}

TEST(Simulator, StopsARunThatGoesOnForEver) {
  Simulator simulator(1);
  std::function<void()> again = [&] { simulator.at(simulator.now(), again); };
  simulator.at(Instant{}, again);
  simulator.set_events_max(1000);
  EXPECT_THROW(simulator.run_for(1s), Error);
}

TEST(Simulator, CountsMarks) {
  Simulator simulator(1);
  simulator.mark("network.cut");
  simulator.mark("network.cut");
  EXPECT_EQ(simulator.marked("network.cut"), 2u);
  EXPECT_EQ(simulator.marked("machine.crash"), 0u);
}

MachineOptions clock_options(Duration start, int64_t ppb) {
  MachineOptions options;
  options.clock_start = Instant{} + start;
  options.clock_rate_ppb = ppb;
  return options;
}

Task<int> sleep_eleven(SimProgram& program, Simulator& simulator, std::optional<Duration>& felt, Instant& woke) {
  const Instant begun = program.world().clock.now();
  EXPECT_EQ(begun, Instant{} + 1h);
  co_await Sleep(program.loop(), begun + 11s);
  felt = program.world().clock.now() - begun;
  woke = simulator.now();
  co_return 0;
}

TEST(LocalClock, TimersOfAFastClockFireEarly) {
  Simulation sim(1);
  SimMachine& fast = sim.add_machine(clock_options(1h, 100'000'000));  // ten per cent
  Instant woke{};
  std::optional<Duration> felt;
  fast.start("sleeper", [&](SimProgram& self) { return sleep_eleven(self, sim.simulator, felt, woke); });
  sim.simulator.run_for(1min);
  EXPECT_GE(*felt, 11s);
  EXPECT_LT(*felt, 11s + 10ns);
  EXPECT_NEAR(to_seconds(woke - Instant{}), 10.0, 1e-6);
}

Task<int> sleep_twenty(SimProgram& program, Simulator& simulator, Instant& woke) {
  co_await Sleep(program.loop(), program.loop().now() + 20s);
  woke = simulator.now();
  co_return 0;
}

TEST(LocalClock, AChangedRateMovesTimersThatAreSet) {
  Simulation sim(1);
  SimMachine& machine = sim.add_machine(clock_options(5s, 0));
  Instant woke{};
  machine.start("sleeper", [&](SimProgram& self) { return sleep_twenty(self, sim.simulator, woke); });
  sim.simulator.run_for(10s);
  machine.set_clock_rate(1'000'000'000);  // twice as fast
  sim.simulator.run_for(1min);
  EXPECT_NEAR(to_seconds(woke - Instant{}), 15.0, 1e-6);
}

TEST(LocalClock, ConvertsBothWaysAndBearsNever) {
  Simulation sim(1);
  SimMachine& machine = sim.add_machine(clock_options(720h, -31'337));
  sim.simulator.run_for(12345678ns);
  for (const Duration ahead : {Duration(1), Duration(17), Duration(1s), Duration(100h)}) {
    const Instant local = machine.clock().now() + ahead;
    const Instant global = machine.clock().to_global(local);
    EXPECT_GE(machine.clock().to_local(global), local);
    EXPECT_LT(machine.clock().to_local(global - 1ns), local);
  }
  EXPECT_EQ(machine.clock().to_global(Instant::max()), Instant::max());
}

TEST(LocalClock, WallClocksDifferByTheirOffset) {
  Simulation sim(1);
  MachineOptions ahead;
  ahead.wall_offset = 3s;
  SimMachine& a = sim.add_machine(MachineOptions());
  SimMachine& b = sim.add_machine(ahead);
  EXPECT_EQ(b.clock().wall() - a.clock().wall(), 3s);
}

}  // namespace
}  // namespace rubato::sim
