// Determinism of whole runs, and their cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "sim/simulation.h"

namespace rubato::sim {
namespace {

constexpr uint16_t kPort = 29400;

Task<void> answer(std::unique_ptr<Connection> connection) {
  while (std::optional<std::string> message = co_await connection->receive()) connection->send(std::move(*message));
}

Task<int> hub(SimProgram& self) {
  const ChannelKey key{"k"};
  const Endpoint own{"", kPort};
  std::unique_ptr<Listener> listener = self.world().network.listen(own, key, 10s);
  Scope scope(self.loop());
  while (true) {
    std::unique_ptr<Connection> connection = co_await listener->accept();
    scope.spawn(answer(std::move(connection)));
  }
}

Task<int> talker(SimProgram& self, int messages) {
  const ChannelKey key{"k"};
  const Endpoint the_hub{"node1", kPort};
  for (int sent = 0; sent < messages;) {
    ConnectResult result = co_await self.world().network.connect(the_hub, key, self.loop().now() + 5s, 10s);
    if (!result.connection) {
      co_await Sleep(self.loop(), self.loop().now() + 1s);
      continue;
    }
    for (; sent < messages; ++sent) {
      result.connection->send("heartbeat " + std::to_string(sent));
      std::optional<std::string> reply = co_await result.connection->receive();
      if (!reply) break;
      co_await Sleep(self.loop(), self.loop().now() + 100ms);
    }
  }
  co_return 0;
}

// A hub, talkers and a storm of faults; the hash of what happened.
uint64_t storm(uint64_t seed) {
  Simulation sim(seed, 10);
  sim.network.faults.loss = 0.02;
  sim.machine(1).start("hub", hub);
  for (int number = 2; number <= 10; ++number) {
    sim.machine(number).start("talker", [](SimProgram& self) { return talker(self, 100); });
  }
  Random random(seed);
  for (int fault = 0; fault < 10; ++fault) {
    const int victim = static_cast<int>(2 + random.below(9));
    const Instant at = Instant{} + seconds(20 * random.unit());
    const uint64_t kind = random.below(4);
    sim.simulator.at(at, [&sim, victim, kind] {
      if (kind == 0) sim.network.isolate(victim);
      if (kind == 1) sim.network.heal();
      if (kind == 2) sim.machine(victim).reboot();
      if (kind == 3) sim.machine(victim).freeze();
    });
    sim.simulator.at(at + 2s, [&sim, victim] { sim.machine(victim).thaw(); });
  }
  sim.simulator.run_for(60s);
  return sim.simulator.hash();
}

TEST(Determinism, TheSameSeedGivesTheSameHash) {
  std::vector<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const uint64_t hash = storm(seed);
    EXPECT_EQ(hash, storm(seed)) << seed;
    hashes.push_back(hash);
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
}

TEST(Scale, AThousandMachinesExchangeAHundredMessagesEach) {
  Simulation sim(1, 1000);
  sim.machine(1).start("hub", hub);
  for (int number = 2; number <= 1000; ++number) {
    sim.machine(number).start("talker", [](SimProgram& self) { return talker(self, 100); });
  }
  sim.simulator.run_for(60s);
  for (int number = 2; number <= 1000; ++number) {
    ASSERT_EQ(sim.machine(number).programs()[0]->exit_code(), 0) << number;
  }
  RecordProperty("events", std::to_string(sim.simulator.events()));
  std::printf("%llu events\n", static_cast<unsigned long long>(sim.simulator.events()));
}

}  // namespace
}  // namespace rubato::sim
