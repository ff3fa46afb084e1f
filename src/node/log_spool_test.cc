#include "node/log_spool.h"

#include <gtest/gtest.h>

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
  EXPECT_FALSE(spool->all_sent());
  const auto lines = spool->take(100);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].sequence, 1u);
  EXPECT_EQ(lines[0].generation, 3u);
  EXPECT_EQ(lines[0].rank, 7);
  EXPECT_TRUE(lines[0].is_stderr);
  EXPECT_EQ(lines[0].text, std::string("a\0\xff", 3));
  EXPECT_EQ(lines[0].time_us, program.world().clock.wall().time_since_epoch().count());
  EXPECT_TRUE(spool->all_sent());
  EXPECT_TRUE(spool->take(100).empty());
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
  EXPECT_TRUE(spool->all_sent());
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

TEST_F(Spool, DropsLinesOverTheBoundAndTellsHowMany) {
  const std::string text(10'000, 'x');
  for (int i = 0; i < 10'000; ++i) spool->add(1, 0, false, text);
  EXPECT_LE(on_disk(), kSpoolBytesMax);
  const size_t kept = take_all().size();
  EXPECT_GT(kept, 6000u);
  EXPECT_FALSE(spool->all_sent());  // the number of dropped ones is not out yet
  spool->acked(last);
  spool->add(2, 5, false, "after");
  const auto texts = take_all();
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].rfind("rubato: " + std::to_string(10'000 - kept) + " lines are missing", 0), 0u) << texts[0];
  EXPECT_EQ(texts[1], "after");
}

TEST_F(Spool, TellsOfDroppedLinesAtTheEndToo) {
  sim.machine(1).disk().set_free_bytes(0);
  spool->add(1, 4, false, "lost");
  EXPECT_TRUE(take_all().empty());
  EXPECT_TRUE(spool->all_sent()) << "a full disk must not keep the job from ending";
  sim.machine(1).disk().set_free_bytes(1 << 20);
  spool->settle();
  last = 1;  // the lost one had a number
  const auto texts = take_all();
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_EQ(texts[0].rfind("rubato: 1 lines are missing", 0), 0u) << texts[0];
  EXPECT_TRUE(spool->all_sent());
}

TEST_F(Spool, TheNextAgentGoesOnWithWhatWasLeft) {
  for (int i = 1; i <= 3; ++i) spool->add(1, 0, false, std::to_string(i));
  take_all();
  sim.machine(1).disk().append(std::string(kFolder) + "/000000000001", "torn");
  open();
  spool->add(2, 0, false, "4");
  last = 0;
  EXPECT_EQ(take_all(), (std::vector<std::string>{"1", "2", "3", "4"}));
  spool->acked(4);
  EXPECT_EQ(spool->unacked_bytes(), 0u);
  spool->remove();
  EXPECT_EQ(on_disk(), 0u);
}

TEST_F(Spool, BoundsOneBatch) {
  for (int i = 0; i < 10'000; ++i) spool->add(1, 0, false, "");
  EXPECT_LE(spool->take(size_t{1} << 20).size(), elastic::kLogLinesMax);
  EXPECT_LE(spool->take(3200).size(), 101u);
}

}  // namespace
}  // namespace rubato::node
