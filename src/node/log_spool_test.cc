#include "node/log_spool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "agent/worker_output.h"
#include "sim/simulation.h"

namespace rubato::node {
namespace {

constexpr const char* kFolder = "/node/spool/j-1";

Task<int> wait_for_ever(sim::SimProgram& self) {
  co_await Sleep(self.loop(), self.loop().now() + 1000h);
  co_return 0;
}

class Spool : public testing::Test {
 protected:
  Spool() : program(sim.machine(1).start("agent", wait_for_ever)) { open(); }
  void open() {
    spool.reset();
    spool.emplace(program.world(), kFolder, [this] { ++woken; });
  }
  // The texts of all that is to be sent now.
  std::vector<std::string> take_all() {
    std::vector<std::string> texts;
    while (true) {
      const auto lines = spool->take(1 << 16);
      if (lines.empty()) return texts;
      for (const auto& line : lines) {
        EXPECT_EQ(line.sequence, last + 1) << "a line was lost or came twice";
        last = line.sequence;
        texts.push_back(line.text);
      }
    }
  }
  uint64_t on_disk() {
    uint64_t bytes = 0;
    for (const auto& [path, file] : sim.machine(1).disk().files()) bytes += file.bytes.size();
    return bytes;
  }
  sim::Simulation sim{1, 1};
  sim::SimProgram& program;
  std::optional<LogSpool> spool;
  int woken = 0;
  uint64_t last = 0;
};

TEST_F(Spool, GivesLinesOnceWithAllThatIsKnownOfThem) {
  spool->add(3, 7, true, std::string("a\0\xff", 3));
  EXPECT_EQ(woken, 1);
  EXPECT_FALSE(spool->all_kept());
  const auto lines = spool->take(100);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].sequence, 1u);
  EXPECT_EQ(lines[0].generation, 3u);
  EXPECT_EQ(lines[0].rank, 7);
  EXPECT_TRUE(lines[0].is_stderr);
  EXPECT_EQ(lines[0].text, std::string("a\0\xff", 3));
  EXPECT_EQ(lines[0].time_us, program.world().clock.wall().time_since_epoch().count());
  EXPECT_TRUE(spool->take(100).empty());
  EXPECT_FALSE(spool->all_kept());
  spool->acked(1);
  EXPECT_TRUE(spool->all_kept());
}

TEST_F(Spool, KeepsTheNameOfWhoNumbersItsLines) {
  EXPECT_EQ(spool->owner().value, "");
  LogSpool first(
      program.world(), "/node/spool/j-2", [] {}, 1, AgentId{"first"});
  EXPECT_EQ(first.owner().value, "first");
  const LogSpool next(
      program.world(), "/node/spool/j-2", [] {}, 1, AgentId{"second"});
  EXPECT_EQ(next.owner().value, "first") << "its numbers go on";
  first.remove();
  const LogSpool anew(
      program.world(), "/node/spool/j-2", [] {}, 1, AgentId{"second"});
  EXPECT_EQ(anew.owner().value, "second");
}

TEST_F(Spool, SendsAgainWhatWasNotAcknowledged) {
  for (int i = 1; i <= 10; ++i) spool->add(1, 0, false, std::to_string(i));
  EXPECT_EQ(take_all().size(), 10u);
  spool->add(1, 0, false, "11");
  spool->acked(10);
  spool->rewind();
  EXPECT_EQ(take_all(), std::vector<std::string>{"11"});
  spool->rewind();
  last = 10;
  EXPECT_EQ(take_all(), std::vector<std::string>{"11"});
  spool->acked(11);
  spool->rewind();
  EXPECT_TRUE(take_all().empty());
  EXPECT_EQ(spool->unacked_bytes(), 0u);
}

// A head that had them before the connection broke says so at once.
TEST_F(Spool, SkipsWhatTheHeadTurnsOutToHave) {
  for (int i = 1; i <= 10; ++i) spool->add(1, 0, false, std::to_string(i));
  take_all();
  spool->rewind();
  spool->acked(7);
  last = 7;
  EXPECT_EQ(take_all(), (std::vector<std::string>{"8", "9", "10"}));
  spool->acked(10);
  EXPECT_EQ(spool->unacked_bytes(), 0u);
  EXPECT_TRUE(spool->all_kept());
}

