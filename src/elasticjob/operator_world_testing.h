// For tests: operators, a Kubernetes cluster and its faults in virtual time. The operators are the real ones; the API
// server (api_server_testing.h), the scheduler, kubelets, the garbage collector and the launchers in pods are played.
//
// A launcher: the pod that is told to host opens a group when it starts; any other joins the one that is there, or
// waits. AdaptDL's workers form the group that they are told of. After each event the rules of broken_rule() must hold.
#pragma once

#include <optional>

#include "elasticjob/api_server_testing.h"
#include "elasticjob/controller.h"
#include "elasticjob/manifest.h"
#include "kubernetes/leader.h"

namespace rubato::elasticjob {

using nlohmann::json;

// Chances a second, of each pod or of the whole cluster.
struct ClusterFaults {
  double worker_fails = 0;
  double pod_evicted = 0;
  double pod_deleted = 0;  // by a person
  double node_lost = 0;    // its pods run on, and nobody hears of them
  double node_dies = 0;    // its pods are gone, and nobody hears of that
  double operator_killed = 0;
  double operator_frozen = 0;
  double job_changed = 0;  // scaled, suspended, resumed
  double history_forgotten = 0;
  double node_noticed = 0;  // a taint says that it will be taken away; it is, or it stays
  // Of each pod that is asked to go: as from 1.27 on it is Failed or Succeeded first, and something (a finalizer) keeps
  // its object for a while.
  double pod_kept = 0;
};

inline Task<bool> as_true(Task<void> task) {
  co_await std::move(task);
  co_return true;
}

inline std::unique_ptr<kubernetes::Access> api_access(World& world) {
  kubernetes::ChosenContext chosen;
  chosen.cluster.server = "http://api:80";
  return std::make_unique<kubernetes::Access>(world, chosen, std::map<std::string, std::string>{});
}

// As `rubato operator --leader-elect`.
inline Task<int> operator_main(sim::SimProgram& self, ApiServer& server, std::string name, Log log,
                               const std::vector<Kind>& kinds) {
  World& given = self.world();
  ApiNetwork network(server, given.clock.loop(), given.clock);
  World world{given.clock, network, given.processes, given.files, given.console, given.random, given.machine};
  kubernetes::Client client(world, api_access(world));
  kubernetes::Client lease_client(world, api_access(world));
  const ObjectName lease{"ops", "rubato-operator"};
  kubernetes::Leader leader(lease_client, lease, name, log);
  Task<void> acquiring = leader.acquire();
  co_await std::move(acquiring);
  client.guard_writes([&leader] { return leader.holds(); });
  ControllerSettings settings;
  settings.kinds = kinds;
  Controller controller(client, std::move(settings), log);
  Task<bool> running = as_true(controller.run());
  Task<bool> leading = as_true(leader.keep());
  Task<std::variant<bool, bool>> racing = race(world.clock.loop(), std::move(running), std::move(leading));
  co_await std::move(racing);
  co_return 1;
}

class OperatorWorld {
 public:
  using Key = ApiServer::Key;

  // `sink`: of the operators' log.
  OperatorWorld(uint64_t seed, int operators, Log::Sink sink = {})
      : simulation(seed, 1 + operators), server(simulation, seed * 7919 + 1), random_(seed * 104729 + 3) {
    if (sink) log_ = Log(std::move(sink), [this] { return simulation.machine(1).clock().wall(); });
    for (int i = 0; i < kNodes; ++i) nodes_.push_back({fmt::format("n{}", i), true, false, {}, {}});
    for (int i = 0; i < kNodes; ++i) server.put({"nodes", "", nodes_[static_cast<size_t>(i)].name}, json::object());
    simulation.simulator.after_each_event([this] { check(); });
    for (int i = 0; i < operators; ++i) start_operator(i);
    tick();
  }
  // Programs go before the server that they talk to.
  ~OperatorWorld() {
    for (sim::SimProgram* program : operators_) program->kill();
  }

  sim::Simulation simulation;
  ApiServer server;
  ClusterFaults faults;
  std::vector<Kind> kinds{Kind::kElasticJob, Kind::kAdaptdlJob};

