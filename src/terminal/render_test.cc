// Golden tests of what people see.
#include <gtest/gtest.h>

#include "core/timestamp.h"
#include "terminal/document.h"
#include "terminal/render_cluster.h"
#include "terminal/render_events.h"
#include "terminal/render_jobs.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

const WallTime kNow = *parse_time("2026-11-15T04:00:00Z");

json job() {
  return json::parse(R"({
    "id": "j-7f3a9c2e", "name": "train", "phase": "running", "owner": "me", "priority": 5, "workers": 3,
    "workers_min": 2, "workers_max": 4, "generation": 2, "restarts_used": 1, "max_restarts": 3,
    "submitted": "2026-11-15T03:56:50.000Z", "started": "2026-11-15T03:56:59Z", "reason": "grows when a node comes",
    "spec": {"kind": "script", "program": "train.py", "args": ["--lr", "1 e"], "per_worker": {"CPU": 1, "GPU": 0.5},
             "package": "0123456789abcdef0123"},
    "members": [{"node": "small-1", "rank_first": 0, "workers": 2, "state": "running"},
                {"node": "small-12", "rank_first": 2, "workers": 1, "state": "running"}],
    "failures": [{"host": "small-3", "rank": 2, "local_rank": 0, "exit_code": 0, "signal": 9, "generation": 1,
                  "message": "killed by SIGKILL, signal 9", "traceback": "", "time": "2026-11-15T03:58:00Z"}],
    "events": [{"offset": 7, "time": "2026-11-15T03:59:48Z", "type": "job.rescaled", "text": "train goes on with 3"}]
})");
}

json queued() {
  return json::parse(R"({"id": "j-00c0ffee", "name": "größe", "phase": "queued", "workers": 0, "workers_min": 8,
    "workers_max": 8, "restarts_used": 0, "max_restarts": 3, "submitted": "2026-11-15T02:59:00Z", "queue_place": 2,
    "reason": "needs 8 CPU, 4 are free"})");
}

TEST(RenderJobs, TheTableLinesUp) {
  EXPECT_EQ(jobs_text(read_document<api::Jobs>({{"jobs", {job(), queued()}}}).jobs, {.now = kNow}),
            "ID          NAME   OWNER  PRIO  PHASE      WORKERS  RESTARTS  AGE    RAN    WHY\n"
            "j-7f3a9c2e  train  me     5     running    3/2:4    1/3       3m10s  3m01s  grows when a node comes\n"
            "j-00c0ffee  größe  -      0     queued #2  0/8      0/3       1h01m  -      needs 8 CPU, 4 are free\n");
  EXPECT_EQ(jobs_text({}, {}),
            "no jobs here; submit one with: rubato submit train.py (ended ones: rubato jobs --all)\n");
}

TEST(RenderWhy, NamesWhoIsAheadInTheQueue) {
  const json queue = json::parse(R"({"place": 4, "of": 9, "ahead": [
    {"id": "j-1", "name": "train", "owner": "ann", "priority": 5}, {"id": "j-2", "name": "eval", "owner": ""}]})");
  const auto place = [](const json& one) { return queue_text(read_document<api::QueuePlace>(one)); };
  EXPECT_EQ(place(queue), "place 4 of 9; ahead: j-1 (train, ann, priority 5), j-2 (eval) and 1 more");
  EXPECT_EQ(place(json::parse(R"({"place": 1, "of": 3, "ahead": []})")), "it is the next of 3");
  EXPECT_EQ(place(json::object()), "");
  EXPECT_EQ(why_text(read_document<api::Why>({{"subject", "job j-3"}, {"phase", "queued"}, {"queue", queue}}), {}),
            "job j-3: queued\n  queue: place 4 of 9; ahead: j-1 (train, ann, priority 5), j-2 (eval) and 1 more\n");
}

