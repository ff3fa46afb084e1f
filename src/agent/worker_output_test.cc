#include "agent/worker_output.h"

#include <gtest/gtest.h>

#include "core/scope.h"
#include "sim/simulation.h"

namespace rubato::agent {
namespace {

using Kind = OutputTarget::Kind;

LaunchSpec choices(int redirects, int tee) {
  LaunchSpec spec;
  spec.redirects.all = redirects;
  spec.tee.all = tee;
  return spec;
}

TEST(OutputPlan, FollowsEveryCombinationOfRedirectsAndTee) {
  for (int redirects = 0; redirects <= 3; ++redirects) {
    for (int tee = 0; tee <= 3; ++tee) {
      const OutputPlan plan = plan_output(choices(redirects, tee), 0, "/logs/0");
      const auto expected = [&](int bit) {
        return tee & bit ? Kind::kPipe : redirects & bit ? Kind::kFile : Kind::kInherit;
      };
      EXPECT_EQ(plan.out.kind, expected(1)) << "-r " << redirects << " -t " << tee;
      EXPECT_EQ(plan.err.kind, expected(2)) << "-r " << redirects << " -t " << tee;
      EXPECT_EQ(plan.out.path, plan.out.kind == Kind::kFile ? "/logs/0/stdout.log" : "");
      EXPECT_EQ(plan.err.path, plan.err.kind == Kind::kFile ? "/logs/0/stderr.log" : "");
      EXPECT_EQ(plan.piped(), tee != 0);
    }
  }
}

TEST(OutputPlan, ALocalRankMayHaveItsOwnChoice) {
  LaunchSpec spec = choices(3, 0);
  spec.redirects.by_local_rank = {{1, 2}};
  spec.tee.by_local_rank = {{2, 1}};
  EXPECT_EQ(plan_output(spec, 0, "/l").out.kind, Kind::kFile);
  EXPECT_EQ(plan_output(spec, 1, "/l").out.kind, Kind::kInherit);
  EXPECT_EQ(plan_output(spec, 1, "/l").err.kind, Kind::kFile);
  EXPECT_EQ(plan_output(spec, 2, "/l").out.kind, Kind::kPipe);
  EXPECT_EQ(plan_output(spec, 2, "/l").err.kind, Kind::kFile);
}

TEST(OutputPlan, ARankThatIsFilteredOutGoesToItsFiles) {
  LaunchSpec spec = choices(0, 0);
  spec.local_ranks_filter = std::vector<int>{0};
  EXPECT_EQ(plan_output(spec, 0, "/l").out.kind, Kind::kInherit);
  EXPECT_EQ(plan_output(spec, 1, "/l").out.kind, Kind::kFile);
  EXPECT_EQ(plan_output(spec, 1, "/l").err.path, "/l/stderr.log");
}

TEST(OutputPlan, WithoutALogFolderEverythingIsShownAsItComes) {
  for (int choice = 0; choice <= 3; ++choice) {
    const OutputPlan plan = plan_output(choices(choice, 3 - choice), 0, "");
    EXPECT_EQ(plan.out.kind, Kind::kInherit);
    EXPECT_EQ(plan.err.kind, Kind::kInherit);
  }
  LaunchSpec hidden = choices(0, 3);
  hidden.local_ranks_filter = std::vector<int>{1};
  EXPECT_EQ(plan_output(hidden, 0, "").out.kind, Kind::kNull);
}

class FakeProcess final : public Process {
 public:
  explicit FakeProcess(Loop& loop) : output_(loop) {}
  int pid() const override { return 1; }
  bool warm() const override { return false; }
  const std::optional<ExitStatus>& status() const override { return status_; }
  void signal_group(int) override {}
  Task<ExitStatus> wait() override { co_return ExitStatus{}; }
  Channel<OutputChunk>& output() override { return output_; }
  Task<void> write(std::string) override { co_return; }
  void close_input() override {}

