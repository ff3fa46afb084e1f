// The operator in virtual time, seed after seed: RUBATO_SEED replays one, RUBATO_SEEDS plays more of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "elasticjob/deployment.h"
#include "elasticjob/operator_world_testing.h"

namespace rubato::elasticjob {
namespace {

struct Play {
  std::map<std::string, uint64_t, std::less<>> marks;
  uint64_t hash = 0;
  int failed = 0, succeeded = 0;
};

uint64_t number_from(const char* name, uint64_t absent) {
  const char* text = std::getenv(name);
  return text == nullptr ? absent : std::strtoull(text, nullptr, 10);
}

// Half an hour of trouble, then peace: every job must end, nothing may be left.
Play play(uint64_t seed, const ClusterFaults& faults, const ApiFaults& api) {
  Log::Sink sink;
  if (std::getenv("RUBATO_SEED") != nullptr)
    sink = [](LogLevel, std::string_view line) { std::fprintf(stderr, "%s\n", std::string(line).c_str()); };
  OperatorWorld world(seed, 2, std::move(sink));
  Random random(seed);
  world.faults = faults;
  world.server.faults = api;
  const double work_s = 200 + 900 * random.unit();
  world.add_job("steady", Kind::kElasticJob, 2, 3, 1000, work_s);
  world.add_job("wide", Kind::kElasticJob, 1, 5, 1000, work_s);
  world.add_job("fragile", Kind::kElasticJob, 1, 3, 1, work_s);
  world.add_job("rigid", Kind::kAdaptdlJob, 1, 3, 0, work_s / 4);
  const ApiServer::Key doomed = world.add_job("doomed", Kind::kElasticJob, 1, 3, 3, 1e9);
  sim::Simulator& simulator = world.simulation.simulator;
  simulator.at(Instant{} + seconds(900 * random.unit()), [&] { world.delete_job(doomed); });
  simulator.at(Instant{} + 30min, [&] { world.calm_down(); });
  const auto stop = [&] { return world.broken || (simulator.now() > Instant{} + 30min && world.all_ended()); };
  const bool ended = simulator.run_until(stop, Instant{} + 8h);
  EXPECT_TRUE(ended) << "seed " << seed << ": a job neither ends nor gets on\n" << world.story();
  // What is left to clean up.
  if (!world.broken && ended) simulator.run_until([&] { return world.leaked().empty(); }, simulator.now() + 20min);
  EXPECT_EQ(world.broken.value_or(""), "") << "seed " << seed;
  if (!world.broken && ended) {
    EXPECT_EQ(world.leaked(), std::vector<std::string>{}) << "seed " << seed << "\n" << world.story();
  }
  Play out;
  out.marks = simulator.marks();
  out.hash = simulator.hash();
  for (const auto& [key, object] : world.server.objects()) {
    const std::string phase = kubernetes::text_in(kubernetes::object_in(object, "status"), "phase");
    if (key.collection == "pods") continue;
    out.failed += phase == "Failed" ? 1 : 0;
    out.succeeded += phase == "Succeeded" ? 1 : 0;
  }
  return out;
}

ClusterFaults cluster_chaos() {
  ClusterFaults faults;
  faults.worker_fails = 1.0 / 600;
  faults.pod_evicted = 1.0 / 900;
  faults.pod_deleted = 1.0 / 900;
  faults.node_lost = 1.0 / 900;
  faults.node_dies = 1.0 / 1800;
  faults.operator_killed = 1.0 / 60;
  faults.operator_frozen = 1.0 / 240;
  faults.job_changed = 1.0 / 200;
  faults.history_forgotten = 1.0 / 60;
  faults.node_noticed = 1.0 / 300;
  faults.pod_kept = 0.3;
  return faults;
}

ApiFaults api_chaos() {
  ApiFaults faults;
  faults.lost = 0.02;
  faults.answer_lost = 0.05;
  faults.throttled = 0.03;
  faults.broken = 0.05;
  faults.refused = 0.1;
  faults.watch_cut = 0.02;
  faults.watch_gone = 0.01;
  faults.watch_refused = 0.1;
  faults.slow = 0.05;
  return faults;
}

void play_seeds(const ClusterFaults& faults, const ApiFaults& api, uint64_t first, uint64_t count,
                const std::vector<std::string>& marks) {
  if (std::getenv("RUBATO_SEED") != nullptr) {
    play(number_from("RUBATO_SEED", 1), faults, api);
    return;
  }
  std::map<std::string, uint64_t, std::less<>> hit;
  int succeeded = 0;
  for (uint64_t seed = first; seed < first + number_from("RUBATO_SEEDS", count) && !testing::Test::HasFailure();
       ++seed) {
    const Play one = play(seed, faults, api);
    for (const auto& [name, times] : one.marks) hit[name] += times;
    succeeded += one.succeeded;
  }
  EXPECT_GT(succeeded, 0);
  for (const std::string& name : marks) EXPECT_GT(hit[name], 0u) << name;
}

bool holds(const json& rule, const char* key, const std::string& value) {
  const json& list = kubernetes::list_in(rule, key);
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool allows(const json& rule, const ApiServer::Call& call) {
  const bool named = !rule.contains("resourceNames") || holds(rule, "resourceNames", call.name);
  return named && holds(rule, "apiGroups", call.group) && holds(rule, "resources", call.resource) &&
         holds(rule, "verbs", call.verb);
}

// What `rubato k8s install` gives an operator, as the API server would apply it.
struct Rights {
  explicit Rights(const DeploymentSettings& settings) {
    for (const nlohmann::ordered_json& object : operator_objects(settings)) {
      if (object.contains("rules")) roles.push_back(json::parse(object.dump()));
    }
  }
  bool allow(const ApiServer::Call& call) const {
    for (const json& role : roles) {
      const bool here = role["kind"] == "ClusterRole" || role["metadata"]["namespace"] == call.namespace_name;
      for (const json& rule : role["rules"]) {
        if (here && allows(rule, call)) return true;
      }
    }
    return false;
  }
  // "VERB RESOURCE.GROUP", each of them.
  std::set<std::string> given() const {
    std::set<std::string> out;
    for (const json& role : roles) {
      for (const json& rule : role["rules"]) {
        for (const json& verb : rule["verbs"]) {
          out.insert(fmt::format("{} {}.{}", verb.get<std::string>(), rule["resources"][0].get<std::string>(),
                                 rule["apiGroups"][0].get<std::string>()));
        }
      }
    }
    return out;
  }
  std::vector<json> roles;
};

// Each request that it makes, in peace and in trouble, against the roles that it is installed with; and the other way.
TEST(OperatorSimulation, HasTheRightsThatItNeedsAndNoOthers) {
  std::set<ApiServer::Call> calls;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    OperatorWorld world(seed, 2);
    if (seed > 1) world.faults = cluster_chaos();
    if (seed > 2) world.server.faults = api_chaos();
    if (seed > 2) world.server.faults.answer_lost = 0.6;
    const ApiServer::Key key = world.add_job("short", Kind::kElasticJob, 1, 3, 1000, 60);
    json job = *world.server.find(key);
    job["spec"]["ttlSecondsAfterFinished"] = 1;
    world.server.put(key, std::move(job));
    world.add_job("rigid", Kind::kAdaptdlJob, 1, 3, 0, 1e9);
    world.faults.worker_fails = 1.0 / 300;
    sim::Simulator& simulator = world.simulation.simulator;
    simulator.at(Instant{} + 10min, [&] { world.calm_down(); });
    const auto stop = [&] { return simulator.now() > Instant{} + 10min && world.server.find(key) == nullptr; };
    EXPECT_TRUE(simulator.run_until(stop, Instant{} + 2h)) << "seed " << seed << "\n" << world.story();
    calls.insert(world.server.calls().begin(), world.server.calls().end());
  }
  DeploymentSettings settings;
  settings.namespace_name = "ops";
  settings.adopted = {Kind::kAdaptdlJob};
  const Rights rights(settings);
  std::set<std::string> unused = rights.given();
  for (const ApiServer::Call& call : calls) {
    EXPECT_TRUE(rights.allow(call)) << call.verb << " " << call.resource << "." << call.group << " in '"
                                    << call.namespace_name << "'";
    unused.erase(fmt::format("{} {}.{}", call.verb, call.resource, call.group));
  }
  // The lease is given back at an orderly end; adaptive jobs keep sizes and hints, the supervisor its key; OpenShift
  // asks for /finalizers; an AdaptDLJob has no time after its end, other adopted kinds have.
  for (const char* other :
       {"patch leases.coordination.k8s.io", "patch elasticjobs.rubato.dev", "create secrets.", "get secrets.",
        "update elasticjobs/finalizers.rubato.dev", "update adaptdljobs/finalizers.adaptdl.petuum.com",
        "delete adaptdljobs.adaptdl.petuum.com"})
    EXPECT_EQ(unused.erase(other), 1u) << other;
  EXPECT_EQ(unused, std::set<std::string>{});
}

TEST(OperatorSimulation, APeacefulClusterEndsItsJobs) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Play one = play(seed, {}, {});
    EXPECT_EQ(one.succeeded, 4) << "seed " << seed;
  }
}