  // `work_s`: seconds that a group must train.
  Key add_job(const std::string& name, Kind kind, int least, int most, int backoff_limit, double work_s) {
    const kubernetes::Resource& resource = resource_of(kind);
    const Key key{resource.plural + "." + resource.group, "ml", name};
    json container = {{"name", "trainer"}, {"image", "i"}, {"command", {"python", "train.py"}}};
    json job = {{"spec",
                 {{"minReplicas", least},
                  {"maxReplicas", most},
                  {"template", {{"spec", {{"containers", json::array({std::move(container)})}}}}}}}};
    if (kind == Kind::kElasticJob) job["spec"]["backoffLimit"] = backoff_limit;
    if (kind == Kind::kTorchElasticJob) {
      job["metadata"]["annotations"][kAnnotationLauncher] = "rubato";
      job["spec"]["replicaSpecs"]["Worker"] = {{"replicas", most}, {"template", job["spec"]["template"]}};
    }
    server.put(key, std::move(job));
    Truth& truth = truths_[uid_of(*server.find(key))];
    truth.key = key;
    truth.kind = kind;
    truth.work_s = work_s;
    truth.least = least;
    truth.most = most;
    truth.backoff_limit = kind == Kind::kElasticJob ? backoff_limit : 0;
    return key;
  }
  // A pod that runs.
  void evict(const Key& key) {
    processes_.erase(uid_of(*server.find(key)));
    changed_ = true;
    set_phase(key, "Failed", {{"reason", "Evicted"}, {"containerStatuses", json()}});
  }
  void delete_job(const Key& key) { server.erase(key); }

  // No faults any more: everybody gets well.
  void calm_down() {
    faults = {};
    server.faults = {};
    for (Node& node : nodes_) {
      bring_back(node);
      notice(node, false);
    }
    for (const auto& [uid, truth] : truths_) suspend(truth.key, truth.kind, false);
    for (int i = 0; i < static_cast<int>(operators_.size()); ++i) thaw(i);
  }

  bool all_ended() const {
    for (const auto& [uid, truth] : truths_) {
      const auto found = server.objects().find(truth.key);
      if (found != server.objects().end() && uid_of(found->second) == uid && !is_final(phase_of(found->second)))
        return false;
    }
    return true;
  }
  Phase phase(const Key& key) { return phase_of(*server.find(key)); }
  std::string story() const {
    std::string out;
    for (const auto& [key, object] : server.objects()) {
      if (key.collection == "nodes" || key.collection == "services") continue;
      out += fmt::format("{}/{}: deleting {} status {} annotations {}\n", key.collection, key.name,
                         object["metadata"].contains("deletionTimestamp"), object.value("status", json()).dump(),
                         object["metadata"].value("annotations", json()).dump());
    }
    for (const auto& [uid, process] : processes_) {
      out += fmt::format("process {} of {} on {} group '{}' rank {}\n", uid, process.job, process.node, process.group,
                         process.index);
    }
    return out;
  }
  // What should not be there at the end: pods, and services of jobs that are gone.
  std::vector<std::string> leaked() const {
    std::vector<std::string> out;
    for (const auto& [key, object] : server.objects()) {
      if (key.collection == "services") {
        const json& owners = kubernetes::list_in(object["metadata"], "ownerReferences");
        const auto owner = truths_.find(owners.empty() ? "" : kubernetes::text_in(owners[0], "uid"));
        if (owner == truths_.end() || !server.objects().contains(owner->second.key))
          out.push_back("service " + key.name);
      }
      if (key.collection != "pods") continue;
      const Pod pod = read_pod(object);
      const auto truth = truths_.find(pod.owner_uid);
      const bool orphan = truth == truths_.end() || !server.objects().contains(truth->second.key);
      if (orphan || !pod.ended()) out.push_back(key.name);
    }
    for (const auto& [uid, process] : processes_) out.push_back("process " + uid);
    return out;
  }

  std::optional<std::string> broken;  // the first rule that did not hold

 private:
  static constexpr int kNodes = 4;
  static constexpr size_t kPodsOfANode = 6;
  static constexpr Duration kTick = 500ms;

  struct Node {
    std::string name;
    bool heard = true, noticed = false;
    Instant lost_at{};
    Instant back_at{};
  };
  struct Process {
    std::string job;  // uid
    std::string node;
    std::string group;  // that it trains in; empty: it waits for one
    int index = 0, attempt = 0;
    bool is_host = false, is_rigid = false;
    int group_size = 0;
  };
  struct Truth {
    Key key;
    Kind kind = Kind::kElasticJob;
    double work_s = 0, worked_s = 0;
    int least = 1, most = 1, backoff_limit = 0;
    std::set<int> failed_attempts;  // of pods that failed by themselves
    int failures = 0;               // as the status had it last
    bool done() const { return worked_s >= work_s; }
  };

