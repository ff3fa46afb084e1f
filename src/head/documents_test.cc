#include "head/documents.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster/state_testing.h"

namespace rubato::head {
namespace {

using namespace cluster;  // NOLINT: the words of state_testing.h
using nlohmann::json;

JobId submit(History& history, const std::string& owner, int priority) {
  JobSpec spec = job_of(4, 4);
  spec.owner = owner;
  spec.priority = priority;
  history.pass(1s);
  return history.submit(spec);
}

struct Queue {
  History history;
  JobId ended, running, low, high;

  Queue() {
    history.configure({node_type("n", cpus(4), 1, 1)});
    history.node_up("n");
    ended = submit(history, "ann", 0);
    history.add(JobEnded{ended, JobResult::kFailed, "no"});
    running = history.running(job_of(4, 4), {{"n-1", 4}});
    low = submit(history, "ann", 0);
    high = submit(history, "bob", 5);
  }
};

TEST(JobDocuments, JobsWithSeatsThenTheQueueInItsOrderThenTheEnded) {
  const Queue queue;
  const json jobs = api::to_json(jobs_document(queue.history.state, true))["jobs"];
  ASSERT_EQ(jobs.size(), 4u);
  EXPECT_EQ(jobs[0]["id"], queue.running.value);
  EXPECT_FALSE(jobs[0].contains("queue_place"));
  EXPECT_EQ(jobs[1]["id"], queue.high.value);
  EXPECT_EQ(jobs[1]["queue_place"], 1);
  EXPECT_EQ(jobs[1]["owner"], "bob");
  EXPECT_EQ(jobs[2]["id"], queue.low.value);
  EXPECT_EQ(jobs[2]["queue_place"], 2);
  EXPECT_EQ(jobs[3]["id"], queue.ended.value);
  EXPECT_EQ(jobs_document(queue.history.state, false).jobs.size(), 3u);
  EXPECT_EQ(api::to_json(status_document(queue.history.state, {}, queue.history.now))["jobs"], jobs);
}

TEST(JobDocuments, WhyNamesWhoIsAhead) {
  const Queue queue;
  const State& state = queue.history.state;
  const json place = api::to_json(queue_document(state, state.jobs.at(queue.low)));
  EXPECT_EQ(place["place"], 2);
  EXPECT_EQ(place["of"], 2);
  ASSERT_EQ(place["ahead"].size(), 1u);
  EXPECT_EQ(place["ahead"][0]["id"], queue.high.value);
  EXPECT_EQ(place["ahead"][0]["owner"], "bob");
  EXPECT_TRUE(api::to_json(queue_document(state, state.jobs.at(queue.running))).empty());
}

}  // namespace
}  // namespace rubato::head
