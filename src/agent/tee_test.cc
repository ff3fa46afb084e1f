#include "agent/tee.h"

#include <gtest/gtest.h>

#include "agent/direct_outlets.h"
#include "sim/simulation.h"

namespace rubato::agent {
namespace {

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

// A stream whose reader takes what he likes, when he likes.
class FakeOutlet final : public Outlet {
 public:
  explicit FakeOutlet(Loop& loop) : moved_(loop) {}
  void write(std::string_view bytes) override { (stalled ? waiting : text) += bytes; }
  size_t pending() const override { return waiting.size(); }
  const std::string& failure() const override { return failed; }
  Task<bool> drained(size_t pending_max, Instant deadline) override {
    while (pending() > pending_max && failed.empty()) {
      if (moved_.loop().now() >= deadline) co_return false;
      co_await moved_.wait_until(deadline);
    }
    co_return true;
  }
  void go_on() {
    stalled = false;
    text += std::exchange(waiting, {});
    moved_.notify();
  }
  void fail(std::string why) {
    failed = std::move(why);
    waiting.clear();
    moved_.notify();
  }
  bool stalled = false;
  std::string text, waiting, failed;

 private:
  Event moved_;
};

class FakeOutlets final : public Outlets {
 public:
  explicit FakeOutlets(Loop& loop) : out_(loop), err_(loop), file(loop) {}
  FakeOutlet& out() override { return out_; }
  FakeOutlet& err() override { return err_; }
  std::unique_ptr<Outlet> open(const std::string&) override {
    class Borrowed final : public Outlet {
     public:
      explicit Borrowed(FakeOutlet& to) : to_(to) {}
      void write(std::string_view bytes) override { to_.write(bytes); }
      size_t pending() const override { return to_.pending(); }
      const std::string& failure() const override { return to_.failure(); }
      Task<bool> drained(size_t max, Instant deadline) override { return to_.drained(max, deadline); }

     private:
      FakeOutlet& to_;
    };
    return std::make_unique<Borrowed>(file);
  }

 private:
  FakeOutlet out_, err_;