  static std::string uid_of(const json& object) { return kubernetes::text_in(object["metadata"], "uid"); }
  static Phase phase_of(const json& job) {
    return parse_phase(kubernetes::text_in(kubernetes::object_in(job, "status"), "phase")).value_or(Phase::kPending);
  }
  Instant now() const { return simulation.simulator.now(); }
  bool draw(double per_second) { return random_.chance(per_second * to_seconds(kTick)); }
  void mark(std::string_view name) { simulation.simulator.mark(name); }

  // ---- Operators: a Deployment starts them again ----

  void start_operator(int number) {
    sim::SimMachine& machine = simulation.machine(2 + number);
    if (static_cast<size_t>(number) >= operators_.size()) operators_.resize(static_cast<size_t>(number) + 1);
    const std::string name = fmt::format("operator{}-{}", number, ++starts_);
    ApiServer& api = server;
    OperatorWorld& world = *this;
    operators_[static_cast<size_t>(number)] = &machine.start(name, [&api, &world, name](sim::SimProgram& self) {
      return operator_main(self, api, name, world.log_, world.kinds);
    });
  }
  void thaw(int number) {
    sim::SimMachine& machine = simulation.machine(2 + number);
    if (machine.frozen()) machine.thaw();
  }
  void tick_operators() {
    for (size_t i = 0; i < operators_.size(); ++i) {
      const int number = static_cast<int>(i);
      if (simulation.machine(2 + number).frozen()) continue;
      if (draw(faults.operator_killed)) {
        mark("operator.killed");
        operators_[i]->kill();
      }
      if (draw(faults.operator_frozen)) {
        mark("operator.frozen");
        simulation.machine(2 + number).freeze();
        simulation.simulator.at(now() + seconds(40 * random_.unit()), [this, number] { thaw(number); });
        continue;
      }
      if (!operators_[i]->running() && random_.chance(0.2)) start_operator(number);
    }
  }

  // ---- People ----

  void suspend(const Key& key, Kind kind, bool value) {
    const json* job = server.find(key);
    if (job == nullptr || kind != Kind::kElasticJob) return;
    json changed = *job;
    changed["spec"]["suspend"] = value;
    server.put(key, std::move(changed));
  }
  void tick_people() {
    if (draw(faults.history_forgotten)) server.compact();
    for (auto& [uid, truth] : truths_) {
      const json* job = server.find(truth.key);
      if (job == nullptr || !draw(faults.job_changed)) continue;
      if (truth.kind == Kind::kElasticJob && random_.chance(0.3)) {
        mark("job.suspended");
        const bool was = kubernetes::bool_in((*job)["spec"], "suspend");
        suspend(truth.key, truth.kind, !was);
        continue;
      }
      mark("job.scaled");
      const int size =
          truth.least + static_cast<int>(random_.below(static_cast<uint64_t>(truth.most - truth.least) + 1));
      json changed = *job;
      if (truth.kind == Kind::kElasticJob) {
        changed["spec"]["replicas"] = size;
      } else {
        changed["metadata"]["annotations"][kAnnotationReplicas] = std::to_string(size);
      }
      server.put(truth.key, std::move(changed));
    }
  }

  // ---- Nodes ----

  Node* node_of(const std::string& name) {
    for (Node& node : nodes_) {
      if (node.name == name) return &node;
    }
    return nullptr;
  }
  size_t pods_on(const std::string& name) const {
    size_t out = 0;
    for (const auto& [key, object] : server.objects()) {
      if (key.collection != "pods") continue;
      const std::string phase = kubernetes::text_in(kubernetes::object_in(object, "status"), "phase");
      if (phase == "Succeeded" || phase == "Failed") continue;
      out += kubernetes::text_in(kubernetes::object_in(object, "spec"), "nodeName") == name ? 1 : 0;
    }
    return out;
  }
  void bring_back(Node& node) { node.heard = true; }
  void notice(Node& node, bool noticed) {
    if (noticed) mark("node.noticed");
    node.noticed = noticed;
    json taints = json::array();
    if (noticed) taints.push_back({{"key", "ToBeDeletedByClusterAutoscaler"}, {"effect", "NoSchedule"}});
    json object = *server.find({"nodes", "", node.name});
    object["spec"] = {{"taints", std::move(taints)}};
    server.put({"nodes", "", node.name}, std::move(object));
  }
  void tick_nodes() {
    for (Node& node : nodes_) {
      const bool dies = draw(faults.node_dies);
      if (node.heard && (dies || draw(faults.node_lost))) {
        mark(dies ? "node.died" : "node.lost");
        node.heard = false;
        node.lost_at = now();
        node.back_at = now() + seconds(20 + 400 * random_.unit());
        if (dies) {
          std::erase_if(processes_, [&](const auto& one) { return one.second.node == node.name; });
          changed_ = true;
        }
      }
      if (draw(faults.node_noticed)) notice(node, !node.noticed);
      if (!node.heard && now() >= node.back_at) bring_back(node);
      if (!node.heard && now() - node.lost_at > 60s) {
        // The node controller: not ready, then the taint that evicts.
        for (const Key& key : pods()) {
          json* pod = server.find(key);
          if (kubernetes::text_in(kubernetes::object_in(*pod, "spec"), "nodeName") == node.name)
            server.request_end(key);
        }
      }
    }
  }

