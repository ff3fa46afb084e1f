// What commands say of a cluster that is down, from its files.
#include "client/past_api.h"

#include <filesystem>
#include <fstream>

#include "cli/testing.h"
#include "cluster/state_testing.h"
#include "os/sqlite_journal_file.h"

namespace rubato::cli {
namespace {

using namespace cluster;  // NOLINT: the words of state_testing.h
using nlohmann::json;

// A home in which the cluster "local" was up, ran a job of two ranks, and is down.
struct PastCluster {
  std::string home = scratch("rubato_past_test");
  std::string folder = home + "/rubato/clusters/local";
  JobId job{"j-00000001"};

  PastCluster() {
    std::filesystem::create_directories(folder + "/jobs/j-00000001");
    os::SqliteJournalFile journal(folder + "/journal.db");
    std::vector<std::string> records;
    const auto add = [&](Event event) { records.push_back(encode(kTestStart, event)); };
    add(HeadStarted{1, "0", 7});
    add(ClusterConfigured{cluster_of({node_type("n", cpus(4), 1, 1)}), "text"});
    add(JobSubmitted{job, job_of(2, 2), "", ""});
    add(JobEnded{job, JobResult::kFailed, "rank 0: exit code 1"});
    journal.append(records);
    std::ofstream log(folder + "/jobs/j-00000001/log");
    for (int line = 0; line < 4; ++line) {
      log << json{{"time", "2026-11-15T03:5" + std::to_string(line) + ":00Z"},
                  {"rank", line % 2},
                  {"node", "n-1"},
                  {"stream", "out"},
                  {"text", "line " + std::to_string(line)}}
          << "\n";
    }
  }
  ~PastCluster() { std::filesystem::remove_all(home); }