// The head's disk is full: one batch a second asks whether there is room again.
TEST_F(Spool, KeepsWhatTheHeadHasNoRoomFor) {
  for (int i = 1; i <= 10; ++i) spool->add(1, 0, false, std::string(1000, 'x'));
  EXPECT_EQ(spool->sent_sequence(), 0u);
  EXPECT_EQ(spool->take(2100).size(), 2u);
  EXPECT_EQ(spool->sent_sequence(), 2u);
  EXPECT_EQ(spool->take(2100).size(), 2u);
  spool->refused(1);
  EXPECT_TRUE(spool->take(2100).empty());
  EXPECT_EQ(spool->sent_sequence(), 0u) << "what comes next follows on nothing";
  EXPECT_FALSE(spool->all_kept());
  ASSERT_TRUE(spool->retry_at());
  sim.simulator.run_until(*spool->retry_at());
  const auto again = spool->take(2100);
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.front().sequence, 2u);
  EXPECT_TRUE(spool->take(2100).empty()) << "until it is known whether there is room";
  spool->acked(again.back().sequence);
  EXPECT_FALSE(spool->retry_at());
  last = again.back().sequence;
  EXPECT_EQ(take_all().size(), 10 - last + (last - again.back().sequence));
  spool->acked(10);
  EXPECT_TRUE(spool->all_kept());
}

// Training goes on: more than usual waits, as without a head.
TEST_F(Spool, AHeadWithoutRoomSlowsNobodyBeforeTheDiskIsNearlyFull) {
  while (spool->has_room(true)) spool->add(1, 0, false, std::string(60'000, 'x'));
  spool->refused(0);
  EXPECT_TRUE(spool->has_room(true));
  spool->acked(0);
  EXPECT_FALSE(spool->has_room(true));
}

TEST_F(Spool, KeepsOnlyWhatIsNotAcknowledgedOnDisk) {
  const std::string text(1000, 'x');
  for (int i = 0; i < 100'000; ++i) {
    spool->add(1, 0, false, text);
    if (i % 100 == 0) {
      take_all();
      spool->acked(last);
    }
  }
  take_all();
  spool->acked(last);
  EXPECT_EQ(last, 100'000u);
  EXPECT_LT(on_disk(), 6u << 20);
  EXPECT_EQ(spool->unacked_bytes(), 0u);
}

TEST_F(Spool, KeepsAllThereIsDiskForAndSlowsWhoPrintsMore) {
  const std::string text(10'000, 'x');
  EXPECT_TRUE(spool->has_room(true));
  for (int i = 0; i < 10'000; ++i) spool->add(1, 0, false, text);
  EXPECT_FALSE(spool->has_room(true));
  EXPECT_TRUE(spool->has_room(false)) << "without a head, workers go on";
  EXPECT_EQ(take_all().size(), 10'000u);
  spool->acked(last);
  EXPECT_TRUE(spool->has_room(true));
}

TEST_F(Spool, TellsOfMissingLinesByRank) {
  spool->begin_output({1, 4, false});
  sim.machine(1).disk().set_free_bytes(0);
  spool->add(1, 4, false, "lost");
  spool->flush();
  spool->add(1, 4, false, "lost too");
  spool->flush();
  spool->add(1, 5, true, "and this");
  EXPECT_TRUE(take_all().empty());
  EXPECT_TRUE(spool->all_kept()) << "while workers print, it is told with the next line";
  sim.machine(1).disk().set_free_bytes(1 << 20);
  spool->add(1, 6, false, "after");
  const auto lines = spool->take(1 << 16);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].rank, 4);
  EXPECT_EQ(lines[0].missing_lines, 2u);
  EXPECT_EQ(lines[0].missing_bytes, 12u);
  EXPECT_EQ(lines[0].text, "rubato: 2 lines of rank 4 (12 bytes) are missing here: the disk of the node was full");
  EXPECT_EQ(lines[1].rank, 5);
  EXPECT_EQ(lines[1].missing_lines, 1u);
  EXPECT_EQ(lines[2].text, "after");
  EXPECT_EQ(lines[2].missing_lines, 0u);
  EXPECT_FALSE(spool->all_kept());
  spool->acked(lines[2].sequence);
  EXPECT_TRUE(spool->all_kept());
}

TEST_F(Spool, TellsOfMissingLinesAtTheEndToo) {
  spool->begin_output({1, 4, false});
  sim.machine(1).disk().set_free_bytes(0);
  spool->add(1, 4, false, "lost");
  EXPECT_TRUE(take_all().empty());
  sim.machine(1).disk().set_free_bytes(1 << 20);
  spool->settle();
  const auto lines = spool->take(1 << 16);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].missing_lines, 1u);
  EXPECT_FALSE(spool->all_kept()) << "the count stays until the head has it";
  spool->acked(lines[0].sequence);
  EXPECT_TRUE(spool->all_kept());
}

TEST_F(Spool, TellsOfMissingLinesWhileTheDiskIsStillFull) {
  spool->begin_output({1, 4, false});
  spool->add(1, 4, false, "kept");
  EXPECT_EQ(take_all(), std::vector<std::string>{"kept"});
  sim.machine(1).disk().set_free_bytes(0);
  for (int i = 0; i < 3; ++i) spool->add(1, 4, false, "lost");
  spool->add(1, 5, false, "lost");
  EXPECT_TRUE(spool->take(1 << 16).empty());
  spool->settle();
  spool->finish_outputs();
  EXPECT_FALSE(spool->all_kept()) << "a job does not end without it";
  auto lines = spool->take(1 << 16);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].text, "rubato: 3 lines of rank 4 (12 bytes) are missing here: the disk of the node was full");
  EXPECT_EQ(lines[0].missing_lines, 3u);
  EXPECT_EQ(lines[1].rank, 5);
  EXPECT_TRUE(spool->take(1 << 16).empty());
  // A new connection: all that was not acknowledged, in its order, also before lines that came later.
  sim.machine(1).disk().set_free_bytes(1 << 20);
  spool->begin_output({2, 4, false});
  spool->add(2, 4, false, "later");
  spool->rewind();
  std::vector<std::string> texts;
  uint64_t sequence = 0;
  for (auto more = spool->take(1 << 16); !more.empty(); more = spool->take(1 << 16)) {
    for (const auto& line : more) {
      EXPECT_GT(line.sequence, sequence);
      sequence = line.sequence;
      texts.push_back(line.text);
    }
  }
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_EQ(texts.front(), "kept");
  EXPECT_EQ(texts.back(), "later");
  spool->acked(lines[0].sequence);
  EXPECT_FALSE(spool->all_kept());
  spool->acked(sequence);
  EXPECT_TRUE(spool->all_kept());
}

