#include "reconcile/resize.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reconcile/cluster_testing.h"

namespace rubato::reconcile {
namespace {

// Steps that scale nearly as they should, or hardly: `net` is what an exchange costs beside a computation of 1.
JobProfile profile(double net, int64_t seen = 64) {
  JobProfile out;
  out.init_batch_size = 128;
  out.max_batch_size = 8192;
  out.local_min = 8;
  out.local_max = 256;
  out.max_profiled_replicas = seen;
  out.gradient = JobProfile::Gradient{0.001, 1};
  out.perf = JobProfile::Perf{0.1, 0.01, net, net / 10, net, net / 10, 1};
  return out;
}

struct Adaptive : ::testing::Test {
  Adaptive() {
    history.configure({node_type("n", cpus(4), 4, 8)});
    history.nodes_up("n", 4);
    history.pass(1min);
  }
  // Decides until nothing follows, as a head does; all seats are ready at once.
  void settle() {
    for (int turn = 0; turn < 20; ++turn) {
      for (const JobId& id : history.state.active) {
        const Job& job = history.job(id);
        for (const Seat& seat : job.seats) observed.ready[id][seat.node] = {job.generation, 5000};
      }
      std::vector<Event> gone;
      for (const JobId& id : history.state.active) {
        for (const auto& [node, workers] : history.job(id).leaving) gone.emplace_back(SeatVacated{id, node});
      }
      const Decision decision = decide(history.state, memory, observed, std::move(gone), history.now);
      for (const Record& record : decision.records) told.push_back(record.event);
      history.pass(10s);
    }
  }
  template <class E>
  size_t count() const {
    return static_cast<size_t>(
        std::ranges::count_if(told, [](const Event& event) { return std::holds_alternative<E>(event); }));
  }
  History history;
  PlanMemory memory;
  Observed observed;
  std::vector<Event> told;
};

TEST_F(Adaptive, AJobWithoutAProfileGetsAllThereIs) {
  const JobId job = history.submit(1, 16);
  settle();
  EXPECT_EQ(history.job(job).workers(), 16);
  EXPECT_EQ(count<JobSized>(), 0u);
}

TEST_F(Adaptive, AJobThatDoesNotProfitGivesWorkersBack) {
  const JobId job = history.submit(1, 16);
  settle();
  ASSERT_EQ(history.job(job).workers(), 16);
  history.add(JobProfiled{job, profile(100)});
  settle();
  EXPECT_LT(history.job(job).workers(), 16);
  EXPECT_GE(history.job(job).workers(), 1);
  EXPECT_FALSE(history.job(job).size_reason.empty());
  const size_t placed = count<JobPlaced>();
  settle();
  EXPECT_EQ(count<JobPlaced>(), placed) << "it stays";
}

TEST_F(Adaptive, AJobThatProfitsKeepsWhatItHas) {
  const JobId job = history.submit(1, 16);
  settle();
  history.add(JobProfiled{job, profile(0.001)});
  settle();
  EXPECT_EQ(history.job(job).workers(), 16);
}

TEST_F(Adaptive, RoomGoesToWhoMakesMoreOfIt) {
  const JobId good = history.submit(1, 16), bad = history.submit(1, 16);
  settle();
  ASSERT_EQ(history.job(good).workers() + history.job(bad).workers(), 16);
  history.add(JobProfiled{good, profile(0.001)});
  history.add(JobProfiled{bad, profile(100)});
  settle();
  EXPECT_GT(history.job(good).workers(), history.job(bad).workers());
  EXPECT_GE(history.job(bad).workers(), 1);
}

TEST_F(Adaptive, NobodyIsBelowItsMinimum) {
  const JobId job = history.submit(8, 16);
  settle();
  JobProfile worse = profile(1);
  worse.perf->beta_n = worse.perf->beta_r = 100;  // each further worker makes all the others wait
  worse.max_batch_size = worse.init_batch_size;
  history.add(JobProfiled{job, worse});
  settle();
  EXPECT_EQ(history.job(job).workers(), 8);
}

// A script may tell anything; the head goes on, within what was asked for.
TEST_F(Adaptive, ProfilesWithoutSenseHurtNobody) {
  const JobId job = history.submit(2, 16), other = history.submit(1, 16);
  settle();
  std::vector<JobProfile> odd(7, profile(1));
  odd[0].perf = JobProfile::Perf{};  // nothing takes any time
  odd[1].perf = JobProfile::Perf{1e15, 1e15, 1e15, 1e15, 1e15, 1e15, 1e15};
  odd[2].perf->gamma = 1e15;
  odd[3].init_batch_size = odd[3].max_batch_size = 1e15;
  odd[4].local_min = odd[4].local_max = 1'000'000'000'000'000;
  odd[5].gradient = JobProfile::Gradient{0, 0};
  odd[6].max_profiled_replicas = 1'000'000'000'000'000;
  for (const JobProfile& one : odd) {
    history.add(JobProfiled{job, one});
    settle();
    EXPECT_GE(history.job(job).workers(), 2) << to_json(one).dump();
    EXPECT_LE(history.job(job).workers(), 16);
    EXPECT_GE(history.job(other).workers(), 1);
    EXPECT_EQ(decode_snapshot(encode_snapshot(history.state)).jobs.at(job).profile, one);
  }
}

TEST_F(Adaptive, SizesFollowTheNodes) {
  const JobId job = history.submit(1, 16);
  settle();
  history.add(JobProfiled{job, profile(0.001)});
  settle();
  ASSERT_EQ(history.job(job).workers(), 16);
  history.add(NodeLost{NodeId{"n-4"}, "gone"});
  settle();
  EXPECT_EQ(history.job(job).workers(), 12);
}

TEST_F(Adaptive, MoreThanTwiceWhatWasSeenIsNotAskedFor) {
  const JobId job = history.running(job_of(1, 100), {{"n-1", 2}});
  history.add(JobProfiled{job, profile(0.001, 2)});
  const auto worthwhile = [&] {
    const std::vector<Event> events = resize(history.state, history.now);
    return events.empty() ? history.job(job).worthwhile : std::get<JobSized>(events.front()).worthwhile;
  };
  EXPECT_EQ(worthwhile(), 4);
  history.add(JobProfiled{job, profile(0.001, 50)});
  EXPECT_GT(worthwhile(), 32);
  history.add(JobProfiled{job, profile(100, 50)});
  EXPECT_LT(worthwhile(), 4);
}

int sized_by(const std::vector<Event>& events, const JobId& job, int before) {
  for (const Event& event : events) {
    const auto* sized = std::get_if<JobSized>(&event);
    if (sized && sized->job == job) return sized->workers;
  }
  return before;
}

TEST_F(Adaptive, AJobWithLessLeftComesFirst) {
  const JobId near = history.running(job_of(1, 16), {{"n-1", 4}, {"n-2", 4}});
  const JobId far = history.running(job_of(1, 16), {{"n-3", 4}, {"n-4", 4}});
  JobProfile told = profile(0.001);
  told.done_iters = 10;
  told.total_iters = 20'000'000;
  history.add(JobProfiled{far, told});
  told.total_iters = 200'000;
  history.add(JobProfiled{near, told});
  const std::vector<Event> events = resize(history.state, history.now);
  EXPECT_GT(sized_by(events, near, 8), sized_by(events, far, 8));
}

TEST_F(Adaptive, WeightsAndDeadlinesOfJobsCount) {
  const JobId first = history.running(job_of(1, 16), {{"n-1", 4}, {"n-2", 4}});
  const JobId second = history.running(job_of(1, 16), {{"n-3", 4}, {"n-4", 4}});
  for (const JobId& job : {first, second}) history.add(JobProfiled{job, profile(0.001)});
  history.pass(2h);
  const auto first_gets_more = [&] {
    const std::vector<Event> events = resize(history.state, history.now);
    return sized_by(events, first, 8) > sized_by(events, second, 8);
  };
  JobSpec& spec = history.state.jobs.at(first).spec;
  EXPECT_FALSE(first_gets_more());
  spec.weight = 100;
  EXPECT_TRUE(first_gets_more());
  spec.weight = 1;
  spec.deadline = 2h + 10min;
  EXPECT_TRUE(first_gets_more());
}

TEST_F(Adaptive, WhatAChangeCostsIsMeasured) {
  const JobId job = history.running(job_of(1, 16), {{"n-1", 4}});
  EXPECT_EQ(change_cost_s(history.job(job)), 30) << "nobody has seen it change";
  const auto change = [&](Duration takes) {
    const Job& now = history.job(job);
    JobPlaced placed;
    placed.job = job;
    placed.generation = now.generation + 1;
    placed.seats = now.seats;
    history.add(placed);
    history.pass(takes);
    JobStarted started;
    started.job = job;
    started.generation = placed.generation;
    history.add(started);
  };
  change(4s);
  JobProfile told = profile(0.001);
  told.start_s = 2;
  history.add(JobProfiled{job, told});
  EXPECT_DOUBLE_EQ(change_cost_s(history.job(job)), 6);
  change(2s);
  EXPECT_DOUBLE_EQ(change_cost_s(history.job(job)), 5);
  EXPECT_DOUBLE_EQ(change_cost_s(decode_snapshot(encode_snapshot(history.state)).jobs.at(job)), 5);
}

TEST_F(Adaptive, TimesOfOtherDevicesAreNotTakenForTheseOnes) {
  history.configure({node_type("n", cpus(4), 4, 8), node_type("slow", cpus(4), 0, 8)});
  const JobId job = history.running(job_of(1, 16), {{"n-1", 4}});
  JobProfile told = profile(0.001);
  told.device = "fast device";
  told.perf_by_device["slow device"] = JobProfile::Perf{100, 10, 1, 0.1, 1, 0.1, 1};
  history.add(JobProfiled{job, told});
  EXPECT_EQ(history.state.devices.at("n"), "fast device");
  EXPECT_FALSE(history.state.devices.contains("slow"));
  const State back = decode_snapshot(encode_snapshot(history.state));
  EXPECT_EQ(back.devices, history.state.devices);
}

TEST_F(Adaptive, ThePolicyAndTheUtilityAreTheFiles) {
  const JobId job = history.running(job_of(1, 100), {{"n-1", 4}, {"n-2", 4}});
  history.add(JobProfiled{job, profile(0.3, 50)});
  const auto worthwhile = [&](double least_utility) {
    history.state.spec->adaptive.least_utility = least_utility;
    const std::vector<Event> events = resize(history.state, history.now);
    return std::get<JobSized>(events.front()).worthwhile;
  };
  EXPECT_GT(worthwhile(0.05), worthwhile(0.9));
}

TEST_F(Adaptive, DearerNodesMustGiveMore) {
  const JobId job = history.running(job_of(1, 100), {{"n-1", 4}, {"n-2", 4}});
  history.add(JobProfiled{job, profile(0.3, 50)});
  for (auto& [id, node] : history.state.nodes) node.offering.price_per_hour = 1;
  const auto worthwhile = [&](double price) {
    history.state.spec->types.at("n").offerings = {Offering{"", Market::kOnDemand, price}};
    const std::vector<Event> events = resize(history.state, history.now);
    return std::get<JobSized>(events.front()).worthwhile;
  };
  EXPECT_GT(worthwhile(1), worthwhile(20));
  history.state.spec->scaling.budget_per_hour = 4;
  EXPECT_LE(worthwhile(1), 16) << "four nodes are all that the budget pays";
}

TEST_F(Adaptive, SizesAndProfilesOutliveTheHead) {
  const JobId job = history.submit(1, 16);
  settle();
  history.add(JobProfiled{job, profile(100)});
  settle();
  const State back = decode_snapshot(encode_snapshot(history.state));
  EXPECT_EQ(back.jobs.at(job).profile, history.job(job).profile);
  EXPECT_EQ(back.jobs.at(job).workers_most(), history.job(job).workers_most());
  EXPECT_EQ(back.jobs.at(job).size_reason, history.job(job).size_reason);
}

}  // namespace
}  // namespace rubato::reconcile