  // ---- Pods ----

  std::vector<Key> pods() const {
    std::vector<Key> out;
    for (const auto& [key, object] : server.objects()) {
      if (key.collection == "pods") out.push_back(key);
    }
    return out;
  }

  void set_phase(const Key& key, const char* phase, json more = json::object()) {
    json pod = *server.find(key);
    pod["status"]["phase"] = phase;
    pod["status"].merge_patch(more);
    server.put(key, std::move(pod));
  }
  static json condition(const char* type, bool is_true, const char* reason = "") {
    return {{"type", type}, {"status", is_true ? "True" : "False"}, {"reason", reason}};
  }

  void schedule(const Key& key) {
    std::vector<Node*> free;
    for (Node& node : nodes_) {
      if (node.heard && !node.noticed && pods_on(node.name) < kPodsOfANode) free.push_back(&node);
    }
    json pod = *server.find(key);
    if (free.empty()) {
      mark("pod.unschedulable");
      pod["status"]["conditions"] = json::array({condition("PodScheduled", false, "Unschedulable")});
    } else {
      pod["spec"]["nodeName"] = free[random_.below(free.size())]->name;
      pod["status"].erase("conditions");
    }
    server.put(key, std::move(pod));
  }

  void start_process(const Key& key, const Pod& pod) {
    Process process;
    process.job = pod.owner_uid;
    process.node = pod.node;
    process.index = pod.index;
    process.attempt = pod.attempt;
    process.is_rigid = pod.group_size > 0;
    process.group_size = pod.group_size;
    process.is_host = pod.is_host;
    if (process.is_rigid) process.group = std::to_string(pod.group);
    if (!process.is_rigid && pod.is_host) process.group = pod.uid;
    processes_[pod.uid] = process;
    changed_ = true;
    const json state = {{"running", {{"startedAt", server.stamp()}}}};
    set_phase(key, "Running", {{"containerStatuses", json::array({{{"name", "trainer"}, {"state", state}}})}});
  }

  void end_process(const Key& key, const std::string& uid, int code) {
    processes_.erase(uid);
    changed_ = true;
    const json pod = *server.find(key);
    json state = {{"terminated",
                   {{"exitCode", code},
                    {"reason", code == 0 ? "Completed" : "Error"},
                    {"startedAt", pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]},
                    {"finishedAt", server.stamp()}}}};
    set_phase(key, code == 0 ? "Succeeded" : "Failed",
              {{"conditions", json::array({condition("Ready", false)})},
               {"containerStatuses", json::array({{{"name", "trainer"}, {"state", std::move(state)}}})}});
  }

  // Whoever waits for a group joins the one that is there.
  void join(const Key& key, const std::string& uid) {
    Process& process = processes_.at(uid);
    if (process.group.empty()) {
      for (const auto& [other, one] : processes_) {
        if (one.job == process.job && !one.group.empty()) process.group = one.group;
      }
      changed_ = true;
    }
    const json* pod = server.find(key);
    const bool ready = read_pod(*pod).ready;
    if (!process.group.empty() && !ready)
      set_phase(key, "Running", {{"conditions", json::array({condition("Ready", true)})}});
  }