  Typed type(const std::vector<std::string>& args) {
    Typed typed;
    Shell shell{.env = {{"XDG_STATE_HOME", home}, {"USER", "me"}}};
    shell.out = [&](std::string_view text) { typed.out += text; };
    shell.err = [&](std::string_view text) { typed.err += text; };
    shell.now = [] { return *parse_time("2026-11-15T04:00:00Z"); };
    shell.open_api = [](const ClusterPlace&) -> std::unique_ptr<Api> { throw no_cluster(""); };
    typed.code = run_cli(args, shell);
    return typed;
  }
};

TEST(Past, JobsAreReadAfterDown) {
  PastCluster past;
  const Typed jobs = past.type({"jobs"});
  EXPECT_EQ(jobs.code, 0) << jobs.err;
  EXPECT_NE(jobs.out.find("j-00000001  train  ann    0     failed"), std::string::npos) << jobs.out;
  EXPECT_EQ(jobs.err, "note: 'local' is down; this is what its files tell\n");
  EXPECT_NE(past.type({"job", "show", "train"}).out.find("rank 0: exit code 1"), std::string::npos);
  EXPECT_EQ(json::parse(past.type({"jobs", "--json"}).out)["jobs"].size(), 1u);
}

TEST(Past, LogsAreReadAfterDown) {
  PastCluster past;
  EXPECT_EQ(past.type({"logs", "train"}).out, "[0@n-1] line 0\n[1@n-1] line 1\n[0@n-1] line 2\n[1@n-1] line 3\n");
  EXPECT_EQ(past.type({"logs", "train", "--rank", "1"}).out, "[1@n-1] line 1\n[1@n-1] line 3\n");
  EXPECT_EQ(past.type({"logs", "train", "--tail", "1"}).out, "[1@n-1] line 3\n");
  EXPECT_EQ(past.type({"logs", "train", "--since", "510s"}).out, "[0@n-1] line 2\n[1@n-1] line 3\n");
  const Typed followed = past.type({"logs", "train", "-f"});
  EXPECT_EQ(followed.code, 1) << "the job failed";
  EXPECT_NE(followed.err.find("train (j-00000001) failed: rank 0: exit code 1"), std::string::npos) << followed.err;
}

// As of a cluster whose head was another machine.
TEST(Past, FilesOfAFolderElsewhereAreBroughtWhenTheyAreAskedFor) {
  PastCluster past;
  const std::string here = scratch("rubato_past_test_here");
  std::vector<std::string> brought;
  const BringPast bring = [&](const std::string& path) {
    brought.push_back(path);
    const std::filesystem::path from = past.folder + "/" + path, to = here + "/" + path;
    if (!std::filesystem::exists(from)) return;
    std::filesystem::create_directories(to.parent_path());
    std::filesystem::copy(from, to);
  };
  const std::unique_ptr<Api> api = open_past_api({"lab", here}, bring);
  EXPECT_EQ(brought, std::vector<std::string>());
  EXPECT_EQ(get(*api, "jobs?all=1")["jobs"].size(), 1u);
  EXPECT_EQ(get(*api, "events")["events"].size(), 4u);
  EXPECT_EQ(brought, (std::vector<std::string>{"journal.db", "journal.db-wal"})) << "once each, and nothing else";
  std::string log;
  api->stream("jobs/train/logs?tail=1", [&](std::string_view text) { log += text; });
  EXPECT_NE(log.find("line 3"), std::string::npos) << log;
  EXPECT_EQ(brought.back(), "jobs/j-00000001/log");
  EXPECT_THROW(api->stream("nodes/..%2Fx/log", [](std::string_view) {}), Error);
  EXPECT_EQ(brought.back(), "jobs/j-00000001/log") << "nothing above the folder";
  const std::unique_ptr<Api> nothing =
      open_past_api({"lab", scratch("rubato_past_test_none")}, [](const std::string&) {});
  EXPECT_THROW(get(*nothing, "jobs"), Error);
  std::filesystem::remove_all(here);
}

TEST(Past, EventsAndReplayAreReadAfterDown) {
  PastCluster past;
  const Typed events = past.type({"events", "-f"});
  EXPECT_EQ(events.code, 0) << "nothing more comes";
  EXPECT_NE(events.out.find("job-submitted"), std::string::npos) << events.out;
  EXPECT_NE(events.out.find("job-ended"), std::string::npos);
  EXPECT_EQ(past.type({"events", "--limit", "1"}).out.find("job-submitted"), std::string::npos);
  const Typed before = past.type({"replay", "--offset", "3"});
  EXPECT_EQ(before.code, 0) << before.err;
  EXPECT_NE(before.out.find("queued #1"), std::string::npos) << before.out;
  const Typed beyond = past.type({"replay", "--offset", "5"});
  EXPECT_EQ(beyond.code, 1);
  EXPECT_NE(beyond.err.find("there is no record 5: the journal ends at record 4"), std::string::npos) << beyond.err;
}

TEST(Past, OutputsAreFetchedAfterDown) {
  PastCluster past;
  std::filesystem::create_directories(past.folder + "/jobs/j-00000001/output/deep");
  std::ofstream(past.folder + "/jobs/j-00000001/output/deep/model") << "weights";
  const Typed fetched = past.type({"fetch", "train", past.home + "/results"});
  EXPECT_EQ(fetched.code, 0) << fetched.err;
  std::string text;
  std::ifstream(past.home + "/results/deep/model") >> text;
  EXPECT_EQ(text, "weights");
}

TEST(Past, WhatNeedsAHeadSaysSo) {
  PastCluster past;
  EXPECT_NE(past.type({"stop", "train"}).err.find("no cluster is running"), std::string::npos);
  std::filesystem::remove(past.folder + "/journal.db");
  EXPECT_NE(past.type({"jobs"}).err.find("no cluster is running"), std::string::npos);
}

TEST(Past, CompletionKnowsNamesAndIsSilentWithout) {
  PastCluster past;
  const Typed jobs = past.type({"complete", "jobs"});
  EXPECT_EQ(jobs.out, "j-00000001\ntrain\n");
  EXPECT_EQ(jobs.err, "");
  EXPECT_EQ(past.type({"complete", "clusters"}).out, "local\n");
  std::filesystem::remove_all(past.home + "/rubato");
  const Typed none = past.type({"complete", "subjects"});
  EXPECT_EQ(none.code, 0);
  EXPECT_EQ(none.out + none.err, "");
}

}  // namespace
}  // namespace rubato::cli
