#include "simulate/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "reconcile/autoscale.h"
#include "simulate/fault_plan.h"

namespace rubato::simulate {

using cluster::JobPhase;
using cluster::NodePhase;
using rubato::NodeId;
using sim::SimProgram;

namespace {

constexpr uint16_t kHeadPort = 7000;
constexpr Duration kHeadBack = 2s;  // who watches the head starts it again
constexpr int kSamples = 500;
constexpr Duration kFirstWords = 100ms;  // of the client to the new head
// Light agents do not beat: their machines' connections tell of their death.
constexpr Duration kNoHeartbeat = 24h * 365;
constexpr uint64_t kMeasuring = 0x6d65617375726564;

}  // namespace

Run::Run(const Scenario& scenario, const Plan& plan, uint64_t seed)
    : scenario_(scenario),
      sim_(seed, 1),
      random_(sim_.simulator.random().fork()),
      progress_(random_.fork()),
      groups_(sim_.simulator, progress_),
      agents_(scenario, groups_),
      cloud_(sim_, scenario,
             [this](sim::SimMachine& machine, const provider::NodeOrder& order, Instance& instance) -> SimProgram& {
               return agents_.start(machine, order, instance);
             }),
      journal_(sim_.simulator, sim_.machine(1)),
      watch_(sim_, journal_, cloud_),
      meter_(sim_, cloud_, outcome_),
      losses_(plan.losses),
      text_(scenario.cluster_text),
      measuring_(seed ^ kMeasuring) {
  outcome_.scenario = scenario.name;
  outcome_.seed = seed;
  outcome_.fidelity = to_string(scenario.fidelity);
  outcome_.duration = scenario.duration;
  Random workload = random_.fork();
  jobs_ = draw_jobs(scenario, workload);
  jobs_.insert(jobs_.end(), plan.jobs.begin(), plan.jobs.end());
  std::ranges::stable_sort(jobs_, {}, &PlannedJob::at);
  for (const FileChange& change : scenario.changes) files_.push_back({change.at, change.text});
  files_.insert(files_.end(), plan.files.begin(), plan.files.end());
  journal_.latency_min = scenario.head.commit.from;
  journal_.latency_max = scenario.head.commit.to;
  sim_.workers.behaviour = [this](const SpawnSpec& spec, const sim::WorkerRecord& worker, Random&) {
    return worker_model(spec, worker);
  };
  cloud_.on_notice = [this](Instance& instance, Duration in, bool by_signal) {
    agents_.notice(instance, in, by_signal);
  };
  cloud_.on_remove = [this](const Instance& instance) { watch_.removing(instance, busy(instance)); };
  cloud_.on_change = [this](const Instance& instance, std::string_view what) { meter_.cloud_changed(instance, what); };
  groups_.on_broken = [this](std::string sentence) { watch_.add_broken(std::move(sentence)); };
  groups_.on_mixed = [this](const JobId& job, const NodeId& older) {
    if (!watch_.given_up(older)) watch_.add_broken(fmt::format("{}: two generations run at once", job.value));
  };
  watch_.on_record = [this](const cluster::Record& record) {
    meter_.record(record, watch_.state());
    if (std::holds_alternative<cluster::JobEnded>(record.event)) outcome_.last_end = sim_.now() - Instant{};
  };
  sim_.simulator.after_each_event([this] {
    watch_.check();
    if (sim_.workers.past().size() != credited_) credit_workers();
  });
  faults_ = std::make_unique<FaultPlan>(*this);
}

// Programs go before what they use.
Run::~Run() {
  for (int number = 1; number <= sim_.machines(); ++number) sim_.machine(number).crash();
}

Task<int> Run::head_main(SimProgram& self, Run& run) {
  World& world = self.world();
  int code = 0;
  try {
    const std::unique_ptr<Journal> journal = co_await run.journal_.open(self);
    CloudProvider provider(world.clock, run.cloud_);
    head::HeadSettings settings;
    settings.folder = "/cluster";
    settings.version = "simulated";
    settings.agents = Endpoint{run.sim_.machine(1).address(), kHeadPort};
    const bool light = run.scenario_.fidelity == Fidelity::kLight;
    settings.heartbeat = light ? kNoHeartbeat : run.scenario_.head.heartbeat;
    settings.adoption = run.scenario_.head.adoption;
    const ChannelKey key = cluster_key("head");
    settings.key = key;
    settings.stays_here = true;
    const std::unique_ptr<Listener> listener = world.network.listen(settings.agents, key, run.scenario_.head.heartbeat);
    head::Controller controller(world, *journal, provider, settings, run.metrics_, Log());
    co_await controller.recover();
    run.controller_ = &controller;
    co_await controller.run(*listener);
  } catch (const Error& error) {
    run.sim_.simulator.mark("head.gave_up");
    run.meter_.happening("head", "the head gives up: " + error.message);
    code = 1;
  }
  run.controller_ = nullptr;
  co_return code;
}

void Run::start_head() {
  faults_->head_starts();
  head_program_ = &sim_.machine(1).start("head", [this](SimProgram& self) { return head_main(self, *this); });
}

void Run::kill_head(Duration down) {
  controller_ = nullptr;
  head_program_->kill();
  head_down_until_ = sim_.now() + down;
}

// As systemd does.
void Run::keep_head_up() {
  if (head_program_->running() || sim_.now() < head_down_until_ || sim_.machine(1).frozen()) return;
  if (head_down_until_ != Instant{}) {
    head_down_until_ = {};
    start_head();
    return;
  }
  head_down_until_ = sim_.now() + kHeadBack;
}

JobId Run::id_of(size_t number) const { return JobId{fmt::format("j-{:08x}", number + 1)}; }

void Run::plan_arrivals() {
  if (jobs_.empty()) return;
  // One timer for the next job only: a day has tens of thousands.
  sim_.simulator.at(Instant{} + jobs_.front().at, [this] { arrive(0); });
}

void Run::arrive(size_t number) {
  const JobId id = id_of(number);
  numbers_[id] = number;
  progress_.add(id, jobs_[number]);
  meter_.submitted(id, jobs_[number].at);
  pending_.insert(number);
  submit_job(number);
  if (jobs_[number].stop_at) {
    sim_.simulator.at(Instant{} + *jobs_[number].stop_at, [this, id] {
      stops_[id] = 0;
      stop_jobs();
    });
  }
  const size_t next = number + 1;
  if (next < jobs_.size()) sim_.simulator.at(Instant{} + jobs_[next].at, [this, next] { arrive(next); });
}

// As the command line does: again with the same request id until a head has it.
void Run::submit_job(size_t number) {
  const std::string request = fmt::format("request-{}", number + 1);
  if (watch_.state().requests.contains(request)) {
    pending_.erase(number);
    return;
  }
  if (!head_up()) return;
  reconcile::SubmitJob submit;
  submit.id = id_of(number);
  submit.spec = jobs_[number].spec;
  submit.request_id = request;
  submit.pending = controller_->pending_request(request);
  ask(submit);
}

// Again to each new head, until one has done it.
void Run::stop_jobs() {
  std::erase_if(stops_, [&](const auto& stop) {
    const auto job = watch_.state().jobs.find(stop.first);
    return job != watch_.state().jobs.end() &&
           (job->second.phase == JobPhase::kStopping || cluster::ended(job->second.phase));
  });
  if (!head_up()) return;
  for (auto& [id, told] : stops_) {
    if (told == controller_->state().epoch || !controller_->state().jobs.contains(id)) continue;
    told = controller_->state().epoch;
    ask(reconcile::StopJob{id, "stopped by its owner"});
  }
}

void Run::press() {
  send_file();
  stop_jobs();
  const std::set<size_t> waiting = pending_;
  for (const size_t number : waiting) submit_job(number);
}

void Run::send_file() {
  if (!head_up() || controller_->state().spec_text == text_) return;
  const std::pair now{controller_->state().epoch, text_};
  if (said_text_ == now) return;
  said_text_ = now;
  // Under a name of its own: the run must not depend on where the scenario lies.
  reconcile::ConfigureCluster configure;
  configure.spec = read_cluster_spec(text_, "cluster.yaml");
  configure.text = text_;
  ask(configure);
}

// Through the front door, as the API does. Who is refused asks again later, as people do.
void Run::ask(const reconcile::Request& request) {
  reconcile::Admission admission = reconcile::admit(controller_->state(), request, controller_->now());
  reconcile::Admitted* const admitted = std::get_if<reconcile::Admitted>(&admission);
  if (!admitted) return;
  for (cluster::Event& event : admitted->events) controller_->submit_later(std::move(event));
}

void Run::every(Duration span, std::function<void()> call) {
  sim_.simulator.at(sim_.now() + span, [this, span, call = std::move(call)] {
    call();
    every(span, call);
  });
}

sim::WorkerModel Run::worker_model(const SpawnSpec&, const sim::WorkerRecord& worker) {
  sim::WorkerModel model;
  const Progress::Run run =
      progress_.run_of(JobId{worker.run_id}, static_cast<Generation>(worker.generation), worker.world_size);
  model.runs = run.lasts;
  const auto planned = numbers_.find(JobId{worker.run_id});
  model.sigterm_delay = planned == numbers_.end() ? Duration(500ms) : jobs_[planned->second].ends_within;
  if (worker.rank == 0) model.crash_after = run.crashes_after;
  return model;
}

void Run::credit_workers() {
  const std::vector<sim::WorkerRecord>& past = sim_.workers.past();
  for (; credited_ < past.size(); ++credited_) {
    const sim::WorkerRecord& worker = past[credited_];
    if (worker.status && worker.status->code != 0) faults_->worker_failed(worker);
    using End = Progress::End;
    const bool well = worker.status && worker.status->ok();
    const bool told = worker.status && worker.status->signal == SIGTERM;
    const double lost_s = progress_.ended(JobId{worker.run_id}, static_cast<Generation>(worker.generation),
                                          worker.world_size, worker.trained,
                                          well   ? End::kDone
                                          : told ? End::kSaved
                                                 : End::kCrashed);
    if (lost_s > 0) outcome_.lost_by[cause_of(worker)] += lost_s;
  }
}

std::string Run::cause_of(const sim::WorkerRecord& lost) {
  if (lost.status && lost.status->code != 0) return "workers crashed";
  const auto is_there = [&](const Instance& instance) {
    return instance.machine != 0 && cloud_.machine_of(instance).node() == lost.machine;
  };
  const auto cause = [&](const Instance& instance) -> std::string {
    if (instance.reclaimed) return lost.told_to_end ? "reclaimed before they had saved" : "reclaimed without notice";
    return instance.crashed ? "machines crashed" : "cut off or killed";
  };
  for (const auto& [node, instance] : cloud_.live()) {
    if (is_there(*instance)) return cause(*instance);
  }
  // Machines are used again: the newest one counts.
  for (auto it = cloud_.past().rbegin(); it != cloud_.past().rend(); ++it) {
    if (is_there(*it)) return cause(*it);
  }
  return "cut off or killed";
}

// As rank 0 of the training library does.
void Run::send_hints() {
  for (const auto& [number, worker] : sim_.workers.live()) {
    const JobId id{worker.run_id};
    const auto planned = numbers_.find(id);
    if (worker.rank != 0 || !worker.trained_from || planned == numbers_.end()) continue;
    const PlannedJob& job = jobs_[planned->second];
    const auto url = worker.env.find("ADAPTDL_SUPERVISOR_URL");
    if (!job.adaptive || url == worker.env.end() || sim_.machine(worker.machine).frozen()) continue;
    Told& told = told_[id];
    told.most_workers = std::max(told.most_workers, worker.world_size);
    if (told.generation != worker.generation) told.at = *worker.trained_from;
    told.generation = worker.generation;
    if (sim_.now() - told.at < job.adaptive->tells_every) continue;
    told.at = sim_.now();
    const double done_s = progress_.done_s(id, worker.world_size, sim_.now() - *worker.trained_from);
    const JobProfile profile = measured(*job.adaptive, done_s, job.work_s, told.most_workers, measuring_);
    agents_.request(url->second, "PUT", "/hints/rubato/" + id.value, to_json(profile).dump());
    sim_.simulator.mark("adaptive.told");
  }
}

bool Run::busy(const Instance& instance) const {
  if (scenario_.fidelity == Fidelity::kLight) return groups_.on(instance.node);
  if (instance.machine == 0) return false;
  const int machine = const_cast<sim::Simulation&>(sim_).machine(instance.machine).node();
  return std::ranges::any_of(sim_.workers.live(), [&](const auto& entry) { return entry.second.machine == machine; });
}

void Run::lose_one(const PlannedLoss& loss) {
  for (const auto& [node, instance] : cloud_.live()) {
    if (instance->type != loss.type || !instance->agent || !instance->agent->running()) continue;
    sim_.simulator.mark("history.node_loss");
    instance->hurt = true;
    instance->agent->kill();  // the head notices at once, as it had when it wrote that the node is lost
    return;
  }
}

bool Run::feasible(const JobSpec& spec) const {
  if (!watch_.state().spec) return true;
  const ClusterSpec& cluster = *watch_.state().spec;
  int64_t workers = 0, nodes_left = cluster.max_workers;
  std::vector<std::pair<int64_t, int64_t>> types;  // workers on a node, nodes
  for (const auto& [name, type] : cluster.types) {
    const auto have = scenario_.cloud.have.find(name);
    const Resources& room =
        type.resources.empty() && have != scenario_.cloud.have.end() ? have->second : type.resources;
    int64_t most = type.max_workers;
    if (const auto quota = scenario_.cloud.quota.find(name); quota != scenario_.cloud.quota.end())
      most = std::min<int64_t>(most, quota->second);
    types.emplace_back(spec.per_worker.times_in(room), most);
  }
  std::ranges::sort(types, std::greater());
  for (const auto& [each, nodes] : types) {
    const int64_t used = std::min(nodes, nodes_left);
    workers += each * used;
    nodes_left -= used;
  }
  return workers >= spec.workers_min;
}

bool Run::all_ended() const {
  const cluster::State& state = watch_.state();
  if (!pending_.empty() || !state.active.empty()) return false;
  return std::ranges::none_of(state.queued, [&](const JobId& id) { return feasible(state.jobs.at(id).spec); });
}

// Something that could be served waits, and nothing runs for which it could be waiting. What runs for longer than its
// work takes does not run.
bool Run::waits_in_vain() const {
  const cluster::State& state = watch_.state();
  if (!head_up()) return false;
  const WallTime now = controller_->now();
  for (const JobId& id : state.active) {
    const cluster::Job& job = state.jobs.at(id);
    if (job.phase == JobPhase::kRunning && now - job.since < progress_.lasts(id) + scenario_.patience) return false;
  }
  return !all_ended();
}

bool Run::shrunk() const {
  const cluster::State& state = watch_.state();
  if (!state.spec) return true;
  std::map<std::string, int> of_type;
  for (const auto& [id, node] : state.nodes) of_type[node.type] += node.head ? 0 : 1;
  for (const auto& [name, count] : of_type) {
    const auto type = state.spec->types.find(name);
    if (type == state.spec->types.end() || count > type->second.min_workers) return false;
  }
  return cloud_.live().size() == state.nodes.size();
}

// Demand that could be met has a decision or a reason, without anything else happening: when the head believes that
// nothing has changed since it last asked its autoscaler, the answer is still the same.
void Run::check_demand() {
  if (!head_up() || !controller_->state().spec) return;
  const cluster::State& state = controller_->state();
  const WallTime now = controller_->now();
  if (!controller_->plan_memory().answers(state, now) || cluster::any_unheard(state, controller_->observed())) return;
  ++watch_.checks["unmet demand has a decision or a reason"];
  cluster::Wake unused;
  for (const cluster::Event& event : reconcile::advance_scale(state, now, unused)) {
    if (std::holds_alternative<cluster::NodeRequested>(event))
      watch_.add_broken("nobody decides: " + cluster::describe(event));
  }
}

void Run::run_to(Instant limit, const std::function<bool()>& done, const std::function<void(Duration)>& on_progress) {
  const Duration chunk = std::max<Duration>(1min, scenario_.duration / 200);
  while (sim_.now() < limit && watch_.broken.empty() && !done()) {
    sim_.simulator.run_until(std::min(limit, sim_.now() + chunk));
    if (on_progress) on_progress(sim_.now() - Instant{});
  }
}

void Run::settle(const std::function<void(Duration)>& on_progress) {
  Instant moved = sim_.now();
  const auto stuck = [&] {
    if (!waits_in_vain()) moved = sim_.now();
    return all_ended() || sim_.now() - moved > scenario_.patience;
  };
  run_to(Instant::max(), stuck, on_progress);
  if (!watch_.broken.empty()) return;
  ++watch_.checks["demand that can be served is served"];
  if (!all_ended()) {
    for (const auto& [id, job] : watch_.state().jobs) {
      if (cluster::ended(job.phase) || !feasible(job.spec)) continue;
      watch_.add_broken(fmt::format("{} waits in vain ({}, {} to {} workers of {}): {}", id.value, to_string(job.phase),
                                    job.spec.workers_min, job.spec.workers_max, describe(job.spec.per_worker),
                                    job.reason));
      return;
    }
    watch_.add_broken("a submission was never taken");
    return;
  }
  Duration idle = 0s;
  if (watch_.state().spec) {
    idle = watch_.state().spec->scaling.idle_timeout;
    for (const auto& [name, type] : watch_.state().spec->types) idle = std::max(idle, type.idle_timeout.value_or(0s));
  }
  run_to(
      sim_.now() + idle + scenario_.patience, [this] { return shrunk(); }, on_progress);
  ++watch_.checks["idle nodes go"];
  if (watch_.broken.empty() && !shrunk())
    watch_.add_broken(fmt::format("{} nodes are there though nothing needs them", watch_.state().nodes.size()));
}

Outcome Run::play(const std::function<void(Duration)>& on_progress) {
  start_head();
  sim_.simulator.at(Instant{} + kFirstWords, [this] { press(); });
  every(1s, [this] { press(); });
  every(1s, [this] { keep_head_up(); });
  if (scenario_.adaptive) every(1s, [this] { send_hints(); });
  every(1min, [this] {
    watch_.audit(head_was_up_ && head_up());
    head_was_up_ = head_up();
    check_demand();
  });
  every(std::max<Duration>(1s, scenario_.duration / kSamples), [this] { meter_.sample(watch_.state()); });
  plan_arrivals();
  for (const PlannedFile& file : files_) sim_.simulator.at(Instant{} + file.at, [this, &file] { text_ = file.text; });
  for (const PlannedLoss& loss : losses_) sim_.simulator.at(Instant{} + loss.at, [this, &loss] { lose_one(loss); });
  faults_->begin();
  sim_.simulator.at(Instant{} + std::min(scenario_.faults_until(), scenario_.duration), [this] {
    over_ = true;
    cloud_.calm();
    faults_->calm();
  });
  run_to(
      Instant{} + scenario_.duration, [] { return false; }, on_progress);
  if (scenario_.settle && watch_.broken.empty()) settle(on_progress);
  watch_.check();
  watch_.close(head_up() ? &controller_->state() : nullptr);
  meter_.close(watch_.state());
  for (const auto& [id, job] : watch_.state().jobs)
    outcome_.infeasible += !cluster::ended(job.phase) && !feasible(job.spec) ? 1 : 0;
  outcome_.simulated = sim_.now() - Instant{};
  outcome_.events = sim_.simulator.events();
  outcome_.hash = sim_.simulator.hash();
  outcome_.trained_s = progress_.trained_s();
  outcome_.lost_s = progress_.lost_s();
  outcome_.turns = metrics_.histogram("rubato_decision_seconds", "Time to decide one turn.", {}).count();
  outcome_.checks = watch_.checks;
  for (const auto& [mark, count] : sim_.simulator.marks()) outcome_.marks[mark] = count;
  outcome_.broken = watch_.broken;
  return outcome_;
}

}  // namespace rubato::simulate