 public:
  FakeOutlet file;
};

TeeSpec spec_of(bool show) {
  TeeSpec spec;
  spec.prefix = "[trainer0]:";
  spec.out.show = spec.err.show = show;
  spec.out.file = "/logs/stdout.log";
  spec.err.file = "/logs/stderr.log";
  return spec;
}

Task<int> tee_of(sim::SimProgram& program, Chunks chunks, bool show) {
  FakeProcess process(program.loop());
  for (const OutputChunk& chunk : chunks) process.output().push(chunk);
  process.output().close();
  const std::unique_ptr<Outlets> outlets = make_direct_outlets(program.world());
  Tee tee(program.world(), *outlets, process, spec_of(show), [] {});
  co_await tee.run();
  co_return 0;
}

struct Shown {
  std::string out, err, out_file, err_file;
};

Shown run(const Chunks& chunks, bool show = true) {
  sim::Simulation sim(1, 1);
  sim::SimProgram& program =
      sim.machine(1).start("agent", [&](sim::SimProgram& self) { return tee_of(self, chunks, show); });
  EXPECT_TRUE(sim.simulator.run_until([&] { return program.exit_code().has_value(); }, sim.now() + 1s));
  Shown shown;
  shown.out = program.console().out_text();
  shown.err = program.console().err_text();
  shown.out_file = program.world().files.read("/logs/stdout.log").value_or("");
  shown.err_file = program.world().files.read("/logs/stderr.log").value_or("");
  return shown;
}

TEST(Tee, PrefixesWholeLinesAndKeepsTheFileAsItWas) {
  const Shown shown = run({{false, "one\ntw"}, {false, "o\n\nthr"}, {false, "ee"}});
  EXPECT_EQ(shown.out, "[trainer0]:one\n[trainer0]:two\n[trainer0]:\n[trainer0]:three\n");
  EXPECT_EQ(shown.out_file, "one\ntwo\n\nthree");
  EXPECT_EQ(shown.err, "");
  EXPECT_EQ(shown.err_file, "");
}

TEST(Tee, KeepsTheTwoStreamsApart) {
  const Shown shown = run({{false, "out"}, {true, "err"}, {false, "put\n"}, {true, "or\n"}});
  EXPECT_EQ(shown.out, "[trainer0]:output\n");
  EXPECT_EQ(shown.err, "[trainer0]:error\n");
  EXPECT_EQ(shown.out_file, "output\n");
  EXPECT_EQ(shown.err_file, "error\n");
}

TEST(Tee, OfAFilteredRankWritesTheFilesOnly) {
  const Shown shown = run({{false, "out\n"}, {true, "err"}}, false);
  EXPECT_EQ(shown.out + shown.err, "");
  EXPECT_EQ(shown.out_file, "out\n");
  EXPECT_EQ(shown.err_file, "err");
}

TEST(Tee, ALineWithoutEndIsShownInPieces) {
  const Shown shown = run({{false, std::string(70'000, 'x')}, {false, "y\n"}});
  const std::string rest(70'000 - LineSplitter::kLineMax, 'x');
  EXPECT_EQ(shown.out, "[trainer0]:" + std::string(LineSplitter::kLineMax, 'x') + "\n[trainer0]:" + rest + "y\n");
  EXPECT_EQ(shown.out_file.size(), 70'002u);
}

TEST(Tee, OfNothingShowsNothing) {
  const Shown shown = run({});
  EXPECT_EQ(shown.out + shown.err, "");
  EXPECT_EQ(shown.out_file, "");
}

// A progress bar is one line that is written again and again.
TEST(Tee, ShowsEachStateOfAProgressBar) {
  const Shown shown = run({{true, "\r 10%"}, {true, "\r 20%"}, {true, "\r100%\ndone\r\n\n"}});
  EXPECT_EQ(shown.err, "[trainer0]: 10%\n[trainer0]: 20%\n[trainer0]:100%\n[trainer0]:done\n[trainer0]:\n");
  EXPECT_EQ(shown.err_file, "\r 10%\r 20%\r100%\ndone\r\n\n");
}

TEST(ConsoleLines, WhatWasShownWithoutItsEndIsNotShownTwice) {
  ConsoleLines lines("p:");
  EXPECT_EQ(lines.take("name? "), "");
  EXPECT_EQ(lines.flush(), "p:name? \n");
  EXPECT_EQ(lines.take("\nnext\n"), "p:next\n");
  EXPECT_EQ(lines.flush(), "");
  EXPECT_EQ(lines.take("\n"), "p:\n");
}

struct Stalled {
  Stalled(sim::SimProgram& program, FakeOutlets& outlets_in, Chunks chunks)
      : outlets(outlets_in),
        process(program.loop()),
        tee(program.world(), outlets, process, spec_of(true), [this] { ++failures; }) {
    for (const OutputChunk& chunk : chunks) process.output().push(chunk);
  }
  FakeOutlets& outlets;
  FakeProcess process;
  int failures = 0;
  Tee tee;
};

using Body = Task<void> (*)(sim::SimProgram&);

Task<int> main_of(sim::SimProgram& program, Body body) {
  co_await body(program);
  co_return 0;
}

void in_simulation(Body body) {
  sim::Simulation sim(1, 1);
  sim::SimProgram& program =
      sim.machine(1).start("agent", [body](sim::SimProgram& self) { return main_of(self, body); });
  ASSERT_TRUE(sim.simulator.run_until([&] { return program.exit_code().has_value(); }, sim.now() + 100s));
  EXPECT_EQ(program.exit_code(), 0);
}

Task<void> pause(sim::SimProgram& program, Duration time) {
  co_await Sleep(program.loop(), program.loop().now() + time);
}

// 64 chunks of 64 KiB: far more than is held ready for the console.
Chunks flood() { return Chunks(64, OutputChunk{false, std::string((64 << 10) - 1, 'x') + "\n"}); }

Task<void> a_stalled_console(sim::SimProgram& program) {
  FakeOutlets outlets(program.loop());
  outlets.out().stalled = true;
  Stalled one(program, outlets, flood());
  Scope scope(program.loop());
  scope.spawn(one.tee.run());
  co_await pause(program, 10s);
  // The pipe is not read any more, and what was read is in the file.
  EXPECT_GT(one.process.output().size(), 32u);
  EXPECT_LT(outlets.out().waiting.size(), size_t{512} << 10);
  EXPECT_GT(outlets.file.text.size(), size_t{256} << 10);
  outlets.out().go_on();
  co_await pause(program, 1s);
  EXPECT_EQ(one.process.output().size(), 0u);
  one.process.output().close();
  co_await scope.join();
  EXPECT_EQ(outlets.file.text.size(), size_t{64} * (64 << 10));
  EXPECT_EQ(outlets.out().text.size(), size_t{64} * ((64 << 10) + 11));
  EXPECT_EQ(one.failures, 0);
}
TEST(Tee, AStalledConsoleSlowsTheWorkerAndLosesNothing) { in_simulation(a_stalled_console); }

Task<void> an_end_with_a_stalled_console(sim::SimProgram& program) {
  FakeOutlets outlets(program.loop());
  outlets.out().stalled = true;
  Stalled one(program, outlets, flood());
  Scope scope(program.loop());
  scope.spawn(one.tee.run());
  co_await pause(program, 1s);
  one.tee.hurry();
  one.process.output().close();
  co_await scope.join();
  EXPECT_EQ(outlets.file.text.size(), size_t{64} * (64 << 10));
}
TEST(Tee, EndsWithItsWorkerAlthoughTheConsoleIsStalled) { in_simulation(an_end_with_a_stalled_console); }

Task<void> a_full_disk(sim::SimProgram& program) {
  FakeOutlets outlets(program.loop());
  outlets.file.stalled = true;
  Stalled one(program, outlets, {{false, "one\n"}});
  Scope scope(program.loop());
  scope.spawn(one.tee.run());
  co_await pause(program, 1s);
  EXPECT_EQ(one.failures, 0);
  outlets.file.fail("cannot write '/logs/stdout.log': No space left on device");
  co_await pause(program, 1s);
  EXPECT_EQ(one.failures, 1);
  EXPECT_EQ(one.tee.failure(), "cannot write '/logs/stdout.log': No space left on device");
  one.process.output().close();
  co_await scope.join();
  EXPECT_EQ(one.failures, 1);
}
TEST(Tee, TellsAtOnceThatTheDiskIsFull) { in_simulation(a_full_disk); }

Task<void> a_prompt(sim::SimProgram& program) {
  FakeOutlets outlets(program.loop());
  Stalled one(program, outlets, {{false, "name? "}});
  Scope scope(program.loop());
  scope.spawn(one.tee.run());
  co_await pause(program, 1s);
  EXPECT_EQ(outlets.out().text, "[trainer0]:name? \n");
  one.process.output().close();
  co_await scope.join();
}
TEST(Tee, ShowsAPromptThatHasNoEnd) { in_simulation(a_prompt); }

Task<void> filtered_lines(sim::SimProgram& program) {
  const std::unique_ptr<Outlets> outlets = make_direct_outlets(program.world());
  FakeProcess process(program.loop());
  process.output().push({false, "apple pie\nplum\nan ora"});
  process.output().push({false, "nge\npear"});
  process.output().close();
  TeeSpec spec = spec_of(false);
  spec.out.filters = {"apple", "orange", "pear"};
  spec.out.filtered_file = "/logs/filtered_stdout.log";
  Tee tee(program.world(), *outlets, process, std::move(spec), [] {});
  co_await tee.run();
  EXPECT_EQ(program.world().files.read("/logs/filtered_stdout.log").value_or(""),
            "[trainer0]:apple pie\n[trainer0]:an orange\n[trainer0]:pear\n");
}
TEST(Tee, CopiesLinesWithAWordToAFileOfTheirOwn) { in_simulation(filtered_lines); }

}  // namespace
}  // namespace rubato::agent