TEST(OperatorSimulation, AServiceThatSomebodyDeletesIsThereForTheNextPod) {
  OperatorWorld world(1, 1);
  const ApiServer::Key job = world.add_job("ours", Kind::kElasticJob, 1, 2, 3, 1e9);
  const ApiServer::Key service{"services", "ml", "ours-workers"}, pod{"pods", "ml", "ours-worker-1"};
  sim::Simulator& simulator = world.simulation.simulator;
  const auto runs = [&] { return world.phase(job) == Phase::kRunning && world.server.find(pod) != nullptr; };
  EXPECT_TRUE(simulator.run_until(runs, Instant{} + 1h)) << world.story();
  const auto is_back = [&] { return world.server.find(service) != nullptr; };
  EXPECT_TRUE(is_back());
  world.server.erase(service);
  world.server.request_end(pod);
  EXPECT_TRUE(simulator.run_until(is_back, simulator.now() + 10min)) << world.story();
}

TEST(OperatorSimulation, AnAdoptedKindThatIsNotServedIsWaitedFor) {
  OperatorWorld world(1, 1);
  world.server.not_served = {"adaptdljobs.adaptdl.petuum.com"};
  const ApiServer::Key ours = world.add_job("ours", Kind::kElasticJob, 1, 2, 3, 30);
  const ApiServer::Key late = world.add_job("late", Kind::kAdaptdlJob, 1, 2, 0, 30);
  sim::Simulator& simulator = world.simulation.simulator;
  const auto is_done = [&](const ApiServer::Key& key) { return world.phase(key) == Phase::kSucceeded; };
  EXPECT_TRUE(simulator.run_until([&] { return is_done(ours); }, Instant{} + 1h)) << world.story();
  world.server.not_served.clear();
  EXPECT_TRUE(simulator.run_until([&] { return is_done(late); }, simulator.now() + 1h)) << world.story();
}