 private:
  std::optional<ExitStatus> status_;
  Channel<OutputChunk> output_;
};

using Chunks = std::vector<OutputChunk>;

Task<int> take(sim::SimProgram& program, Chunks chunks, std::vector<std::string>& lines) {
  FakeProcess process(program.loop());
  for (const OutputChunk& chunk : chunks) process.output().push(chunk);
  process.output().close();
  LineSink sink = [&lines](int rank, bool is_stderr, LineSplitter::Line line) {
    lines.push_back(std::to_string(rank) + (is_stderr ? "e:" : "o:") + line.text);
    if (line.end > 0) lines.back() += "@" + std::to_string(line.end);
    if (line.continues) lines.back() += "+";
  };
  LineGate gate;
  co_await take_lines(program.loop(), process, 3, std::move(sink), std::move(gate));
  co_return 0;
}

std::vector<std::string> taken(const Chunks& chunks) {
  std::vector<std::string> lines;
  sim::Simulation sim(1, 1);
  sim.machine(1).start("agent", [&](sim::SimProgram& self) { return take(self, chunks, lines); });
  sim.simulator.run_for(1s);
  return lines;
}

TEST(TakeLines, GivesWholeLinesOfBothStreamsAndTheLastOnesWithoutEnd) {
  const Chunks chunks{{false, "one\r\ntw"}, {true, "err"}, {false, "o\n\n10%\r20%\nrest"}};
  EXPECT_EQ(taken(chunks), (std::vector<std::string>{"3o:one", "3o:two", "3o:", "3o:10%\r20%", "3o:rest", "3e:err"}));
}

// Where each line ends in the file that keeps the output: what is behind the last one that is safe elsewhere is read
// again after a crash.
TEST(TakeLines, SaysWhereALineEnds) {
  const Chunks chunks{{false, "one\r\ntw", 7}, {true, "e\n", 2}, {false, "o\nrest", 13}};
  EXPECT_EQ(taken(chunks), (std::vector<std::string>{"3o:one@5", "3e:e@2", "3o:two@9", "3o:rest@13"}));
  const Chunks long_one{{false, std::string(LineSplitter::kLineMax + 5, 'x') + "\ny\n", LineSplitter::kLineMax + 8}};
  EXPECT_EQ(taken(long_one)[0].substr(LineSplitter::kLineMax), "xxx@65536+");
  EXPECT_EQ(taken(long_one)[1], "3o:xxxxx@65542");
  EXPECT_EQ(taken(long_one)[2], "3o:y@65544");
}

TEST(TakeLines, DoesNotCountWhatAFullDiskDidNotKeep) {
  const Chunks chunks{{false, "one\n", 4}, {false, "two\nthree\n", 4}};
  EXPECT_EQ(taken(chunks), (std::vector<std::string>{"3o:one@4", "3o:two@4", "3o:three@4"}));
}

TEST(TakeLines, CutsALineThatIsTooLong) {
  const Chunks chunks{{false, std::string(3 * LineSplitter::kLineMax, 'x') + "\n"}};
  for (const std::string& line : taken(chunks)) EXPECT_LE(line.size(), LineSplitter::kLineMax + 4);
}

// Each piece is text by itself, and together they are what was written.
TEST(TakeLines, CutsBetweenTwoCharactersAndKeepsEachByte) {
  for (size_t before = 0; before < 5; ++before) {
    std::string text(before, 'x');
    while (text.size() < 3 * LineSplitter::kLineMax) text += "\xe2\x82\xac\r\xf0\x9f\x8e\xb5";
    LineSplitter splitter;
    std::vector<LineSplitter::Line> lines = splitter.take(text.substr(0, 100'000));
    for (LineSplitter::Line& line : splitter.take(text.substr(100'000) + "\r\n")) lines.push_back(std::move(line));
    std::string joined;
    for (const LineSplitter::Line& line : lines) {
      EXPECT_EQ(line.continues, &line != &lines.back());
      const auto first = static_cast<unsigned char>(line.text.front());
      EXPECT_NE(first & 0xc0, 0x80) << "a character was cut";
      EXPECT_EQ(line.end, joined.size() + line.text.size() + (line.continues ? 0 : 1));
      joined += line.text;
    }
    EXPECT_EQ(joined, text + "\r");
    std::string shown;
    for (const LineSplitter::Line& line : lines) shown += without_return(line);
    EXPECT_EQ(shown, text);
  }
}

TEST(LineSplitter, CutsWhatIsNotTextAsItComes) {
  LineSplitter splitter;
  const auto lines = splitter.take(std::string(LineSplitter::kLineMax + 10, '\x80'));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].text.size(), LineSplitter::kLineMax);
}

}  // namespace
}  // namespace rubato::agent