TEST(RenderJobs, ShowTellsEverythingOnce) {
  EXPECT_EQ(job_text(read_document<api::Job>(job()), {.now = kNow}),
            "train j-7f3a9c2e  running\n"
            "  why        grows when a node comes\n"
            "  program    python train.py --lr '1 e'\n"
            "  workers    3/2:4, each 1 CPU, 0.5 GPU\n"
            "  submitted  3m10s ago by me\n"
            "  started    3m01s ago\n"
            "  ran        3m01s\n"
            "  restarts   1 of 3, generation 2\n"
            "  priority   5\n"
            "  package    0123456789ab\n"
            "\nMembers\n"
            "NODE      RANKS  WORKERS  STATE\n"
            "small-1   0-1    2        running\n"
            "small-12  2      1        running\n"
            "\nFailures\n"
            "  rank 2 on small-3 (generation 1): signal 9\n"
            "    killed by SIGKILL, signal 9\n"
            "\nEvents\n"
            "  12s      train goes on with 3\n");
}

TEST(RenderJobs, TheEndOfAFailedJobShowsTheLastTraceback) {
  json failed = job();
  failed["phase"] = "failed";
  failed["exit"] = "rank 1 failed 4 times";
  failed["failures"][0]["traceback"] = "Traceback:\n  File x\nValueError: bad\n";
  EXPECT_EQ(end_text(read_document<api::Job>(failed), {}),
            "train (j-7f3a9c2e) failed: rank 1 failed 4 times\n"
            "  rank 2 on small-3 (generation 1): signal 9\n"
            "    killed by SIGKILL, signal 9\n"
            "    Traceback:\n"
            "      File x\n"
            "    ValueError: bad\n");
}

TEST(RenderJobs, TheEndIsNotSaidTwice) {
  json ended = {{"id", "j-1"}, {"name", "t"}, {"phase", "stopped"}, {"exit", "stopped: a person asked for it"}};
  EXPECT_EQ(end_text(read_document<api::Job>(ended), {}), "t (j-1) stopped: a person asked for it\n");
  ended["phase"] = ended["exit"] = "succeeded";
  EXPECT_EQ(end_text(read_document<api::Job>(ended), {}), "t (j-1) succeeded\n");
}

TEST(RenderJobs, ADocumentOfAnotherShapeIsNoCrash) {
  const json job = json::parse(R"({"spec": 3, "members": {}, "workers": "x", "events": [1]})");
  EXPECT_NE(job_text(read_document<api::Job>(job), {}), "");
  EXPECT_NE(jobs_text(read_document<api::Jobs>(json::parse(R"({"jobs": [1, null, {}]})")).jobs, {}), "");
  EXPECT_NE(status_text(read_document<api::Status>(json::parse("[]")), {}), "");
  EXPECT_NE(why_text(read_document<api::Why>(json::parse("3")), {}), "");
}

TEST(RenderJobs, WhatAHeadWritesMovesNoCursor) {
  json hostile = job();
  hostile["name"] = "tr\x1b[2Jain";
  hostile["events"][0]["text"] = "one\n\x1b]0;two\a";
  const std::string text = job_text(read_document<api::Job>(hostile), {.now = kNow});
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_NE(text.find("one | ?]0;two?"), std::string::npos) << text;
}

TEST(RenderEvents, LogLinesNameRankAndNode) {
  const json entry = {{"rank", 3}, {"node", "small-1"}, {"stream", "out"}, {"text", "loss 0.1\x1b[K"}};
  EXPECT_EQ(log_line(entry, {}), "[3@small-1] loss 0.1\x1b[K\n");
  EXPECT_EQ(log_line(entry, {.prefix = false}), "loss 0.1\x1b[K\n");
  EXPECT_EQ(log_line(entry, {.colour = true}), "\x1b[35m[3@small-1]\x1b[0m loss 0.1\x1b[K\n");
}

TEST(RenderEvents, OneLineEach) {
  const json event = {{"time", "2026-11-15T03:54:46.123Z"}, {"type", "job.started"}, {"text", "train starts\nnow"}};
  const auto read = read_document<api::Event>(event);
  EXPECT_EQ(event_line(read, {}), "2026-11-15 03:54:46  job.started         train starts | now\n");
  EXPECT_EQ(event_line(read, {.width = 51}), "2026-11-15 03:54:46  job.started         train sta…\n");
}