uint64_t calls_of(const OperatorWorld& world, std::initializer_list<const char*> which) {
  uint64_t out = 0;
  for (const char* one : which) {
    const auto found = world.server.counts().find(one);
    out += found == world.server.counts().end() ? 0 : found->second;
  }
  return out;
}

// But for watches, which end and begin, and the leader's lease.
uint64_t calls_for_jobs(const OperatorWorld& world) {
  uint64_t out = 0;
  for (const auto& [call, times] : world.server.counts()) {
    if (!call.starts_with("watch ") && call.find(" leases") == std::string::npos) out += times;
  }
  return out;
}

bool all_ready(const OperatorWorld& world, size_t pods) {
  size_t ready = 0;
  for (const auto& [key, object] : world.server.objects()) ready += key.collection == "pods" && read_pod(object).ready;
  return ready == pods;
}

TEST(OperatorSimulation, ASteadyJobCostsNoCall) {
  OperatorWorld world(1, 2);
  world.add_job("ours", Kind::kElasticJob, 1, 3, 3, 1e9);
  world.add_job("rigid", Kind::kAdaptdlJob, 3, 3, 0, 1e9);
  sim::Simulator& simulator = world.simulation.simulator;
  EXPECT_TRUE(simulator.run_until([&] { return all_ready(world, 6); }, Instant{} + 1h)) << world.story();
  simulator.run_until([] { return false; }, simulator.now() + 5min);
  const uint64_t before = calls_for_jobs(world);
  simulator.run_until([] { return false; }, simulator.now() + 6h);
  EXPECT_EQ(calls_for_jobs(world), before);
}

