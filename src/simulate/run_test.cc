#include "simulate/run.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "simulate/past.h"
#include "simulate/report.h"

namespace rubato::simulate {
namespace {

std::string no_file(const std::string& path) { throw Error(ErrorCode::kUsage, "no file " + path); }

Scenario scenario(const std::string& more) {
  return read_scenario(R"(duration: 10min
cluster:
  cluster_name: c
  provider: {type: local}
  max_workers: 3
  idle_timeout_minutes: 1
  available_node_types:
    small: {resources: {CPU: 2}, min_workers: 0, max_workers: 3}
cloud: {boot: 5s, prices: {small: 3.6}}
)" + more,
                       "s.yaml", no_file);
}

Outcome play(const Scenario& scenario, uint64_t seed) {
  const Plan plan;
  Run run(scenario, plan, seed);
  return run.play();
}

constexpr const char* kJobs =
    "workload:\n  - {every: 2min, until: 9min, workers: 1:4, work: 2min, crashes_per_worker_hour: 10, max_restarts: "
    "50}\n";
constexpr const char* kFaults =
    "faults:\n  agent_crash: {every: 2min}\n  head_crash: {every: 3min}\n  node_crash: {every: 3min}\n";

TEST(Run, TheSameSeedGivesTheSameRun) {
  for (const char* agents : {"agents: real\n", "agents: light\n"}) {
    const Scenario played = scenario(std::string(agents) + kJobs + kFaults);
    const Outcome one = play(played, 3), same = play(played, 3), other = play(played, 4);
    EXPECT_EQ(one.broken, std::vector<std::string>{}) << agents;
    EXPECT_EQ(one.hash, same.hash);
    EXPECT_EQ(one.marks, same.marks);
    EXPECT_NE(one.hash, other.hash);
    EXPECT_EQ(one.submitted, 5u);
    EXPECT_EQ(one.succeeded, 5u);
  }
}

TEST(Run, NodesComeForJobsAndGoWhenIdle) {
  const Outcome outcome = play(scenario("workload:\n  - {every: 1h, workers: 2, work: 2min}\n"), 1);
  EXPECT_EQ(outcome.broken, std::vector<std::string>{});
  EXPECT_EQ(outcome.succeeded, 1u);
  EXPECT_EQ(outcome.launched, 1u);  // two workers fit on one node
  EXPECT_EQ(outcome.removed, 1u);
  EXPECT_EQ(outcome.checks.at("idle nodes go"), 1u);
  // It boots 5 s, the job takes a minute with two workers, and it idles for another.
  EXPECT_NEAR(outcome.node_hours, 127.0 / 3600, 20.0 / 3600);
  EXPECT_NEAR(outcome.cost, 3.6 * outcome.node_hours, 0.01);
}

TEST(Run, ANodeTypeOfAHigherPriorityIsTakenThoughItCostsMore) {
  const auto types_used = [](const std::string& priority) {
    const Scenario played = read_scenario(R"(duration: 5min
cluster:
  cluster_name: c
  provider: {type: external, command: [cloud]}
  autoscaling: {max_workers: 3}
  head_type: boss
  node_types:
    boss: {resources: {CPU: 1}, max_workers: 0}
    cheap: {resources: {CPU: 2}, max_workers: 3, price_per_hour: 1}
    dear: {resources: {CPU: 2}, max_workers: 3, price_per_hour: 2)" +
                                              priority +
                                              R"(}
cloud: {boot: 5s}
workload:
  - {every: 1h, resources: {CPU: 2}, work: 2min}
)",
                                          "s.yaml", no_file);
    std::set<std::string> used;
    for (const Sample& sample : play(played, 1).samples) {
      for (const auto& [type, count] : sample.nodes) used.insert(type);
    }
    used.erase("boss");
    return used;
  };
  EXPECT_EQ(types_used(""), (std::set<std::string>{"cheap"}));
  EXPECT_EQ(types_used(", priority: 1"), (std::set<std::string>{"dear"}));
}

TEST(Run, WorkGoesOnFromTheLastCheckpoint) {
  // One node, which dies after two minutes: the job has saved once a minute.
  Scenario played =
      scenario("workload:\n  - {every: 1h, work: 5min, checkpoint_every: 1min}\nfaults: {node_crash: {at: 150s}}\n");
  const Outcome outcome = play(played, 1);
  EXPECT_EQ(outcome.succeeded, 1u);
  EXPECT_EQ(outcome.restarts, 1u);
  EXPECT_GT(outcome.lost_s, 1);
  EXPECT_LT(outcome.lost_s, 60);
  EXPECT_NEAR(outcome.trained_s, 300 + outcome.lost_s, 1);
}