TEST(RenderWhy, SaysWhatIsWantedWhatStandsAgainstItAndWhatChangesIt) {
  const json why = json::parse(R"({"subject": "job train j-1", "phase": "queued", "wanted": "8 workers of 1 CPU",
    "decision": {"offset": 42, "time": "2026-11-15T03:59:57Z", "text": "It waits: 4 of 8 workers fit."},
    "against": [{"text": "at most 2 small nodes", "where": "local.yaml:8:18"}, {"text": "no other type"}],
    "changes": [{"text": "j-2 ends", "when": "2026-11-15T04:03:00.000Z"}]})");
  EXPECT_EQ(why_text(read_document<api::Why>(why), {.now = kNow}),
            "job train j-1: queued\n"
            "  wanted: 8 workers of 1 CPU\n"
            "\nWhat stands against it\n"
            "  - at most 2 small nodes  (local.yaml:8:18)\n"
            "  - no other type\n"
            "\nWhat would change it\n"
            "  - j-2 ends  (2026-11-15T04:03:00.000Z)\n"
            "\nIt waits: 4 of 8 workers fit. (decided 3s ago, journal offset 42)\n");
}

json status() {
  return json::parse(R"({"cluster": {"name": "local", "head": {"pid": 77, "since": "2026-11-15T03:50:00Z", "epoch": 2},
    "journal": {"offset": 532}},
    "nodes": [{"id": "small-1", "type": "small", "phase": "up", "since": "2026-11-15T03:50:30Z",
               "resources": {"CPU": 4, "memory": 4294967296}, "used": {"CPU": 1.5}, "jobs": ["j-7f3a9c2e"], "why": ""},
              {"id": "small-2", "type": "small", "phase": "starting", "since": "2026-11-15T03:59:57Z",
               "resources": {"CPU": 4}, "used": {}, "jobs": [], "why": "its agent has not called yet"}],
    "jobs": [], "totals": {"resources": {"CPU": 8, "GPU": 1}, "used": {"CPU": 1.5}, "queued": 0, "running": 1},
    "events": [{"time": "2026-11-15T03:59:57Z", "type": "node.requested", "text": "small-2 was asked for"}]})");
}

TEST(RenderCluster, StatusIsOneScreen) {
  EXPECT_EQ(status_text(read_document<api::Status>(status()), {.now = kNow}),
            "cluster local  head up 10m00s (pid 77, epoch 2, journal 532)\n"
            "1/2 nodes up · 1.5/8 CPU, 0/1 GPU · 1 running, 0 queued\n"
            "\n"
            "NODE     TYPE   PHASE     AGE    USED                         JOBS        WHY\n"
            "small-1  small  up        9m30s  1.5/4 CPU, 0 B/4 GiB memory  j-7f3a9c2e\n"
            "small-2  small  starting  3s     0/4 CPU                      -           its agent has not called yet\n"
            "\n"
            "no jobs here; submit one with: rubato submit train.py (ended ones: rubato jobs --all)\n"
            "\nLast events\n"
            "  3s       small-2 was asked for\n");
}

TEST(RenderCluster, NodesThatAreNotUpSayWhy) {
  const NodesUp nodes = nodes_up(read_document<api::Status>(status()), 2, {.now = kNow});
  EXPECT_EQ(nodes.up, 1);
  EXPECT_EQ(nodes.not_up, "  small-2 is starting since 3s: its agent has not called yet\n");
}

TEST(RenderCluster, ThePlanSaysWhatHappensToEachType) {
  const json plan =
      json::parse(R"({"changes": [{"action": "add", "node_type": "small", "count": 2, "why": "min_workers"},
    {"action": "replace", "node_type": "gpu", "count": 1, "why": "resources differ"},
    {"action": "limits", "node_type": "small", "count": 0, "why": "max_workers 4"}], "wanted_nodes": 3})");
  EXPECT_EQ(plan_text(read_document<api::Configured>(plan).changes, {}),
            "  + add 2 small nodes  (min_workers)\n"
            "  ~ replace 1 gpu node  (resources differ)\n"
            "  ~ limits small  (max_workers 4)\n");
  EXPECT_TRUE(plan_removes(read_document<api::Configured>(plan).changes));
  EXPECT_FALSE(plan_removes({api::PlannedChange{.action = "add"}}));
}

}  // namespace
}  // namespace rubato::cli