TEST(OperatorSimulation, ALostPodIsReplacedWhileTheOthersTrainOn) {
  for (const char* how : {"deleted", "evicted"}) {
    OperatorWorld world(1, 1);
    world.add_job("ours", Kind::kElasticJob, 1, 3, 3, 1e9);
    sim::Simulator& simulator = world.simulation.simulator;
    EXPECT_TRUE(simulator.run_until([&] { return all_ready(world, 3); }, Instant{} + 1h)) << world.story();
    const ApiServer::Key lost{"pods", "ml", "ours-worker-0"}, stays{"pods", "ml", "ours-worker-1"};
    const std::string uid = read_pod(*world.server.find(lost)).uid, other = read_pod(*world.server.find(stays)).uid;
    if (std::string(how) == "deleted") {
      world.server.request_end(lost);
    } else {
      world.evict(lost);
    }
    const auto is_back = [&] {
      const json* pod = world.server.find(lost);
      return pod != nullptr && read_pod(*pod).uid != uid && all_ready(world, 3);
    };
    EXPECT_TRUE(simulator.run_until(is_back, simulator.now() + 3min)) << how << "\n" << world.story();
    EXPECT_EQ(read_pod(*world.server.find(stays)).uid, other) << how;
    EXPECT_EQ(world.broken.value_or(""), "");
  }
}

// As torchelastic's own.
TEST(OperatorSimulation, AKindWhoseStatusIsAFieldAsAnyOtherIsRun) {
  OperatorWorld world(1, 1);
  world.kinds = {Kind::kElasticJob, Kind::kTorchElasticJob};
  world.server.no_status = {"elasticjobs.elastic.pytorch.org"};
  const ApiServer::Key key = world.add_job("imagenet", Kind::kTorchElasticJob, 1, 2, 3, 60);
  const auto is_done = [&] {
    for (const Condition& one : read_conditions(kubernetes::object_in(*world.server.find(key), "status"))) {
      if (one.type == "Succeeded" && one.is_true) return true;
    }
    return false;
  };
  EXPECT_TRUE(world.simulation.simulator.run_until(is_done, Instant{} + 1h)) << world.story();
  EXPECT_EQ(world.broken.value_or(""), "");
}