// Only the last segment is read: the others may be gigabytes.
TEST_F(Spool, TheNextAgentGoesOnWithALongSpool) {
  const std::string text(1000, 'x');
  for (int i = 0; i < 20'000; ++i) spool->add(1, 0, false, text);
  spool->flush();
  open();
  spool->add(1, 0, false, "one more");
  EXPECT_EQ(take_all().size(), 20'001u);
}

TEST_F(Spool, TheNextAgentGoesOnWithWhatWasLeft) {
  for (int i = 1; i <= 3; ++i) spool->add(1, 0, false, std::to_string(i));
  take_all();
  sim.machine(1).disk().append(std::string(kFolder) + "/000000000001.lines", "torn");
  open();
  spool->add(2, 0, false, "4");
  last = 0;
  EXPECT_EQ(take_all(), (std::vector<std::string>{"1", "2", "3", "4"}));
  spool->acked(4);
  EXPECT_EQ(spool->unacked_bytes(), 0u);
  spool->remove();
  EXPECT_EQ(on_disk(), 0u);
}

// ---- an agent that is killed: what its workers have written and it has not sent ----

class KilledAgent : public Spool {
 protected:
  // A worker writes, and the agent reads `read` of these bytes before it is killed. What a full pipe or a dead agent
  // leaves is in the file all the same (os/guard.h).
  void write(const OutputId& id, const std::string& bytes, size_t read) {
    const std::string path = paths.contains(id) ? paths[id] : paths[id] = spool->begin_output(id);
    sim.machine(1).disk().append(path, bytes);
    for (auto& line : splitters[id].take(bytes.substr(0, read))) {
      spool->add(id.generation, id.rank, id.is_stderr, line.text, line.end);
    }
  }
  void write(const OutputId& id, const std::string& bytes) { write(id, bytes, bytes.size()); }
  std::map<OutputId, std::string> paths;
  std::map<OutputId, agent::LineSplitter> splitters;
  const OutputId out{2, 5, false}, err{2, 5, true};
};

TEST_F(KilledAgent, LosesNothingThatAWorkerHasWritten) {
  write(out, "1\n2\n");
  take_all();                         // these are in a segment
  write(out, "3\n");                  // in the buffer, which dies
  write(err, "a\nb\r\ntor", 2);       // partly read
  write(out, "4\n5 without end", 0);  // not read
  const auto told_by_the_next = [&] {
    open();
    last = 0;
    std::vector<std::string> told;
    for (auto lines = spool->take(1 << 16); !lines.empty(); lines = spool->take(1 << 16)) {
      for (const auto& line : lines) {
        told.push_back(fmt::format("{}{} {} {}", line.generation, line.is_stderr ? "e" : "o", line.rank, line.text));
        EXPECT_GT(line.sequence, last);
        last = line.sequence;
      }
    }
    return told;
  };
  const std::vector<std::string> all{"2o 5 1", "2o 5 2", "2o 5 3",  "2o 5 4", "2o 5 5 without end",
                                     "2e 5 a", "2e 5 b", "2e 5 tor"};
  EXPECT_EQ(told_by_the_next(), all);
  EXPECT_FALSE(program.world().files.exists(paths[out]));
  // And the one after it finds each of them once.
  EXPECT_EQ(told_by_the_next(), all);
}

TEST_F(KilledAgent, NumbersGoOnWhereTheHeadHasLinesOfIt) {
  write(out, "1\n2\n3\n");
  take_all();
  spool->acked(3);
  spool->finish_outputs();
  spool->remove();
  // The job comes back to this agent, whose head has its first three lines.
  spool.reset();
  spool.emplace(
      program.world(), kFolder, [] {}, 4);
  paths.clear();
  splitters.clear();
  const OutputId again{3, 5, false};
  write(again, "4\n", 0);
  open();
  last = 3;
  EXPECT_EQ(take_all(), std::vector<std::string>{"4"});
}

TEST_F(KilledAgent, KnowsWhatWasSentAlsoWhenTheSegmentIsGone) {
  const std::string line = std::string(999, 'x') + "\n";
  write(err, "once\n");
  for (int i = 0; i < 20'000; ++i) {
    write(out, line);
    if (i % 1000 != 0) continue;
    take_all();
    spool->acked(last);
  }
  take_all();
  const uint64_t sent = last;
  spool->acked(sent);
  write(out, "the last one\n", 0);
  open();
  std::vector<std::string> fresh;
  for (auto lines = spool->take(1 << 20); !lines.empty(); lines = spool->take(1 << 20)) {
    for (const auto& one : lines) {
      EXPECT_NE(one.text, "once") << "it went with the first segment";
      if (one.sequence > sent) fresh.push_back(one.text);
    }
  }
  EXPECT_EQ(fresh, std::vector<std::string>{"the last one"});
}

// The lines of a full disk are counted in memory; the agent is killed right after the head was sent the count.
TEST_F(KilledAgent, ACountThatNoSegmentHoldsKeepsItsNumber) {
  write(out, "kept\n");
  EXPECT_EQ(take_all(), std::vector<std::string>{"kept"});
  spool->acked(last);
  sim.machine(1).disk().set_free_bytes(0);
  for (int i = 0; i < 3; ++i) spool->add(out.generation, out.rank, false, "lost");
  EXPECT_TRUE(spool->take(1 << 16).empty());
  sim.machine(1).disk().set_free_bytes(200);  // for a note, not for lines
  for (int i = 0; i < 1000; ++i) spool->add(out.generation, out.rank, false, std::string(50, 'y'));
  spool->finish_outputs();
  const auto sent = spool->take(1 << 16);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_GE(sent[0].missing_lines, 3u);
  open();
  sim.machine(1).disk().set_free_bytes(1 << 20);
  spool->begin_output({3, 5, false});
  spool->add(3, 5, false, "first of the next");
  std::vector<elastic::LogLine> again;  // that a head takes: no number twice
  for (auto lines = spool->take(1 << 16); !lines.empty(); lines = spool->take(1 << 16)) {
    for (const elastic::LogLine& line : lines) {
      if (line.sequence > (again.empty() ? last : again.back().sequence)) again.push_back(line);
    }
  }
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].sequence, sent[0].sequence);
  EXPECT_EQ(again[0].missing_lines, sent[0].missing_lines);
  EXPECT_EQ(again[0].text, sent[0].text);
  EXPECT_EQ(again[1].text, "first of the next");
  spool->acked(again[1].sequence);
  EXPECT_TRUE(spool->all_kept());
}

