#include "sim/journal.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "sim/simulation.h"
#include "world/journal_testing.h"

namespace rubato::sim {
namespace {

using namespace journal_cases;

struct World1 {
  explicit World1(uint64_t seed = 1) : sim(seed, 1), journal(sim.simulator, sim.machine(1)) {}

  // Opens the journal and runs the case on it.
  using Case = Task<int> (*)(Journal&);
  static Task<int> open_and_run(SimProgram& self, SimJournal& journal, Case body) {
    const std::unique_ptr<Journal> opened = co_await journal.open(self);
    Task<int> run = body(*opened);
    co_return co_await std::move(run);
  }
  SimProgram& start(Case body) {
    return sim.machine(1).start("head", [this, body](SimProgram& self) { return open_and_run(self, journal, body); });
  }
  // To the end.
  void run(Case body) {
    SimProgram& program = start(body);
    sim.simulator.run_for(60s);
    EXPECT_EQ(program.exit_code(), 0) << program.console().err_text();
  }

  Simulation sim;
  SimJournal journal;
};

TEST(SimJournal, IsEmptyAtFirst) { World1().run(is_empty_at_first); }
TEST(SimJournal, KeepsOrderAndBytes) { World1().run(keeps_order_and_bytes); }
TEST(SimJournal, TrimsBehindSnapshots) { World1().run(trims_behind_snapshots); }
TEST(SimJournal, RefusesASnapshotOfTheFuture) { World1().run(refuses_a_snapshot_of_the_future); }

Task<int> sixteen_appenders(SimProgram& self, SimJournal& file) {
  const std::unique_ptr<Journal> journal = co_await file.open(self);
  co_return co_await answers_overlapping_appends(*journal, self.loop(), 16, 10);
}

TEST(SimJournal, SharesCommits) {
  World1 world;
  SimProgram& program =
      world.sim.machine(1).start("head", [&world](SimProgram& self) { return sixteen_appenders(self, world.journal); });
  world.sim.simulator.run_for(10s);
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_EQ(world.journal.end(), 160u);
  EXPECT_LE(world.journal.commits(), 20u);
}

Task<int> open_twice(SimProgram& self, SimJournal& file) {
  const std::unique_ptr<Journal> old_one = co_await file.open(self);
  co_await old_one->append(one_record("before"));
  const std::unique_ptr<Journal> new_one = co_await file.open(self);
  co_return co_await fences_the_older_writer(*old_one, *new_one);
}

TEST(SimJournal, FencesTheOlderWriter) {
  World1 world;
  SimProgram& program =
      world.sim.machine(1).start("head", [&world](SimProgram& self) { return open_twice(self, world.journal); });
  world.sim.simulator.run_for(10s);
  EXPECT_EQ(program.exit_code(), 0);
}

// What a head told the world: the records that it knows to be in.
using Told = std::map<uint64_t, std::string>;

Task<void> append_for_ever(Journal& journal, Loop& loop, std::string name, Told& told) {
  for (int i = 1;; ++i) {
    const std::string record = name + std::to_string(i);
    const uint64_t offset = co_await journal.append(one_record(record));
    told[offset] = record;
    co_await Sleep(loop, loop.now() + 1ms);
  }
}

Task<int> busy_head(SimProgram& self, SimJournal& file, Told& told) {
  const std::unique_ptr<Journal> journal = co_await file.open(self);
  Scope scope(self.loop());
  for (int i = 0; i < 4; ++i) scope.spawn(append_for_ever(*journal, self.loop(), std::string(1, 'a' + i), told));
  co_await scope.join();
  co_return 0;
}

SimProgram& start_busy_head(World1& world, Told& told) {
  return world.sim.machine(1).start("head",
                                    [&world, &told](SimProgram& self) { return busy_head(self, world.journal, told); });
}

TEST(SimJournal, StrikesExactlyBeforeOrAfterARecordIsDurable) {
  for (const Durable when : {Durable::kBefore, Durable::kAfter}) {
    World1 world;
    Told told;
    SimProgram& head = start_busy_head(world, told);
    world.journal.on_commit = [&](uint64_t offset, Durable now) {
      if (offset == 10 && now == when) head.kill();
    };
    world.sim.simulator.run_for(1s);
    EXPECT_FALSE(head.running());
    EXPECT_FALSE(told.contains(10));
    EXPECT_EQ(world.journal.records().contains(10), when == Durable::kAfter);
    EXPECT_TRUE(world.journal.records().contains(told.rbegin()->first));
  }
}

TEST(SimJournal, StrikesWithAPowerCutToo) {
  World1 world;
  Told told;
  start_busy_head(world, told);
  world.journal.on_commit = [&](uint64_t offset, Durable when) {
    if (offset == 10 && when == Durable::kAfter) world.sim.machine(1).crash();
  };
  world.sim.simulator.run_for(1s);
  EXPECT_TRUE(world.journal.records().contains(10));
  world.journal.on_commit = nullptr;
  world.sim.machine(1).reboot();
  SimProgram& next = start_busy_head(world, told);
  world.sim.simulator.run_for(1s);
  EXPECT_TRUE(next.running());
  EXPECT_GT(world.journal.end(), 100u);
}

// Heads die at any time; what they told is there, without gaps.
uint64_t chaos(uint64_t seed, std::map<std::string, uint64_t>& marks) {
  World1 world(seed);
  Told told;
  Random random(seed);
  for (int life = 0; life < 6; ++life) {
    SimProgram& head = start_busy_head(world, told);
    world.sim.simulator.run_for(10ms + seconds(random.unit() * 0.03));
    if (random.chance(0.5)) {
      head.kill();
    } else {
      world.sim.machine(1).reboot();
    }
    if (random.chance(0.5)) world.sim.simulator.run_for(10ms);
  }
  world.sim.simulator.run_for(10ms);
  uint64_t expected = 0;
  for (const auto& [offset, record] : world.journal.records()) EXPECT_EQ(offset, ++expected);
  for (const auto& [offset, record] : told) {
    const auto found = world.journal.records().find(offset);
    EXPECT_TRUE(found != world.journal.records().end() && found->second == record) << seed << ": " << offset;
  }
  for (const auto& [name, count] : world.sim.simulator.marks()) marks[name] += count;
  return world.sim.simulator.hash();
}

TEST(SimJournal, HasWhatWasToldAfterCrashesAtAnyTime) {
  std::map<std::string, uint64_t> marks;
  for (uint64_t seed = 1; seed <= 50; ++seed) chaos(seed, marks);
  EXPECT_GT(marks["journal.unheard"], 0u) << "a record may be in though nobody heard of it";
  EXPECT_GT(marks["journal.lost"], 0u);
}

// ---- Strikes at the file ----

enum class Strike { kNone, kTailCut, kRecordDamaged, kFileGone };

void strike_at(SimJournal& journal, Random& random, Strike strike) {
  switch (strike) {
    case Strike::kNone:
      return;
    case Strike::kTailCut:
      journal.cut_tail(1 + random.below(5));
      return;
    case Strike::kRecordDamaged:
      journal.damage_record(1 + random.below(std::max<uint64_t>(journal.end(), 1)));
      return;
    case Strike::kFileGone:
      journal.remove_file();
      return;
  }
}

// Either the next head refuses, or nothing that was told is missing. Heads die, power goes, and in between, or while a
// head runs, somebody strikes at the file.
void refuse_or_have_all(uint64_t seed, std::map<std::string, uint64_t>& marks) {
  World1 world(seed);
  Told told;
  Random random(seed);
  bool refused = false;
  for (int life = 0; life < 5 && !refused; ++life) {
    SimProgram& head = start_busy_head(world, told);
    world.sim.simulator.run_for(10ms + seconds(random.unit() * 0.03));
    const auto strike = static_cast<Strike>(random.below(4));
    const bool while_up = random.chance(0.5);
    const bool is_missed = (strike == Strike::kTailCut || strike == Strike::kFileGone) && world.journal.end() > 0;
    if (while_up) {
      strike_at(world.journal, random, strike);
      world.sim.simulator.run_for(20ms);
      EXPECT_FALSE(is_missed && head.running()) << seed << ": a head goes on with a journal that is not there";
    }
    if (random.chance(0.5)) {
      head.kill();
    } else {
      world.sim.machine(1).reboot();
    }
    if (!while_up) strike_at(world.journal, random, strike);
    SimProgram& next = start_busy_head(world, told);
    world.sim.simulator.run_for(30ms);
    refused = !next.running();
    if (!refused) {
      for (const auto& [offset, record] : told) {
        const auto found = world.journal.records().find(offset);
        EXPECT_TRUE(found != world.journal.records().end() && found->second == record)
            << seed << ": record " << offset << " is gone without a word";
      }
      next.kill();
    } else {
      EXPECT_NE(next.console().err_text().find("--accept-journal-loss"), std::string::npos)
          << seed << ": " << next.console().err_text();
    }
  }
  for (const auto& [name, count] : world.sim.simulator.marks()) marks[name] += count;
}

TEST(SimJournal, RefusesOrHasAllThatWasToldWhateverIsDoneToIt) {
  std::map<std::string, uint64_t> marks;
  const char* count = std::getenv("RUBATO_SEEDS");
  const uint64_t seeds = count ? std::strtoull(count, nullptr, 10) : 300;
  for (uint64_t seed = 1; seed <= seeds; ++seed) refuse_or_have_all(seed, marks);
  for (const char* mark : {"journal.tail_cut", "journal.record_damaged", "journal.file_gone", "journal.refused"}) {
    EXPECT_GT(marks[mark], 0u) << mark;
  }
}

TEST(SimJournal, GoesOnWithoutWhatIsLostWhenToldTo) {
  World1 world;
  Told told;
  SimProgram& head = start_busy_head(world, told);
  world.sim.simulator.run_for(30ms);
  head.kill();
  world.sim.simulator.run_for(20ms);
  const uint64_t end = world.journal.note()->offset;
  world.journal.cut_tail(3);
  JournalLoss lost;
  world.journal.accept_loss = [&lost](const JournalLoss& loss) {
    lost = loss;
    return std::string("lost");
  };
  SimProgram& next = start_busy_head(world, told);
  world.sim.simulator.run_for(30ms);
  EXPECT_TRUE(next.running());
  EXPECT_EQ(lost.last, end);
  EXPECT_EQ(world.journal.records().at(lost.first), "lost");
}

TEST(SimJournal, IsTheSameForTheSameSeed) {
  std::map<std::string, uint64_t> marks;
  EXPECT_EQ(chaos(7, marks), chaos(7, marks));
  EXPECT_NE(chaos(7, marks), chaos(8, marks));
}

TEST(SimJournal, IsUnavailableWhileTheDiskIsFull) {
  World1 world;
  Told told;
  SimProgram& head = start_busy_head(world, told);
  world.sim.simulator.run_for(50ms);
  world.sim.machine(1).disk().set_free_bytes(0);
  world.sim.simulator.run_for(50ms);
  EXPECT_EQ(head.exit_code(), 1);
  EXPECT_NE(head.console().err_text().find("the disk is full"), std::string::npos);
  EXPECT_EQ(told.size(), world.journal.records().size());
  world.sim.machine(1).disk().set_free_bytes(1 << 20);
  SimProgram& next = start_busy_head(world, told);
  world.sim.simulator.run_for(50ms);
  EXPECT_TRUE(next.running());
}

}  // namespace
}  // namespace rubato::sim