TEST(OperatorSimulation, JobsOfTwoKindsWithOneNameRunOneAfterTheOther) {
  OperatorWorld world(1, 1);
  const ApiServer::Key first = world.add_job("same", Kind::kElasticJob, 1, 2, 3, 1e9);
  sim::Simulator& simulator = world.simulation.simulator;
  EXPECT_TRUE(simulator.run_until([&] { return all_ready(world, 2); }, Instant{} + 1h)) << world.story();
  const ApiServer::Key second = world.add_job("same", Kind::kAdaptdlJob, 2, 2, 0, 1e9);
  simulator.run_until([] { return false; }, simulator.now() + 10min);
  EXPECT_TRUE(all_ready(world, 2)) << world.story();
  world.delete_job(first);
  const auto runs = [&] { return world.phase(second) == Phase::kRunning && all_ready(world, 2); };
  EXPECT_TRUE(simulator.run_until(runs, simulator.now() + 10min)) << world.story();
}

TEST(OperatorSimulation, AJobThatIsStoppedWhileItsPodsAreMadeGetsNoMore) {
  OperatorWorld world(1, 1);
  const ApiServer::Key key = world.add_job("wide", Kind::kElasticJob, 1, 300, 3, 1e9);
  sim::Simulator& simulator = world.simulation.simulator;
  const auto pods = [&] { return calls_of(world, {"create pods"}); };
  EXPECT_TRUE(simulator.run_until([&] { return pods() >= 120; }, Instant{} + 10min));
  json job = *world.server.find(key);
  job["spec"]["suspend"] = true;
  world.server.put(key, std::move(job));
  const uint64_t before = pods();
  simulator.run_until([&] { return world.phase(key) == Phase::kSuspended; }, simulator.now() + 10min);
  EXPECT_LE(pods(), before + 20);
}

// Whose pods are refused is asked about again and again; the others have their turn.
TEST(OperatorSimulation, AThousandJobsWithoutQuotaLeaveRoomForOthers) {
  OperatorWorld world(1, 1);
  world.server.refused = "a-";
  sim::Simulator& simulator = world.simulation.simulator;
  const ApiServer::Key last = world.add_job("z", Kind::kElasticJob, 1, 2, 3, 1e9);
  const json job = *world.server.find(last);
  for (int i = 0; i < 1'000; ++i) {
    json document = {{"spec", job["spec"]}};
    world.server.put({last.collection, "ml", fmt::format("a-{}", i)}, std::move(document));
  }
  EXPECT_TRUE(simulator.run_until([&] { return world.phase(last) == Phase::kRunning; }, Instant{} + 10min));
  simulator.run_until([] { return false; }, Instant{} + 20min);
  const uint64_t before = calls_of(world, {"create pods"});
  const uint64_t told = calls_of(world, {"create events", "patch elasticjobs/status"});
  simulator.run_until([] { return false; }, simulator.now() + 10min);
  const uint64_t asked = calls_of(world, {"create pods"}) - before;
  EXPECT_LE(asked, 10u * 600) << "a second, of 50 calls in all";
  EXPECT_GE(asked, 2'000u) << "each of them has its turns";
  EXPECT_EQ(calls_of(world, {"create events", "patch elasticjobs/status"}), told) << "nothing is told twice";
  world.server.refused = std::nullopt;
}

TEST(OperatorSimulation, TheSameSeedGivesTheSameEvents) {
  EXPECT_EQ(play(7, cluster_chaos(), api_chaos()).marks, play(7, cluster_chaos(), api_chaos()).marks);
}

TEST(OperatorSimulation, AClusterInTroubleKeepsTheRules) {
  play_seeds(cluster_chaos(), {}, 1, 20,
             {"worker.failed", "pod.evicted", "pod.deleted", "node.lost", "node.died", "operator.killed",
              "operator.frozen", "job.scaled", "job.suspended", "node.noticed", "pod.kept"});
}

TEST(OperatorSimulation, AServerInTroubleKeepsTheRules) {
  ClusterFaults faults = cluster_chaos();
  faults.operator_frozen = 0;
  play_seeds(faults, api_chaos(), 1000, 20,
             {"api.lost", "api.answer-lost", "api.throttled", "api.broken", "api.refused", "watch.cut", "watch.gone",
              "watch.refused"});
}

}  // namespace
}  // namespace rubato::elasticjob
