#include "sim/machine.h"

#include <gtest/gtest.h>

#include "sim/simulation.h"

namespace rubato::sim {
namespace {

TEST(Program, ExitsWithTheCodeOrTheErrorOfItsMain) {
  Simulation sim(1, 1);
  SimProgram& fine = sim.machine(1).start("fine", [](SimProgram& self) -> Task<int> {
    self.world().console.out("data\n");
    co_return 7;
  });
  SimProgram& wrong = sim.machine(1).start("wrong", [](SimProgram&) -> Task<int> {
    throw Error(ErrorCode::kUsage, "no such flag");
    co_return 0;
  });
  EXPECT_EQ(fine.exit_code(), 7);
  EXPECT_EQ(fine.console().out_text(), "data\n");
  EXPECT_EQ(wrong.exit_code(), 2);
  EXPECT_EQ(wrong.console().err_text(), "error: no such flag\n");
}

struct LastWords {
  World& world;
  ~LastWords() {
    world.console.out("written by a dead program");
    world.files.write_atomically("/tmp/last", "words");
  }
};

TEST(Program, DestructorsOfAKilledOneDoNothingOutside) {
  Simulation sim(1, 1);
  SimProgram& program = sim.machine(1).start("p", [](SimProgram& self) -> Task<int> {
    const LastWords text{self.world()};
    co_await Sleep(self.loop(), self.loop().now() + 1h);
    co_return 0;
  });
  program.kill();
  EXPECT_EQ(program.console().out_text(), "");
  EXPECT_TRUE(sim.machine(1).disk().files().empty());
}

Task<int> draw(SimProgram& self, std::vector<uint64_t>& drawn, std::vector<std::string>& ids) {
  drawn.push_back(self.world().random.next());
  ids.push_back(self.world().machine.machine_id);
  co_return 0;
}

TEST(Machine, FactsAndRandomnessDiffer) {
  Simulation sim(1, 2);
  std::vector<uint64_t> drawn;
  std::vector<std::string> ids;
  for (int number = 1; number <= 2; ++number) {
    sim.machine(number).start("p", [&](SimProgram& self) { return draw(self, drawn, ids); });
  }
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_NE(sim.machine(1).clock().now(), sim.machine(2).clock().now());
}

Task<int> wake_thrice(SimProgram& self, Simulator& simulator, std::vector<double>& woke) {
  for (int i = 0; i < 3; ++i) {
    co_await Sleep(self.loop(), self.loop().now() + 1s);
    woke.push_back(to_seconds(simulator.now() - Instant{}));
  }
  co_return 0;
}

TEST(Machine, TimersOfAFrozenOneAreLate) {
  Simulation sim(1, 1);
  std::vector<double> woke;
  sim.machine(1).start("p", [&](SimProgram& self) { return wake_thrice(self, sim.simulator, woke); });
  sim.simulator.at(Instant{} + 1500ms, [&] { sim.machine(1).freeze(); });
  sim.simulator.at(Instant{} + 10s, [&] { sim.machine(1).thaw(); });
  sim.simulator.run_for(20s);
  ASSERT_EQ(woke.size(), 3u);
  EXPECT_NEAR(woke[1], 10.0, 0.001);
  EXPECT_NEAR(woke[2], 11.0, 0.001);
}

TEST(Machine, ARebootKeepsTheDiskAndNothingElse) {
  Simulation sim(1, 1);
  SimMachine& machine = sim.machine(1);
  SimProgram& program = machine.start("p", [](SimProgram& self) -> Task<int> {
    self.world().files.write_atomically("/var/state", "kept");
    std::unique_ptr<PortLease> lease = self.world().network.lease_port(80);
    co_await Sleep(self.loop(), self.loop().now() + 1h);
    co_return 0;
  });
  machine.reboot();
  EXPECT_FALSE(program.running());
  EXPECT_EQ(machine.disk().find("/var/state")->bytes, "kept");
  EXPECT_EQ(machine.clock().now(), Instant{} + 1s);
  SimProgram& again = machine.start("p", [](SimProgram& self) -> Task<int> {
    std::unique_ptr<PortLease> lease = self.world().network.lease_port(80);
    co_return 0;
  });
  EXPECT_EQ(again.exit_code(), 0);
}

Task<int> use_files(SimProgram& self, SimDisk& disk) {
  Files& files = self.world().files;
  const std::string folder = files.make_temporary_folder("rubato-");
  EXPECT_TRUE(files.exists(folder));
  EXPECT_NE(folder, files.make_temporary_folder("rubato-"));
  files.make_folders("/a/b");
  EXPECT_TRUE(files.exists("/a"));
  EXPECT_EQ(files.read("/a/b/c"), std::nullopt);
  std::unique_ptr<Appender> log = files.open_append("/a/b/c");
  EXPECT_EQ(files.read("/a/b/c"), "");
  log->append("1");
  log->append("2");
  EXPECT_EQ(files.read("/a/b/c"), "12");
  EXPECT_EQ(files.modified("/a/b/c"), self.world().clock.wall());
  EXPECT_EQ(files.modified("/nowhere"), std::nullopt);
  files.write_atomically("/a/bc", "kept");
  files.remove_tree("/a/b");
  EXPECT_FALSE(files.exists("/a/b/c"));
  EXPECT_FALSE(files.exists("/a/b"));
  EXPECT_EQ(files.read("/a/bc"), "kept");
  disk.set_free_bytes(1);
  EXPECT_THROW(files.write_atomically("/a/bc", "too long"), Error);
  EXPECT_EQ(files.read("/a/bc"), "kept");
  log->append("x");
  EXPECT_THROW(log->append("y"), Error);
  co_return 0;
}

TEST(Files, BehaveAsATreeAndFillUp) {
  Simulation sim(1, 1);
  SimMachine& machine = sim.machine(1);
  SimProgram& program = machine.start("p", [&machine](SimProgram& self) { return use_files(self, machine.disk()); });
  EXPECT_EQ(program.exit_code(), 0) << program.console().err_text();
  EXPECT_EQ(sim.simulator.marked("disk.full"), 2u);
}

// Every kind of wait, for cancellation.
Task<int> wait_in(SimProgram& self, int kind) {
  World& world = self.world();
  const Instant deadline = self.loop().now() + 1h;
  const ChannelKey key{"k"};
  const Endpoint own{"", 80}, peer{"node2", 80}, nobody{"node3", 80};
  std::unique_ptr<Listener> listener = world.network.listen(own, key, 10s);
  SpawnSpec spec;
  spec.argv = {"python3"};
  std::unique_ptr<Process> process = world.processes.spawn(spec);
  Channel<StoreChange> changes(self.loop());
  switch (kind) {
    case 0:
      co_await Sleep(self.loop(), deadline);
      break;
    case 1: {
      std::unique_ptr<Connection> connection = co_await listener->accept();
      break;
    }
    case 2: {
      ConnectResult result = co_await world.network.connect(nobody, key, deadline, 10s);
      break;
    }
    case 3: {
      ConnectResult result = co_await world.network.connect(peer, key, deadline, 10s);
      if (result.connection) std::optional<std::string> message = co_await result.connection->receive();
      break;
    }
    case 4:
      co_await process->wait();
      break;
    case 5: {
      std::optional<OutputChunk> chunk = co_await process->output().pop();
      break;
    }
    case 6: {
      std::optional<StoreEntry> entry = co_await self.store().get("k", deadline);
      co_await self.store().watch("k", changes);
      break;
    }
    case 7: {
      Task<int> inner = wait_in(self, 0);
      listener.reset();
      std::optional<int> done = co_await with_deadline(self.loop(), deadline, std::move(inner));
      EXPECT_FALSE(done);
      break;
    }
  }
  co_return 0;
}

// Ends the program of node1 after a while, in one of the ways, and lets the rest go on.
void end_in_wait(int kind, int way, Duration after) {
  Simulation sim(static_cast<uint64_t>(kind + 1), 3);
  sim.machine(2).start("peer", [](SimProgram& self) -> Task<int> {
    const ChannelKey key{"k"};
    const Endpoint own{"", 80};
    std::unique_ptr<Listener> listener = self.world().network.listen(own, key, 10s);
    std::vector<std::unique_ptr<Connection>> connections;
    while (true) connections.push_back(co_await listener->accept());
  });
  sim.machine(3).crash();
  SimProgram& program = sim.machine(1).start("p", [kind](SimProgram& self) { return wait_in(self, kind); });
  sim.simulator.run_for(after);
  if (way == 0) program.kill();
  if (way == 1) sim.machine(1).crash();
  if (way == 2) sim.machine(1).reboot();
  if (way == 3) sim.machine(1).freeze();
  if (way == 4) sim.network.isolate(1);
  if (way == 3) program.kill();
  sim.simulator.run_for(30s);
  EXPECT_EQ(program.running(), way >= 4 && !program.exit_code()) << kind << " " << way;
  if (way < 4) {
    EXPECT_TRUE(sim.workers.live().empty());
  }
}

TEST(Cancel, EveryWaitCanBeDestroyedAtAnyMoment) {
  for (int kind = 0; kind < 8; ++kind) {
    for (int way = 0; way < 6; ++way) {
      for (const Duration after : {Duration(0), Duration(60us), Duration(300us), Duration(1s), Duration(5s)}) {
        end_in_wait(kind, way, after);
      }
    }
  }
}

}  // namespace
}  // namespace rubato::sim