  void tick_running(const Key& key, const Pod& pod) {
    const auto found = processes_.find(pod.uid);
    if (found == processes_.end()) {
      // Its machine was off: the kubelet finds no container of it.
      if (pod.deleting) return server.erase(key);
      set_phase(key, "Failed", {{"containerStatuses", json()}, {"reason", "NodeLost"}});
      return;
    }
    const Process process = found->second;
    Truth* truth = truths_.contains(process.job) ? &truths_.at(process.job) : nullptr;
    if (pod.deleting) {
      if (!random_.chance(0.3)) return;
      if (random_.chance(faults.pod_kept)) {
        mark("pod.kept");
        return end_process(key, pod.uid, random_.chance(0.5) ? 143 : random_.chance(0.5) ? 0 : 1);
      }
      processes_.erase(found);
      changed_ = true;
      server.erase(key);
      return;
    }
    if (truth != nullptr && truth->done() && !process.group.empty() && random_.chance(0.4))
      return end_process(key, pod.uid, 0);
    if (draw(faults.worker_fails)) {
      mark("worker.failed");
      if (truth != nullptr) truth->failed_attempts.insert(process.attempt);
      return end_process(key, pod.uid, random_.chance(0.2) ? 137 : 1);
    }
    if (draw(faults.pod_evicted)) {
      mark("pod.evicted");
      return evict(key);
    }
    join(key, pod.uid);
  }

  void tick_pod(const Key& key) {
    const json* object = server.find(key);
    if (object == nullptr) return;
    const Pod pod = read_pod(*object);
    if (draw(faults.pod_deleted)) {
      mark("pod.deleted");
      return server.request_end(key);
    }
    if (pod.node.empty()) {
      if (random_.chance(0.4)) schedule(key);
      return;
    }
    const Node* node = node_of(pod.node);
    if (pod.ended() && pod.deleting && random_.chance(0.1)) return server.erase(key);
    if (!node->heard || pod.ended()) return;
    if (pod.phase != PodPhase::kPending) return tick_running(key, pod);
    if (pod.deleting) return server.erase(key);
    if (random_.chance(0.3)) start_process(key, pod);
  }

  // A group trains when there are enough of it.
  void train() {
    for (auto& [uid, truth] : truths_) {
      int members = 0, needed = truth.least;
      for (const auto& [pod, process] : processes_) {
        if (process.job != uid || process.group.empty()) continue;
        ++members;
        if (process.is_rigid) needed = process.group_size;
      }
      if (members >= needed && members > 0) truth.worked_s += to_seconds(kTick);
    }
  }

  void tick() {
    tick_operators();
    tick_people();
    tick_nodes();
    for (const Key& key : pods()) tick_pod(key);
    if (random_.chance(0.2)) server.collect_garbage();
    train();
    simulation.simulator.at(now() + kTick, [this] { tick(); });
  }

  // ---- The rules ----

  void fail(std::string rule) {
    if (!broken) broken = fmt::format("at {}: {}\n{}", format_duration(now() - Instant{}), rule, story());
  }

  void check() {
    if (changed_) check_groups();
    changed_ = false;
    if (server.version() != checked_version_) check_jobs();
    checked_version_ = server.version();
  }
  void check_groups() {
    std::map<std::string, std::string> groups;
    for (const auto& [uid, process] : processes_) {
      if (process.group.empty()) continue;
      const auto [it, is_new] = groups.emplace(process.job, process.group);
      if (!is_new && it->second != process.group)
        fail(fmt::format("two groups of one job: {} and {}", it->second, process.group));
    }
  }
  void check_jobs() {
    for (auto& [uid, truth] : truths_) {
      const json* job = server.find(truth.key);
      if (job == nullptr || uid_of(*job) != uid) continue;
      const Status status = read_job(truth.kind, *job).status;
      const auto counted = static_cast<int>(truth.failed_attempts.size());
      if (status.failures > counted)
        fail(fmt::format("{}: {} failures in the status, {} there were", truth.key.name, status.failures, counted));
      if (status.failures < truth.failures) fail(truth.key.name + ": failures were forgotten");
      truth.failures = status.failures;
      if (status.phase == Phase::kSucceeded && !truth.done())
        fail(truth.key.name + ": Succeeded, and its work is not done");
      if (status.phase == Phase::kFailed && status.failures <= truth.backoff_limit)
        fail(fmt::format("{}: Failed with {} failures of {}", truth.key.name, status.failures, truth.backoff_limit));
    }
  }

  Random random_;
  Log log_;
  std::vector<Node> nodes_;
  std::vector<sim::SimProgram*> operators_;
  int starts_ = 0;
  std::map<std::string, Process> processes_;  // by the pod's uid
  std::map<std::string, Truth> truths_;       // by the job's uid
  bool changed_ = false;
  uint64_t checked_version_ = 0;
};

}  // namespace rubato::elasticjob
