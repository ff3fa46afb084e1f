// Large clusters and queues: prints what a decision takes, asserts what it decides.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/resource.h>

#include "reconcile/cluster_testing.h"

namespace rubato::reconcile {
namespace {

double cpu_ms() {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) * 1e3 + static_cast<double>(usage.ru_utime.tv_usec) * 1e-3;
}

// A state, and what its head remembers.
struct Head : State {
  explicit Head(const State& state) : State(state) {}
  PlanMemory memory;
};

// Turn after turn, until nothing more follows at once. Returns the number of records.
size_t timed(const char* what, Head& state, std::vector<Event> events, WallTime now, const Observed& observed = {}) {
  size_t records = 0;
  double longest = 0;
  int turns = 0;
  for (bool done = false; !done; ++turns) {
    const size_t happened = events.size();
    const double begin = cpu_ms();
    const Decision decision = decide(state, state.memory, observed, std::exchange(events, {}), now);
    longest = std::max(longest, cpu_ms() - begin);
    records += decision.records.size();
    EXPECT_LE(decision.records.size(), happened + 6'000) << "no turn decides more";
    done = !decision.wake.at || *decision.wake.at > now;
  }
  printf("%-52s %8.2f ms, %zu records in %d turns\n", what, longest, records, turns);
  return records;
}

JobSpec some_job(int i) {
  JobSpec spec = job_of(1 + i % 7, i % 3 ? 1 + i % 7 : 12, cpus(1 + i % 3, int64_t{i % 4} << 30, i % 5 == 0 ? 1 : 0));
  spec.owner = "owner-" + std::to_string(i % 50);
  spec.priority = i % 3;
  return spec;
}

TEST(Scale, TenThousandJobsOnAThousandNodes) {
  History history;
  history.configure({node_type("big", cpus(16, int64_t{64} << 30, 8), 200, 400),
                     node_type("mid", cpus(8, int64_t{32} << 30), 400, 800),
                     node_type("small", cpus(4, int64_t{16} << 30), 400, 800)});
  history.nodes_up("big", 200);
  history.nodes_up("mid", 400);
  history.nodes_up("small", 400);
  history.pass(1min);
  for (int i = 0; i < 10'000; ++i) history.submit(some_job(i));
  Head state(history.state);

  timed("first decision: 10,000 queued, 1,000 empty nodes", state, {}, history.now);
  EXPECT_GT(state.active.size(), 500u);
  EXPECT_GT(state.queued.size(), 5'000u);
  timed("again, nothing new", state, {}, history.now);

  Observed observed;
  for (const JobId& id : state.active) {
    const Job& job = state.jobs.at(id);
    for (const Seat& seat : job.seats) observed.ready[id][seat.node] = Observed::Ready{job.generation, 5000};
  }
  timed("all placed jobs are ready", state, {}, history.now, observed);
  const JobId first = *state.active.begin();
  std::vector<Event> done;
  for (const Seat& seat : state.jobs.at(first).seats) done.push_back(SeatDone{first, 1, seat.node});
  timed("one job ends", state, done, later(history.now, 1s), observed);
  timed("one node is lost", state, {NodeLost{state.nodes.begin()->first, "silent"}}, later(history.now, 2s), observed);
  timed("one job comes", state, {JobSubmitted{JobId{"j-new"}, some_job(3), "", ""}}, later(history.now, 3s), observed);
  timed("eleven minutes later: starvation", state, {}, later(history.now, 660s), observed);
  Head copy = state;
  EXPECT_EQ(timed("again, nothing new", copy, {}, later(history.now, 660s), observed), 0u);
}

TEST(Scale, ManyElasticJobsShareTheCluster) {
  History history;
  history.configure({node_type("n", cpus(8), 1000, 1000)});
  history.nodes_up("n", 1000);
  history.pass(1min);
  for (int i = 0; i < 1000; ++i) history.submit(1, 16);
  Head state(history.state);
  timed("1,000 elastic jobs grow to 8,000 workers", state, {}, history.now);
  for (const auto& [id, job] : state.jobs) EXPECT_EQ(job.workers(), 8);
}

TEST(Scale, OneJobOnAThousandNodes) {
  History history;
  history.configure({node_type("n", cpus(8), 1000, 1000)});
  history.nodes_up("n", 1000);
  history.pass(1min);
  const JobId job = history.submit(8000, 8000);
  Head state(history.state);
  timed("one job with 8,000 workers", state, {}, history.now);
  Observed observed;
  for (const Seat& seat : state.jobs.at(job).seats) observed.ready[job][seat.node] = Observed::Ready{1, 5000};
  timed("it starts", state, {}, history.now, observed);
  const double begin = cpu_ms();
  int last = 0;
  for (const auto& [id, node] : state.nodes)
    last = std::max(last, orders_for(state, id, "/out").job_orders.at(0).place.first_rank);
  printf("%-52s %8.2f ms\n", "orders for all nodes", cpu_ms() - begin);
  EXPECT_EQ(last, 7992);
}

TEST(Scale, QueueOfTenThousandOwnersAndSizes) {
  History history;
  history.configure({node_type("n", cpus(8, int64_t{64} << 30), 100, 100)});
  history.nodes_up("n", 100);
  history.pass(1min);
  for (int i = 0; i < 10'000; ++i) {
    JobSpec spec = job_of(1 + i % 400, 400, cpus(1, int64_t{1'000'000} * (i % 1000)));
    spec.owner = "owner-" + std::to_string(i);
    history.submit(spec);
  }
  Head state(history.state);
  timed("10,000 owners, 1,000 sizes, 100 nodes", state, {}, history.now);
  timed("again, nothing new", state, {}, history.now);
  timed("starvation", state, {}, later(history.now, 660s));
  EXPECT_FALSE(state.active.empty());
}

TEST(Scale, ALongQueueTakesSeveralTurnsAndLosesNobody) {
  History history;
  history.configure({node_type("n", cpus(8), 1000, 1000)});
  history.nodes_up("n", 1000);
  history.pass(1min);
  std::vector<Event> happened;
  for (int i = 0; i < 50'000; ++i) {
    JobSpec spec = job_of(1, 1);
    spec.owner = "owner-" + std::to_string(i % 10'000);
    happened.emplace_back(JobSubmitted{JobId{fmt::format("j-{:08}", i)}, std::move(spec), "", ""});
  }
  Head state(history.state);
  timed("50,000 jobs of 10,000 owners at once", state, std::move(happened), history.now);
  EXPECT_EQ(state.active.size(), 8'000u) << "the room is used up";
  EXPECT_EQ(state.queued.size(), 42'000u);
  for (const JobId& id : state.queued) ASSERT_NE(state.jobs.at(id).decided, 0u) << id.value << " has no reason";
  EXPECT_EQ(timed("again, nothing new", state, {}, history.now), 0u);
}

}  // namespace
}  // namespace rubato::reconcile
