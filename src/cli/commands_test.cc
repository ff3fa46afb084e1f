// What commands ask of the head, and what they print of its answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/submit_command.h"
#include "cli/testing.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

json train(const char* phase) { return {{"id", "j-1"}, {"name", "train"}, {"phase", phase}}; }

std::string entry(const char* time, int rank, const char* text) {
  return json{{"time", time}, {"rank", rank}, {"node", "n-1"}, {"stream", "out"}, {"text", text}}.dump() + "\n";
}

TEST(Commands, JobsAreATableOrJson) {
  CannedHead head;
  head.reply("GET jobs", {{"jobs", json::array({train("running")})}});
  head.reply("GET jobs?all=1", {{"jobs", json::array()}});
  EXPECT_NE(type_at(head, {"jobs"}).out.find("j-1  train  -      0     running"), std::string::npos);
  EXPECT_EQ(json::parse(type_at(head, {"jobs", "--json"}).out)["jobs"][0]["id"], "j-1");
  EXPECT_NE(type_at(head, {"jobs", "--all"}).err.find("no jobs"), std::string::npos);
}

TEST(Commands, TheHeadsErrorsKeepTheirCode) {
  CannedHead head;
  head.answers["GET jobs/zzz"] = [](const ApiRequest&) -> json {
    throw Error(ErrorCode::kNotFound, "no job is called 'zzz'", "", "see rubato jobs --all");
  };
  const Typed typed = type_at(head, {"job", "show", "zzz"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_EQ(typed.err, "error: no job is called 'zzz'\n  fix see rubato jobs --all\n");
  EXPECT_EQ(type_at(head, {"job", "show"}).code, 2);
}

TEST(Commands, AReferenceCannotLeaveItsPlaceInThePath) {
  CannedHead head;
  type_at(head, {"job", "show", "a/../b?x=1"});
  ASSERT_EQ(head.asked.size(), 1u);
  EXPECT_EQ(head.asked[0].target, "jobs/a%2F..%2Fb%3Fx%3D1");
}

TEST(Commands, WhyAsksForAJobThenForANode) {
  CannedHead head;
  head.reply("GET nodes/small-1/why", {{"subject", "node small-1"}, {"phase", "lost"}});
  EXPECT_EQ(type_at(head, {"why", "small-1"}).out, "node small-1: lost\n");
  EXPECT_EQ(head.asked.front().target, "jobs/small-1/why");
  const Typed neither = type_at(head, {"why", "x"});
  EXPECT_EQ(neither.code, 1);
  EXPECT_NE(neither.err.find("no job and no node is called 'x'"), std::string::npos);
}

TEST(Commands, StopGoesOnWithTheOthersAfterAnError) {
  CannedHead head;
  head.reply("POST jobs/j-1/stop", train("stopping"));
  const Typed typed = type_at(head, {"stop", "nope", "j-1"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_NE(typed.err.find("train (j-1) is stopping"), std::string::npos);
}

TEST(Commands, RerunPrintsTheNewIdAlone) {
  CannedHead head;
  head.reply("POST jobs/train/rerun", train("queued"));
  const Typed typed = type_at(head, {"rerun", "train"});
  EXPECT_EQ(typed.out, "j-1\n");
  EXPECT_NE(typed.err.find("rubato logs j-1 -f"), std::string::npos);
}

TEST(Commands, ReplayTakesATimeOrAnOffset) {
  CannedHead head;
  head.reply("GET replay?until=2026-11-15T03%3A50%3A00.000Z", {{"cluster", {{"name", "local"}}}});
  EXPECT_EQ(type_at(head, {"replay", "--until", "10m"}).code, 0);
  head.reply("GET replay?offset=7", {{"cluster", {{"name", "local"}}}});
  EXPECT_EQ(type_at(head, {"replay", "--offset", "7", "--json"}).code, 0);
  EXPECT_EQ(type_at(head, {"replay", "--offset", "7", "--until", "1m"}).code, 2);
}

TEST(Logs, PrintEachLineWithItsRankAndNode) {
  CannedHead head;
  head.reply("GET jobs/train", train("running"));
  head.streams["jobs/j-1/logs?follow=0&rank=1&since=2026-11-15T03%3A50%3A00.000Z&tail=5"].push_back(
      [](const auto& sink) {
        const std::string text =
            entry("2026-11-15T03:55:00Z", 1, "hello") + "\n" + entry("2026-11-15T03:55:01Z", 1, "you");
        sink(text.substr(0, 30));  // pieces do not end where lines do
        sink(text.substr(30));
        return StreamEnd::kEnded;
      });
  const Typed typed = type_at(head, {"logs", "train", "--rank", "1", "--since", "10m", "--tail", "5"});
  EXPECT_EQ(typed.out, "[1@n-1] hello\n[1@n-1] you\n");
  EXPECT_EQ(typed.code, 0);
}

TEST(Logs, FollowingGoesOnAfterTheHeadCameBackWithoutRepeatingALine) {
  CannedHead head;
  head.reply("GET jobs/j-1", train("succeeded"));
  const std::string first = entry("2026-11-15T03:55:00Z", 0, "a"), same = entry("2026-11-15T03:55:01Z", 0, "b");
  head.streams["jobs/j-1/logs?follow=1"].push_back([=](const auto& sink) -> StreamEnd {
    sink(first + same + same);
    throw Error(ErrorCode::kUnavailable, "the head of 'local' is not running");
  });
  head.streams["jobs/j-1/logs?follow=1&since=2026-11-15T03%3A55%3A01Z"].push_back([=](const auto& sink) {
    sink(same + same + same + entry("2026-11-15T03:55:02Z", 0, "c"));
    return StreamEnd::kEnded;
  });
  const Typed typed = type_at(head, {"logs", "j-1", "-f", "--no-prefix"});
  EXPECT_EQ(typed.out, "a\nb\nb\nb\nc\n");
  EXPECT_NE(typed.err.find("waiting for it"), std::string::npos);
}

// Their clocks differ: one node's lines are older than those of the other that came before them.
TEST(Logs, FollowingGoesOnWhereEachNodeWas) {
  CannedHead head;
  head.reply("GET jobs/j-1", train("succeeded"));
  const auto line = [](const char* agent, int sequence, const char* time, const char* text) {
    return json{{"agent", agent}, {"generation", 1}, {"node", agent}, {"rank", 0}, {"sequence", sequence},
                {"stream", "out"}, {"text", text},  {"time", time}}
               .dump() +
           "\n";
  };
  const std::string a1 = line("a", 1, "2026-11-15T03:55:10.000Z", "a1"),
                    b1 = line("b", 1, "2026-11-15T03:55:05.000Z", "b1");
  head.streams["jobs/j-1/logs?follow=1"].push_back([=](const auto& sink) -> StreamEnd {
    sink(b1 + a1);
    throw Error(ErrorCode::kUnavailable, "the head of 'local' is not running");
  });
  head.streams["jobs/j-1/logs?follow=1&since=2026-11-15T03%3A54%3A05.000Z"].push_back([=](const auto& sink) {
    sink(b1 + a1 + line("b", 2, "2026-11-15T03:55:06.000Z", "b2") + line("a", 2, "2026-11-15T03:55:11.000Z", "a2"));
    return StreamEnd::kEnded;
  });
  EXPECT_EQ(type_at(head, {"logs", "j-1", "-f", "--no-prefix"}).out, "b1\na1\nb2\na2\n");
}

TEST(Logs, FollowingAgainAsksForNothingOlderThanWasWanted) {
  CannedHead head;
  head.reply("GET jobs/j-1", train("succeeded"));
  const std::string since = "jobs/j-1/logs?follow=1&since=2026-11-15T03%3A59%3A50.000Z";
  for (int i = 0; i < 2; ++i) {
    head.streams[since].push_back([i](const auto& sink) -> StreamEnd {
      sink(R"({"agent":"a","generation":1,"node":"n-1","rank":0,"sequence":4,"stream":"out","text":"it",)"
           R"("time":"2026-11-15T03:59:55.000Z"})"
           "\n");
      if (i == 0) throw Error(ErrorCode::kUnavailable, "the head of 'local' is not running");
      return StreamEnd::kEnded;
    });
  }
  EXPECT_EQ(type_at(head, {"logs", "j-1", "-f", "--no-prefix", "--since", "10s"}).out, "it\n");
}

// The one after the break had no line in the tail; what it had said before is older than what was asked for.
TEST(Logs, FollowingATailAgainPrintsNothingOlderThanTheTail) {
  CannedHead head;
  head.reply("GET jobs/j-1", train("succeeded"));
  const auto line = [](const char* agent, int sequence, const char* second, const char* text) {
    return fmt::format(R"({{"agent":"{}","generation":1,"node":"n-1","rank":0,"sequence":{},"stream":"out",)"
                       R"("text":"{}","time":"2026-11-15T03:55:{}.000Z"}})"
                       "\n",
                       agent, sequence, text, second);
  };
  head.streams["jobs/j-1/logs?follow=1&tail=1"].push_back([&](const auto& sink) -> StreamEnd {
    sink(line("a", 4, "50", "last"));
    throw Error(ErrorCode::kUnavailable, "the head of 'local' is not running");
  });
  head.streams["jobs/j-1/logs?follow=1&since=2026-11-15T03%3A54%3A50.000Z"].push_back([&](const auto& sink) {
    sink(line("b", 7, "49", "old") + line("a", 4, "50", "last") + line("b", 8, "51", "new"));
    sink(line("b", 8, "51", "new"));
    return StreamEnd::kEnded;
  });
  EXPECT_EQ(type_at(head, {"logs", "j-1", "-f", "--no-prefix", "--tail", "1"}).out, "last\nnew\n");
}

// A log may have been put together from several; only what comes again after a break can be a repetition.
TEST(Logs, WhatComesInOnePieceIsPrintedWhole) {
  CannedHead head;
  head.reply("GET jobs/j-1", train("succeeded"));
  head.streams["jobs/j-1/logs?follow=0"].push_back([](const auto& sink) {
    for (const int sequence : {4, 5, 1})
      sink(fmt::format(R"({{"agent":"a","generation":1,"node":"n-1","rank":0,"sequence":{},"stream":"out",)"
                       R"("text":"it","time":"2026-11-15T03:55:00.000Z"}})"
                       "\n",
                       sequence));
    return StreamEnd::kEnded;
  });
  EXPECT_EQ(type_at(head, {"logs", "j-1", "--no-prefix"}).out, "it\nit\nit\n");
}

TEST(Logs, CtrlCDetachesAndSaysWhatToTypeNext) {
  CannedHead head;
  head.reply("GET jobs/j-1", train("running"));
  head.streams["jobs/j-1/logs?follow=1"].push_back([](const auto&) { return StreamEnd::kInterrupted; });
  const Typed typed = type_at(head, {"logs", "j-1", "-f"});
  EXPECT_EQ(typed.code, 130);
  EXPECT_NE(typed.err.find("detached; the job goes on"), std::string::npos);
}

TEST(Logs, FollowingEndsWithTheVerdictAndItsExitCode) {
  CannedHead head;
  const auto follow = [&](const char* phase) {
    json job = train(phase);
    job["failures"] = {{{"rank", 0}, {"host", "n-1"}, {"exit_code", 3}, {"generation", 2}, {"message", "boom"}}};
    head.reply("GET jobs/j-1", job);
    head.streams["jobs/j-1/logs?follow=1"].push_back([](const auto& sink) {
      sink(entry("2026-11-15T03:55:00Z", 0, "a"));
      return StreamEnd::kEnded;
    });
    return type_at(head, {"logs", "j-1", "-f"});
  };
  const Typed well = follow("succeeded");
  EXPECT_EQ(well.code, 0);
  EXPECT_EQ(well.out, "[0@n-1] a\n");
  EXPECT_EQ(well.err, "train (j-1) succeeded\n");
  const Typed failed = follow("failed");
  EXPECT_EQ(failed.code, 1);
  EXPECT_EQ(failed.err, "train (j-1) failed\n  rank 0 on n-1 (generation 2): exit code 3\n    boom\n");
  EXPECT_EQ(follow("stopped").code, 1);
}

TEST(Logs, ARankThatIsNotThereIsSaid) {
  CannedHead head;
  json job = train("running");
  job["workers_max"] = 4;
  head.reply("GET jobs/train", job);
  const Typed typed = type_at(head, {"logs", "train", "--rank", "99"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_EQ(typed.err, "error: train (j-1) has no rank 99\n  fix its ranks are 0 to 3\n");
  head.streams["jobs/j-1/logs?follow=0&rank=3"].push_back([](const auto&) { return StreamEnd::kEnded; });
  const Typed silent = type_at(head, {"logs", "train", "--rank", "3"});
  EXPECT_EQ(silent.code, 0);
  EXPECT_EQ(silent.err, "note: rank 3 of train (j-1) has printed nothing yet\n");
}

TEST(Logs, ANodeIsToldFromAJob) {
  CannedHead head;
  head.reply("GET nodes", {{"nodes", json::array({{{"id", "small-1"}}})}});
  const Typed typed = type_at(head, {"logs", "small-1"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_EQ(typed.err,
            "error: 'small-1' is a node, not a job\n  fix the log of its set-up: rubato logs --node small-1\n");
}

TEST(Jobs, ThatThereAreNoneIsNotData) {
  CannedHead head;
  head.reply("GET jobs", {{"jobs", json::array()}});
  const Typed typed = type_at(head, {"jobs"});
  EXPECT_EQ(typed.code, 0);
  EXPECT_EQ(typed.out, "");
  EXPECT_TRUE(typed.err.starts_with("no jobs here")) << typed.err;
}

TEST(Events, AreFollowedFromTheLastOneThatWasShown) {
  CannedHead head;
  head.reply("GET events?limit=50", {{"events", json::array({{{"offset", 7}, {"type", "a"}, {"text", "one"}}})}});
  head.streams["events?after=7&follow=1"].push_back([](const auto& sink) {
    sink(": hello\n\nid: 8\ndata: {\"offset\":8,\"type\":\"b\",\"te");
    sink("xt\":\"two\"}\n\n");
    return StreamEnd::kInterrupted;
  });
  const Typed typed = type_at(head, {"events", "-f", "--json"});
  EXPECT_EQ(typed.code, 130);
  EXPECT_EQ(typed.out,
            "{\"offset\":7,\"text\":\"one\",\"type\":\"a\"}\n{\"offset\":8,\"text\":\"two\",\"type\":\"b\"}\n");
}

// A folder with a script, and the head's side of an upload.
struct SubmitBench {
  std::string folder = scratch("rubato_submit_test");
  CannedHead head;
  std::string hash;
  json submitted;

  SubmitBench() {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/train.py") << "import helper\n";
    std::ofstream(folder + "/helper.py") << "x = 1\n";
    head.answers["POST jobs"] = [this](const ApiRequest& request) {
      submitted = json::parse(request.body);
      return train("queued");
    };
    head.reply("GET jobs/j-1", train("succeeded"));
  }
  ~SubmitBench() { std::filesystem::remove_all(folder); }

  // The package's hash is known only once it is packed: the first try learns it.
  void learn_hash() {
    type_at(head, {"submit", folder, "train.py"});
    ASSERT_FALSE(head.asked.empty());
    hash = head.asked.back().target.substr(9);
    head.asked.clear();
  }
};

TEST(Submit, APackageThatIsThereIsNotSentAgain) {
  SubmitBench bench;
  bench.learn_hash();
  bench.head.reply("GET packages/" + bench.hash, {{"present", true}, {"have_bytes", 9}});
  const Typed typed = type_at(bench.head, {"submit", "--workers", "2:4", bench.folder, "train.py", "--lr", "1"});
  EXPECT_EQ(typed.code, 0) << typed.err;
  EXPECT_EQ(typed.out, "j-1\n");
  EXPECT_EQ(bench.head.asked.size(), 2u);
  EXPECT_EQ(bench.submitted["package"], bench.hash);
  EXPECT_EQ(bench.submitted["program"], "train.py");
  EXPECT_EQ(bench.submitted["args"], json({"--lr", "1"}));
  EXPECT_EQ(bench.submitted["workers_max"], 4);
  EXPECT_EQ(bench.submitted["owner"], "me");
  EXPECT_EQ(bench.submitted["request_id"], "token-1");
}

TEST(Submit, NamesAFewOfManyThatCannotBePacked) {
  SubmitBench bench;
  for (int i = 0; i < 8; ++i) {
    std::filesystem::create_symlink("/outside", bench.folder + "/link" + std::to_string(i));
  }
  const Typed typed = type_at(bench.head, {"submit", bench.folder, "train.py"});
  EXPECT_TRUE(typed.err.starts_with("note: 'link0 -> /outside' is left out: it points outside of the folder"))
      << typed.err;
  EXPECT_NE(typed.err.find("\nnote: and so are at least 3 others\n"), std::string::npos) << typed.err;
  EXPECT_EQ(typed.err.find("link5"), std::string::npos);
}

TEST(Submit, WarnsOfAJobThatCanNeverStart) {
  SubmitBench bench;
  bench.learn_hash();
  bench.head.reply("GET packages/" + bench.hash, {{"present", true}, {"have_bytes", 9}});
  json job = train("queued");
  job["never_fits"] = {{"against", {{{"text", "no node type can hold it"}, {"where", "local.yaml:8:18"}}}},
                       {"changes", {{{"text", "ask for less"}}}}};
  bench.head.reply("POST jobs", job);
  const Typed typed = type_at(bench.head, {"submit", bench.folder, "train.py"});
  EXPECT_EQ(typed.code, 0);
  EXPECT_NE(
      typed.err.find("warning: it cannot start: no node type can hold it  (local.yaml:8:18)\n  fix ask for less\n"),
      std::string::npos)
      << typed.err;
}

TEST(Submit, AFlagOfOursAfterTheScriptGetsAHint) {
  SubmitBench bench;
  const auto err = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"submit", "--no-python"});
    return type_at(bench.head, arguments).err;
  };
  const std::string note =
      "note: --wait after /bin/true is given to /bin/true; if you mean rubato's, write: rubato submit --wait "
      "/bin/true\n";
  EXPECT_TRUE(err({"/bin/true", "--wait"}).starts_with(note)) << err({"/bin/true", "--wait"});
  EXPECT_TRUE(err({"/bin/true", "--workers=2"}).starts_with("note: --workers after"));
  EXPECT_EQ(err({"/bin/true", "--epochs", "3"}).find("note:"), std::string::npos);
  EXPECT_EQ(err({"/bin/true", "--", "--wait"}).find("note:"), std::string::npos) << "it was meant so";
}

TEST(Submit, ALargePackageNamesItsLargestFiles) {
  SubmitBench bench;
  std::ofstream(bench.folder + "/model.bin").close();
  std::filesystem::resize_file(bench.folder + "/model.bin", 120 << 20);
  const Typed typed = type_at(bench.head, {"submit", bench.folder, "train.py"});
  EXPECT_TRUE(typed.err.starts_with("note: 120.0 MiB are packed from ")) << typed.err;
  EXPECT_NE(typed.err.find("; the largest: model.bin 120.0 MiB\n  fix name what the job does not need in "),
            std::string::npos)
      << typed.err;
}

TEST(Submit, SaysThatItWaitsForTheHead) {
  SubmitBench bench;
  bench.learn_hash();
  bench.head.reply("GET packages/" + bench.hash, {{"present", true}, {"have_bytes", 9}});
  bench.head.answers["POST jobs"] = [](const ApiRequest& request) {
    EXPECT_GT(request.patience, 0s);
    request.on_waiting(Error(ErrorCode::kUnavailable, "the head is not running", "", "restart it with: rubato up"));
    return train("queued");
  };
  const Typed typed = type_at(bench.head, {"submit", bench.folder, "train.py"});
  EXPECT_NE(typed.err.find("the head is not running; waiting for it\n  fix restart it with: rubato up\n"),
            std::string::npos)
      << typed.err;
}

TEST(Submit, AnUploadGoesOnWhereAnEarlierOneEnded) {
  SubmitBench bench;
  bench.learn_hash();
  bench.head.reply("GET packages/" + bench.hash, {{"present", false}, {"have_bytes", 10}});
  size_t size = 0;
  const std::string prefix = "packages/" + bench.hash + "?offset=10&size=";
  // The target names the size, which is not known here: any answers.
  for (size_t guess = 11; guess < 2000; ++guess) {
    bench.head.answers["PUT " + prefix + std::to_string(guess)] = [&, guess](const ApiRequest& request) {
      size = request.body.size();
      EXPECT_EQ(size + 10, guess);
      return json{{"have_bytes", guess}, {"complete", true}};
    };
  }
  EXPECT_EQ(type_at(bench.head, {"submit", bench.folder, "train.py"}).code, 0);
  EXPECT_GT(size, 0u);
}

TEST(Submit, AHeadThatTakesNothingIsAnErrorNotALoop) {
  SubmitBench bench;
  bench.learn_hash();
  bench.head.reply("GET packages/" + bench.hash, {{"present", false}, {"have_bytes", 0}});
  for (size_t guess = 1; guess < 2000; ++guess) {
    bench.head.reply("PUT packages/" + bench.hash + "?offset=0&size=" + std::to_string(guess),
                     {{"have_bytes", 0}, {"complete", false}});
  }
  EXPECT_NE(type_at(bench.head, {"submit", bench.folder, "train.py"}).err.find("does not take the package"),
            std::string::npos);
}

TEST(Submit, WaitExitsWithTheJobsResult) {
  SubmitBench bench;
  const std::vector<std::string> arguments{"submit", "--no-python", "--wait", "/bin/true"};
  EXPECT_EQ(type_at(bench.head, arguments).code, 0);
  bench.head.reply("GET jobs/j-1", train("failed"));
  const Typed failed = type_at(bench.head, arguments);
  EXPECT_EQ(failed.code, 1);
  EXPECT_NE(failed.err.find("train (j-1) failed"), std::string::npos);
  bench.head.reply("GET jobs/j-1", train("running"));
  bench.head.on_pause = [] { return false; };
  EXPECT_EQ(type_at(bench.head, arguments).code, 130);
}

}  // namespace
}  // namespace rubato::cli