// Alone in a cluster with room for six workers.
Outcome play_adaptive(const std::string& exchange) {
  return play(scenario("workload:\n  - {every: 1h, workers: 1:6, work: 30min, adaptive: {step: 200ms, exchange: " +
                       exchange + ", max_batch: 1024, error: 0}}\n"),
              1);
}

TEST(Run, AJobThatTellsHowWellItTrainsIsSizedByIt) {
  const Outcome wide = play_adaptive("1ms"), narrow = play_adaptive("10s");
  for (const Outcome& outcome : {wide, narrow}) {
    EXPECT_EQ(outcome.broken, std::vector<std::string>{});
    EXPECT_EQ(outcome.succeeded, 1u);
    EXPECT_GT(outcome.marks.at("adaptive.told"), 0u);
    EXPECT_GT(outcome.decisions.at("job-sized"), 0u);
    EXPECT_GT(outcome.checks.at("an adaptive job's size is one that it can have"), 0u);
  }
  const auto most_workers = [](const Outcome& outcome) {
    int most = 0;  // at the end of its life
    for (const Sample& sample : outcome.samples) most = sample.workers > 0 ? sample.workers : most;
    return most;
  };
  EXPECT_GT(most_workers(wide), 2);
  EXPECT_EQ(most_workers(narrow), 1) << "more workers would only wait for each other";
}

TEST(Run, WorkThatIsDoneAgainIsCountedByItsCause) {
  const std::string job = "workload:\n  - {every: 1h, work: 5min, checkpoint_every: 1min, max_restarts: 100";
  const auto causes = [](const Outcome& outcome) {
    std::set<std::string> out;
    double sum = 0;
    for (const auto& [cause, lost_s] : outcome.lost_by) {
      out.insert(cause);
      sum += lost_s;
    }
    EXPECT_NEAR(sum, outcome.lost_s, 1e-6);
    return out;
  };
  const auto taken = [&](const std::string& notice, const std::string& ends_within) {
    return causes(play(scenario(job + ", ends_within: " + ends_within +
                                "}\nfaults: {spot_reclaim: {at: 150s, notice: " + notice + "}}\n"),
                       1));
  };
  EXPECT_EQ(taken("2min", "1s"), std::set<std::string>{}) << "it has saved";
  EXPECT_EQ(taken("0s", "1s"), std::set<std::string>{"reclaimed without notice"});
  EXPECT_EQ(taken("10s", "1min"), std::set<std::string>{"reclaimed before they had saved"});
  EXPECT_EQ(causes(play(scenario(job + "}\nfaults: {node_crash: {at: 150s}}\n"), 1)),
            std::set<std::string>{"machines crashed"});
  EXPECT_TRUE(causes(play(scenario(job + ", crashes_per_worker_hour: 60}\n"), 1)).contains("workers crashed"));
}

TEST(Run, SaysWhatCannotBeServed) {
  // A quota of the cloud below what the job needs: it never fits, which is not the head's fault.
  Scenario played = scenario("workload:\n  - {every: 1h, workers: 6, work: 1min}\n");
  played.cloud.quota["small"] = 1;
  const Outcome outcome = play(played, 1);
  EXPECT_EQ(outcome.broken, std::vector<std::string>{});
  EXPECT_EQ(outcome.infeasible, 1u);
  EXPECT_GT(outcome.marks.at("cloud.quota"), 0u);
}

TEST(Run, AMachineThatNeverComesIsFoundOut) {
  // Every boot fails, for ever: demand that could be served is not. The watch must not look away.
  Scenario played =
      scenario("workload:\n  - {every: 1h, work: 1min}\nfaults: {boot_failure: {chance: 1}, until: 100h}\n");
  played.cloud.boot = Span{200h, 200h};  // also after the faults have stopped
  played.patience = 10min;
  const Outcome outcome = play(played, 1);
  ASSERT_FALSE(outcome.broken.empty());
  EXPECT_NE(outcome.broken.front().find("waits in vain"), std::string::npos) << outcome.broken.front();
}

