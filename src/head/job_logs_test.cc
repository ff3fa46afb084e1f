#include "head/job_logs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/scope.h"
#include "core/text.h"
#include "sim/simulation.h"

namespace rubato::head {
namespace {

const JobId kJob{"j-1"};
const NodeId kNode{"n-1"};
const AgentId kAgent{"agent"};

elastic::LogLine line(uint64_t sequence, std::string text, int rank = 0) {
  elastic::LogLine out;
  out.rank = rank;
  out.sequence = sequence;
  out.text = std::move(text);
  return out;
}

template <class T>
Task<void> store(Task<T> task, std::optional<T>& result) {
  result = co_await std::move(task);
}

Task<int> idle(sim::SimProgram& self) {
  co_await Sleep(self.loop(), self.loop().now() + 1000s);
  co_return 0;
}

class JobLogsTest : public testing::Test {
 protected:
  JobLogsTest() : sim(1, 1), program(sim.machine(1).start("head", [](sim::SimProgram& self) { return idle(self); })) {
    sim.simulator.run_for(1s);
  }
  Files& files() { return program.world().files; }
  std::unique_ptr<JobLogs> open() { return std::make_unique<JobLogs>(program.loop(), files(), "/cluster/jobs"); }
  // Runs it to its end.
  template <class T>
  T wait_for(Task<T> task) {
    std::optional<T> result;
    Scope scope(program.loop());
    scope.spawn(store(std::move(task), result));
    sim.simulator.run_for(1s);
    EXPECT_TRUE(result.has_value());
    return std::move(*result);
  }
  uint64_t append(JobLogs& logs, std::vector<elastic::LogLine> lines, const AgentId& agent = kAgent) {
    return wait_for(logs.append(kJob, kNode, agent, std::move(lines)));
  }
  std::vector<std::string> asked(JobLogs& logs, LogFilter filter = {}, std::optional<uint64_t> tail = {}) {
    JobLogs::Cursor cursor = wait_for(logs.find(kJob, std::move(filter), tail));
    std::vector<std::string> out;
    while (const std::optional<std::string> lines = wait_for(logs.read(cursor))) {
      for (const std::string_view one : split(trim(*lines), '\n')) out.push_back(nlohmann::json::parse(one).at("text"));
    }
    return out;
  }
  std::vector<std::string> texts(JobLogs& logs) { return asked(logs); }
  sim::Simulation sim;
  sim::SimProgram& program;
};

TEST_F(JobLogsTest, KeepsEachLineOnceAlsoInTheNextHead) {
  EXPECT_EQ(append(*open(), {line(1, "a"), line(2, "b")}), 2u);
  const auto logs = open();
  EXPECT_EQ(append(*logs, {line(2, "b"), line(3, "c")}), 3u);
  EXPECT_EQ(texts(*logs), (std::vector<std::string>{"a", "b", "c"}));
}

// They stay at the node, which sends them again.
TEST_F(JobLogsTest, DoesNotAcknowledgeWhatTheDiskDidNotTake) {
  const auto logs = open();
  EXPECT_EQ(append(*logs, {line(1, "a")}), 1u);
  sim.machine(1).disk().set_free_bytes(200);
  EXPECT_EQ(append(*logs, {line(2, "b"), line(3, "c"), line(4, "d")}), 1u);
  EXPECT_EQ(append(*logs, {line(2, "b")}), 2u) << "it fits";
  EXPECT_EQ(append(*logs, {line(3, "c")}), 2u);
  EXPECT_EQ(texts(*logs), (std::vector<std::string>{"a", "b"}));
  sim.machine(1).disk().set_free_bytes(1 << 20);
  EXPECT_EQ(append(*logs, {line(3, "c"), line(4, "d")}), 4u);
  EXPECT_EQ(texts(*logs), (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_TRUE(logs->missing(kJob).empty());
}

// Batches were under way when the disk became full, and there is room again for the second.
TEST_F(JobLogsTest, TakesNoLinesWhoseForerunnersAreNotHere) {
  const auto logs = open();
  append(*logs, {line(1, "a")});
  sim.machine(1).disk().set_free_bytes(0);
  EXPECT_EQ(wait_for(logs->append(kJob, kNode, kAgent, {line(2, "b")}, 1)), 1u);
  sim.machine(1).disk().set_free_bytes(1 << 20);
  EXPECT_EQ(wait_for(logs->append(kJob, kNode, kAgent, {line(3, "c")}, 2)), 1u);
  EXPECT_EQ(append(*logs, {line(2, "b"), line(3, "c")}), 3u);
  EXPECT_EQ(wait_for(logs->append(kJob, kNode, kAgent, {line(9, "d")}, 3)), 9u) << "numbers may have holes";
  EXPECT_EQ(texts(*logs), (std::vector<std::string>{"a", "b", "c", "d"}));
}

// Wherever a line is cut, it is not taken for a whole one.
TEST_F(JobLogsTest, APartOfALineIsNoLine) {
  const std::string whole = log_entry(kNode, kAgent, line(1, R"(},"time":"2026"})"));
  ASSERT_TRUE(log_facts(whole.substr(0, whole.size() - 1)));
  for (size_t size = 0; size + 1 < whole.size(); ++size) EXPECT_FALSE(log_facts(whole.substr(0, size))) << size;
}

TEST_F(JobLogsTest, CountsWhatANodeCouldNotKeep) {
  const auto logs = open();
  elastic::LogLine gap = line(2, "rubato: 40 lines are missing", 3);
  gap.missing_lines = 40;
  gap.missing_bytes = 4000;
  append(*logs, {line(1, "a"), gap});
  append(*logs, {gap});
  EXPECT_EQ(logs->missing(kJob).at(3).lines, 40u) << "once, though it was sent twice";
  EXPECT_EQ(logs->missing(kJob).at(3).bytes, 4000u);
  const auto log = files().read(logs->path(kJob)).value_or("");
  EXPECT_NE(log.find(R"("missing":{"bytes":4000,"lines":40})"), std::string::npos) << log;
}

// Killed at whatever moment, with a full disk: the node has its count until a head has written it down.
TEST_F(JobLogsTest, TheNextHeadKnowsWhatIsMissing) {
  elastic::LogLine gap = line(1, "rubato: 40 lines are missing", 3);
  gap.missing_lines = 40;
  gap.missing_bytes = 4000;
  for (uint64_t room = 0; room < 500; room += 10) {
    files().remove_tree("/cluster");
    {
      const auto logs = open();
      sim.machine(1).disk().set_free_bytes(room);
      append(*logs, {gap});
    }
    sim.machine(1).disk().set_free_bytes(1 << 20);
    const auto next = open();
    const std::vector<JobId> jobs{kJob};
    Scope reading(program.loop());
    reading.spawn(next->remember_missing(jobs));
    sim.simulator.run_for(1s);
    EXPECT_EQ(append(*next, {gap}), 1u);
    ASSERT_EQ(next->missing(kJob).size(), 1u) << room;
    EXPECT_EQ(next->missing(kJob).at(3).lines, 40u) << room;
    EXPECT_EQ(texts(*next).size(), 1u) << room;
  }
}

TEST_F(JobLogsTest, ALineThatAHeadBeganIsEndedByTheNext) {
  append(*open(), {line(1, "a")});
  files().open_append("/cluster/jobs/j-1/log")->append("{\"text\":\"hal");
  const auto logs = open();
  append(*logs, {line(2, "b")});
  EXPECT_EQ(texts(*logs), (std::vector<std::string>{"a", "b"}));
}

TEST_F(JobLogsTest, AnyBytesAreALine) {
  const auto logs = open();
  const std::string odd = "10%\r20%\t\"quoted\" \\ {,\"rank\":9,\"time\":\"9\"}";
  append(*logs, {line(1, odd), line(2, std::string("\0\x01\xff", 3)), line(3, ""), line(4, "\xc3\xa4")});
  EXPECT_EQ(texts(*logs), (std::vector<std::string>{odd, std::string("\0\x01\xef\xbf\xbd", 5), "", "\xc3\xa4"}));
  EXPECT_EQ(asked(*logs, log_filter(0, {})).size(), 4u);
  EXPECT_TRUE(asked(*logs, log_filter(9, {})).empty());
}

// An agent, living or dead, may send lines again that an earlier head has kept, and much may have been printed since.
TEST_F(JobLogsTest, FindsTheLastLineOfAnAgentHoweverFarBackItIs) {
  const AgentId dead{"dead"}, never{"never"}, noisy{"noisy"};
  append(*open(), {line(1, "a"), line(2, R"({"agent":"never","sequence":9})")}, dead);
  {
    const auto logs = open();
    std::vector<elastic::LogLine> many;
    for (uint64_t i = 1; i <= 300; ++i) many.push_back(line(i, std::string(60'000, 'x')));
    append(*logs, many, noisy);
  }
  const auto logs = open();
  EXPECT_EQ(append(*logs, {line(1, "a"), line(2, "b"), line(3, "c")}, dead), 3u);
  EXPECT_EQ(append(*logs, {line(1, "d")}, never), 1u);
  const auto all = texts(*logs);
  ASSERT_EQ(all.size(), 304u);
  EXPECT_EQ(all[302], "c");
  EXPECT_EQ(all[303], "d");
}

// ---- questions about a long log ----

class LongLog : public JobLogsTest {
 protected:
  // Rank 0 prints all the time, rank 7 only in a stretch in the middle; a line a millisecond.
  LongLog() : logs(open()) {
    for (uint64_t batch = 0; batch < 60; ++batch) {
      std::vector<elastic::LogLine> lines;
      for (uint64_t i = 0; i < 500; ++i) {
        const uint64_t n = batch * 500 + i;
        const bool middle = n >= 14'000 && n < 14'100;
        lines.push_back(line(n + 1, fmt::format("{} {}", n, std::string(100, 'x')), middle && n % 2 == 0 ? 7 : 0));
        lines.back().time_us = static_cast<int64_t>(n) * 1000;
      }
      append(*logs, std::move(lines));
    }
  }
  static std::string number(const std::string& text) { return text.substr(0, text.find(' ')); }
  static WallTime at(int64_t n) { return WallTime(std::chrono::milliseconds(n)); }

  // As who reads the file of a cluster that is down.
  std::vector<std::string> in_file(const LogFilter& filter, std::optional<uint64_t> tail = {}) {
    std::vector<std::string> out;
    read_log(files(), logs->path(kJob), filter, tail, [&](std::string_view lines) {
      for (const std::string_view one : split(trim(lines), '\n')) out.push_back(nlohmann::json::parse(one).at("text"));
    });
    return out;
  }

  void expect_right_answers(JobLogs& logs) {
    EXPECT_EQ(asked(logs).size(), 30'000u);
    const auto seven = asked(logs, log_filter(7, {}));
    ASSERT_EQ(seven.size(), 50u);
    EXPECT_EQ(number(seven.front()), "14000");
    EXPECT_EQ(number(seven.back()), "14098");
    const auto late = asked(logs, log_filter({}, at(29'990)));
    ASSERT_EQ(late.size(), 10u);
    EXPECT_EQ(number(late.front()), "29990");
    const auto both = asked(logs, log_filter(7, at(14'051)));
    ASSERT_EQ(both.size(), 24u);
    EXPECT_EQ(number(both.front()), "14052");
    const auto last = asked(logs, {}, 3);
    ASSERT_EQ(last.size(), 3u);
    EXPECT_EQ(number(last.front()), "29997");
    EXPECT_EQ(asked(logs, {}, 2'345).size(), 2'345u);
    const auto last_seven = asked(logs, log_filter(7, {}), 5);
    ASSERT_EQ(last_seven.size(), 5u);
    EXPECT_EQ(number(last_seven.front()), "14090");
    EXPECT_EQ(asked(logs, log_filter(7, at(14'090)), 100).size(), 5u);
    EXPECT_TRUE(asked(logs, log_filter(8, {}), 5).empty());
    EXPECT_TRUE(asked(logs, {}, 0).empty());
  }
  std::string index() { return files().read(index_path(logs->path(kJob))).value_or(""); }
  std::unique_ptr<JobLogs> logs;
};

TEST_F(LongLog, IsAnsweredFromTheRightPlaces) {
  expect_right_answers(*logs);
  logs->close(kJob);
  expect_right_answers(*logs);
}

TEST_F(LongLog, IsReadTheSameWayWithoutAHead) {
  for (const bool with_index : {true, false}) {
    if (!with_index) files().remove_tree(index_path(logs->path(kJob)));
    for (const LogFilter& filter : {LogFilter{}, log_filter(7, {}), log_filter({}, at(29'990)), log_filter(8, {})}) {
      EXPECT_EQ(in_file(filter), asked(*logs, filter));
      for (const uint64_t tail : {uint64_t{0}, uint64_t{3}, uint64_t{2'345}, uint64_t{100'000}})
        EXPECT_EQ(in_file(filter, tail), asked(*logs, filter, tail)) << tail;
    }
  }
}

TEST_F(LongLog, OnlyBlocksWithAnAnswerAreRead) {
  bool damaged = false;
  const std::string path = logs->path(kJob);
  const uint64_t size = file_size(files(), path);
  const LogIndex index = read_index(files(), path, size, damaged);
  EXPECT_FALSE(damaged);
  ASSERT_GT(index.blocks.size(), 10u);
  EXPECT_LT(size - index.end(), kLogBlock + 1000);
  const auto wanted = [&](const LogFilter& filter) {
    uint64_t bytes = 0;
    for (const LogRange& range : log_ranges(index, filter)) bytes += std::min(range.end, size) - range.begin;
    return bytes;
  };
  EXPECT_EQ(wanted({}), size);
  EXPECT_LT(wanted(log_filter(7, {})), 3 * kLogBlock);
  EXPECT_LT(wanted(log_filter({}, at(29'990))), 3 * kLogBlock);
}

TEST_F(LongLog, AnIndexThatIsMissingOrDamagedIsMadeAnew) {
  const std::string good = index();
  const std::string path = index_path(logs->path(kJob));
  const auto put = [&](const std::string& text) {
    files().remove_tree(path);
    if (!text.empty()) files().open_append(path)->append(text);
  };
  std::string flipped = good, other = good;
  flipped[good.size() / 2] ^= 1;
  other.replace(other.find("7:"), 1, "8");
  const std::vector<std::string> damages{"", "rubbish", good.substr(0, good.size() / 2), flipped, other, good + good};
  for (const std::string& damage : damages) {
    put(damage);
    const auto next = open();
    EXPECT_EQ(asked(*next, log_filter(7, {})).size(), 50u);
    EXPECT_EQ(asked(*next, {}, 3).size(), 3u);
    EXPECT_EQ(index(), good) << "it was made anew from: " << damage.substr(0, 40);
    put(damage);
    const auto writer = open();
    append(*writer, {line(1, "known")});
    EXPECT_EQ(index(), good);
  }
}

TEST_F(LongLog, GoesOnWithTheIndexOfTheHeadBefore) {
  const std::string before = index();
  const auto next = open();
  std::vector<elastic::LogLine> more;
  for (uint64_t n = 30'001; n < 33'000; ++n) more.push_back(line(n, std::string(200, 'y')));
  append(*next, more);
  EXPECT_TRUE(index().starts_with(before));
  EXPECT_GT(index().size(), before.size());
  EXPECT_EQ(asked(*next, {}, 2'999).size(), 2'999u);
  bool damaged = false;
  read_index(files(), next->path(kJob), file_size(files(), next->path(kJob)), damaged);
  EXPECT_FALSE(damaged);
}

TEST_F(LongLog, FollowsWhatIsAdded) {
  JobLogs::Cursor cursor = wait_for(logs->find(kJob, log_filter(7, {}), 0));
  EXPECT_FALSE(wait_for(logs->read(cursor)));
  EXPECT_TRUE(logs->at_end(cursor));
  append(*logs, {line(30'001, "of 0"), line(30'002, "of 7", 7)});
  EXPECT_FALSE(logs->at_end(cursor));
  const auto lines = wait_for(logs->read(cursor));
  ASSERT_TRUE(lines);
  EXPECT_NE(lines->find("of 7"), std::string::npos);
  EXPECT_EQ(lines->find("of 0"), std::string::npos);
  EXPECT_FALSE(wait_for(logs->read(cursor)));
}

}  // namespace
}  // namespace rubato::head