TEST_F(KilledAgent, WhatAFullDiskCostIsCountedAndDoesNotComeBack) {
  const std::string line = std::string(999, 'x') + "\n";
  for (int i = 0; i < 100; ++i) write(out, line);
  take_all();
  const uint64_t full = on_disk();
  write(out, std::string(3'000'000, 'y') + "\n", 0);
  sim.machine(1).disk().set_free_bytes(0);
  for (int i = 0; i < 3000; ++i) spool->add(out.generation, out.rank, false, std::string(999, 'y'), 100'000 + i);
  EXPECT_GT(on_disk(), full);
  sim.machine(1).disk().set_free_bytes(10 << 20);
  spool->settle();
  open();
  uint64_t missing = 0, kept = 0;
  for (auto lines = spool->take(1 << 20); !lines.empty(); lines = spool->take(1 << 20)) {
    for (const auto& one : lines) {
      missing += one.missing_lines;
      kept += one.text.size() == 999 ? 1 : 0;
    }
  }
  EXPECT_GE(missing, 2900u);
  EXPECT_EQ(missing + kept, 3100u) << "the last ones were in the buffer, and found room";
}

// Whatever was read, put on disk, sent and acknowledged before: a head that knows the numbers gets each line once.
TEST_F(KilledAgent, AtAnyMomentEachLineComesOnce) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    spool->remove();
    open();
    paths.clear();
    splitters.clear();
    std::map<OutputId, int> written;
    std::map<OutputId, std::vector<std::string>> got;
    uint64_t kept = 0;
    const auto deliver = [&] {
      const auto lines = spool->take(1 + random.below(400));
      for (const auto& one : lines) {
        if (one.sequence <= kept) continue;
        got[{one.generation, one.rank, one.is_stderr}].push_back(one.text);
        kept = one.sequence;
      }
      if (random.below(2) == 0) spool->acked(kept);
      return !lines.empty();
    };
    std::map<OutputId, std::string> unread;
    for (uint64_t step = random.below(60); step > 0; --step) {
      const OutputId id{1, static_cast<int>(random.below(2)), random.below(2) == 0};
      const std::string path = paths.contains(id) ? paths[id] : paths[id] = spool->begin_output(id);
      std::string bytes;
      for (uint64_t n = random.below(4); n > 0; --n) bytes += fmt::format("{}\n", ++written[id]);
      sim.machine(1).disk().append(path, bytes);
      unread[id] += bytes;
      const size_t read = random.below(unread[id].size() + 1);
      for (auto& line : splitters[id].take(unread[id].substr(0, read))) {
        spool->add(id.generation, id.rank, id.is_stderr, line.text, line.end);
      }
      unread[id].erase(0, read);
      if (random.below(4) == 0) spool->flush();
      if (random.below(3) == 0) deliver();
      if (random.below(8) == 0) spool->rewind();
    }
    // Killed; and whoever saves the rest may die of it too.
    for (uint64_t deaths = random.below(3); deaths > 0; --deaths) {
      open();
      if (random.below(2) == 0) deliver();
    }
    open();
    while (deliver()) {
    }
    for (const auto& [id, count] : written) {
      std::vector<std::string> all;
      for (int n = 1; n <= count; ++n) all.push_back(std::to_string(n));
      ASSERT_EQ(got[id], all) << "seed " << seed;
    }
  }
}

TEST_F(Spool, BoundsOneBatch) {
  for (int i = 0; i < 10'000; ++i) spool->add(1, 0, false, "");
  EXPECT_LE(spool->take(size_t{1} << 20).size(), elastic::kLogLinesMax);
  EXPECT_LE(spool->take(3200).size(), 101u);
}

}  // namespace
}  // namespace rubato::node