TEST(Past, ReplaysAJournalAndChangesIt) {
  const Scenario played = scenario("workload:\n  - {every: 30s, until: 5min, workers: 2, work: 4min}\n");
  const Plan plan;
  simulate::Run run(played, plan, 1);  // inside a test, Run is googletest's
  const Outcome was = run.play();
  std::vector<JournalRecord> records;
  for (const auto& [offset, bytes] : run.journal().records()) records.push_back({offset, bytes});
  const Past past = read_past(nullptr, records, "journal");
  EXPECT_EQ(past.measured.submitted, was.submitted);
  EXPECT_EQ(past.measured.succeeded, was.succeeded);
  EXPECT_NEAR(past.measured.jct_s.mean, was.jct_s.mean, 1);
  simulate::Run again(past.scenario, past.plan, 1);
  const Outcome same = again.play();
  EXPECT_EQ(same.succeeded, was.succeeded);
  EXPECT_NEAR(same.jct_s.mean, was.jct_s.mean, 0.2 * was.jct_s.mean);

  const Past fewer = changed_past(past, {"max_workers=1", "available_node_types.small.max_workers=1"});
  simulate::Run small(fewer.scenario, fewer.plan, 1);
  const Outcome slow = small.play();
  EXPECT_EQ(slow.nodes_most, 1);
  EXPECT_GT(slow.wait_s.mean, same.wait_s.mean);
  EXPECT_THROW(changed_past(past, {"max_wrokers=1"}), Error);
  EXPECT_THROW(changed_past(past, {"available_node_types.smal.max_workers=1"}), Error);
}

TEST(Report, IsWholeAndEscaped) {
  Scenario played = scenario("workload:\n  - {every: 5min, work: 1min}\n");
  played.name = "a <b> & c";
  const Outcome outcome = play(played, 1);
  const std::string page = html_report(outcome);
  EXPECT_EQ(page.find("<b> &"), std::string::npos);
  EXPECT_NE(page.find("a &lt;b&gt; &amp; c"), std::string::npos);
  EXPECT_EQ(page.find("NaN"), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("http://"), page.find("http://www.w3.org"));  // nothing from elsewhere
  EXPECT_EQ(svg_plots(outcome).size(), 6u);
  // One script may run, the page's own, and nothing may be fetched.
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("script-src 'sha256-"), std::string::npos);
}

TEST(Report, ANameCannotLeaveItsPlace) {
  Outcome outcome;
  outcome.scenario = "</script><script>alert(1)</script>";
  outcome.samples.resize(2);
  outcome.samples[1].at = 1min;
  outcome.samples[1].nodes["\"><img src=x onerror=alert(1)>"] = 1;
  outcome.happenings.push_back({1s, "fault", "</td></script><img src=x>\x01"});
  const std::string page = html_report(outcome);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find('\x01'), std::string::npos);
  size_t scripts = 0;
  for (size_t at = page.find("<script"); at != std::string::npos; at = page.find("<script", at + 1)) ++scripts;
  EXPECT_EQ(scripts, 2u);  // the data, and the page's own
}

TEST(Report, APeakIsNeverLost) {
  // One sample of thousands is high: whatever the width, its height is drawn, and the axis reaches it.
  Outcome outcome;
  for (int i = 0; i < 4000; ++i) {
    Sample sample;
    sample.at = i * 10s;
    sample.queued = i == 1237 ? 90 : 1;
    outcome.samples.push_back(sample);
  }
  const auto plots = svg_plots(outcome);
  EXPECT_NE(plots.at(1).second.find("jobs that wait: at most 90, at the end 1"), std::string::npos);
  EXPECT_NE(plots.at(1).second.find(">100</text>"), std::string::npos);
}

TEST(Run, TheFileChangesAndOwnersStopTheirJobs) {
  Scenario played = scenario(
      "workload:\n  - {every: 1min, until: 5min, work: 30min, stopped: {chance: 1, after: 3min}}\n"
      "changes:\n  - {at: 90s, set: max_workers=1}\n  - {at: 6min, set: [max_workers=3, idle_timeout_minutes=2]}\n");
  ASSERT_EQ(played.changes.size(), 2u);
  const Outcome outcome = play(played, 1);
  EXPECT_EQ(outcome.broken, std::vector<std::string>{});
  EXPECT_EQ(outcome.stopped, outcome.submitted);
  EXPECT_EQ(outcome.decisions.at("cluster-configured"), 3u);
  EXPECT_GT(outcome.marks.at("job running -> stopping"), 0u);
  EXPECT_THROW(scenario("changes:\n  - {at: 1min, set: max_wrokers=1}\n"), Error);
  EXPECT_THROW(scenario("changes:\n  - {at: 2min, set: max_workers=1}\n  - {at: 1min, set: max_workers=2}\n"), Error);
}

}  // namespace
}  // namespace rubato::simulate
