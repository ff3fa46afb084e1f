#include "head/controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/turns.h"
#include "head/housekeeping.h"
#include "reconcile/decide.h"
#include "reconcile/observe.h"
#include "reconcile/orders.h"

namespace rubato::head {

using cluster::NodePhase;
using cluster::Record;

namespace {

// A connection that breaks while both processes live is made anew within this time, and nothing happens.
constexpr Duration kReconnectWindow = 500ms;
constexpr size_t kPackagePart = size_t{1} << 20;
constexpr Duration kProfileEvery = 20s;
// Agents whose head does not answer for a heartbeat look for another: after such a stall they may be on their way back.
Duration long_stall(Duration heartbeat) { return std::min<Duration>(heartbeat, 3s) / 2; }

// Whether some of these say something new about workers that may change in place.
bool workers_changed(const cluster::Observed& observed,
                     const std::map<NodeId, std::vector<elastic::JobOrderReport>>& reports) {
  return std::ranges::any_of(reports, [&](const auto& entry) {
    return std::ranges::any_of(entry.second, [&](const elastic::JobOrderReport& report) {
      const elastic::InPlaceReport* known = observed.in_place_of(report.job, entry.first);
      return report.in_place && (!known || *known != *report.in_place);
    });
  });
}

}  // namespace

Controller::Controller(World& world, Journal& journal, provider::NodeProvider& provider, HeadSettings settings,
                       Metrics& metrics, Log log)
    : world_(world),
      settings_(std::move(settings)),
      metrics_(metrics),
      log_(log),
      history_(world.clock.loop(), journal, log, settings_.offload),
      logs_(world.clock.loop(), world.files, settings_.folder + "/jobs", settings_.offload),
      packages_(world, settings_.folder + "/packages", settings_.offload),
      outputs_(world, settings_.folder + "/jobs", settings_.offload),
      checkpoints_(world, settings_.folder + "/jobs", settings_.offload, settings_.checkpoints),
      listening_(world.clock.now(), long_stall(settings_.heartbeat)),
      machines_(
          world, provider, settings_.agents, log, listening_, [this](cluster::Event event) { tell(std::move(event)); },
          [this](NodeId node, elastic::LogLines lines) { return keep_last_lines(std::move(node), std::move(lines)); }),
      readers_(world.clock.loop(), settings_.offload, shared_state_),
      changed_(world.clock.loop()),
      committed_(world.clock.loop()),
      sessions_(world, *this, log, SessionTerms{settings_.heartbeat, !provider.kills_for_sure(), settings_.stays_here},
                listening_),
      scope_(world.clock.loop()) {
  observed_.leases = !provider.kills_for_sure();
  observed_.heartbeat = settings_.heartbeat;
}

void Controller::tell(cluster::Event event) {
  happened_.push_back(std::move(event));
  changed_.notify();
}

WallTime Controller::now() const {
  const auto since = std::chrono::floor<WallTime::duration>(world_.clock.now() - anchor_at_);
  return std::max(world_.clock.wall(), anchor_wall_ + since);
}

Task<void> Controller::recover() {
  state_ = co_await history_.recover();
  std::vector<JobId> jobs;
  for (const auto& [id, job] : state_.jobs) jobs.push_back(id);
  co_await logs_.remember_missing(std::move(jobs));
  anchor_wall_ = state_.time;
  anchor_at_ = world_.clock.now();
  cluster::HeadStarted started;
  started.epoch = state_.epoch + 1;
  started.version = settings_.version;
  started.pid = world_.machine.pid;
  started.restarted_after = settings_.restarted_after;
  happened_.emplace_back(std::move(started));
  listening_ = ListeningClock(world_.clock.now(), long_stall(settings_.heartbeat));
  begin_to_listen();
  // Alone: nothing else runs yet, and agents must hear an epoch that is durable.
  co_await turn();
  log_.info("head started", {{"epoch", state_.epoch},
                             {"records", state_.offset},
                             {"nodes", state_.nodes.size()},
                             {"jobs", state_.jobs.size()}});
}

// From now on the adoption time counts: nobody could report before. What is up as the journal says has not been heard.
void Controller::begin_to_listen() {
  if (began_ == Instant{}) began_ = world_.clock.now();
  patience_ = listening_.at(world_.clock.now()) + settings_.adoption;
  observed_.listening_since = now();
  for (const auto& [id, node] : state_.nodes) {
    if (node.phase != NodePhase::kUp && node.phase != NodePhase::kDraining) continue;
    observed_.unheard.insert(id);
    if (!sessions_.connected(id)) absent_[id].give_up = patience_;
  }
}

// What was sent while this process stood still is not read yet, and agents that took it for dead are on their way back.
void Controller::note_stall() {
  const std::optional<Instant> stalled = listening_.stalled(world_.clock.now());
  if (stalled == stalled_) return;
  stalled_ = stalled;
  log_.warning("this process stood still; agents have time to report", {{"seconds", to_seconds(settings_.adoption)}});
  begin_to_listen();
  sessions_.ask_again();
}

Task<void> Controller::watch_stalls() {
  while (true) {
    co_await Sleep(world_.clock.loop(), world_.clock.now() + ListeningClock::kTurn);
    listening_.turn(world_.clock.now());
    if (listening_.stalled(world_.clock.now()) != stalled_) changed_.notify();
  }
}

Task<void> Controller::run(Listener& listener) {
  listening_ = ListeningClock(world_.clock.now(), long_stall(settings_.heartbeat));
  stalled_.reset();
  begin_to_listen();
  scope_.spawn(watch_stalls());
  scope_.spawn(serve_agents(listener));
  co_await machines_.sweep(state_);
  scope_.spawn(machines_.keep_sweeping(state_));
  scope_.spawn(decide_and_act());
  scope_.spawn(keep_house(world_, settings_.folder, readers_, log_));
  scope_.spawn(keep_peers());
  while (!finished() && !failure_) co_await changed_.wait();
  if (failure_) throw *failure_;
}

Task<void> Controller::decide_and_act() {
  try {
    while (!finished()) {
      const std::optional<Instant> next = next_turn();
      if (next && *next > world_.clock.now()) {
        co_await changed_.wait_until(*next);
      } else if (!next) {
        co_await changed_.wait();
      }
      co_await turn();
    }
  } catch (const Error& error) {
    // Without its journal a head can decide nothing; agents keep their workers going.
    failure_ = error;
  } catch (const std::exception& error) {
    failure_ = Error(ErrorCode::kFailed, fmt::format("the head cannot go on: {}", error.what()));
  }
  changed_.notify();
}

// A head that agents cannot reach must not look alive.
Task<void> Controller::serve_agents(Listener& listener) {
  try {
    co_await sessions_.serve(listener, state_.epoch);
  } catch (const std::exception& error) {
    failure_ = Error(ErrorCode::kFailed, fmt::format("no more agents can be served: {}", error.what()));
  }
  changed_.notify();
}

// The next moment at which a turn has something to do; nullopt: when something happens.
std::optional<Instant> Controller::next_turn() {
  const Instant now_here = world_.clock.now();
  if (!happened_.empty() || !reports_.empty() || !decided_ || listening_.stalled(now_here) != stalled_) return now_here;
  std::optional<Instant> next;
  for (const auto& [node, absence] : absent_) next = next ? std::min(*next, absence.give_up) : absence.give_up;
  if (!observed_.unheard.empty()) next = next ? std::min(*next, patience_) : patience_;
  if (next) next = listening_.due(*next, now_here);
  if (wake_.at) {
    const Duration wait = std::max<Duration>(0s, *wake_.at - now()) + 1ms;
    const Instant at = now_here + wait;
    next = next ? std::min(*next, at) : at;
  }
  return next;
}

std::vector<cluster::Event> Controller::take_happened() {
  std::vector<cluster::Event> happened = std::exchange(happened_, {});
  for (const auto& [node, reports] : std::exchange(reports_, {})) {
    // An agent that is told to go says nothing that counts any more.
    const auto it = state_.nodes.find(node);
    if (it == state_.nodes.end() || !sessions_.connected(node)) continue;
    if (!sessions_.asked(node)) observed_.unheard.erase(node);
    for (cluster::Event& event : reconcile::observe(state_, observed_, node, reports))
      happened.push_back(std::move(event));
  }
  const Instant listened = listening_.at(world_.clock.now());
  if (listened >= patience_) observed_.unheard.clear();
  give_up_absent(happened);
  update_silence();
  return happened;
}

Task<void> Controller::turn() {
  co_await decide_and_commit();
  co_await history_.snapshot_if_due(shared_state_);
}

Task<void> Controller::decide_and_commit() {
  StateReaders::Pause pause(readers_);
  co_await pause.begun();
  note_stall();
  const uint64_t covered = submitted_;
  const Instant began = world_.clock.now();
  anchor_wall_ = now();
  anchor_at_ = began;
  const auto ready = observed_.ready;
  const auto problems = observed_.problems;
  const auto finishing = observed_.finishing;
  const auto unheard = observed_.unheard;
  const auto silent = observed_.silent;
  const bool workers_told = workers_changed(observed_, reports_);
  std::vector<cluster::Event> happened = take_happened();
  // Most reports say what is known: with thousands of agents, deciding on each of them would take all the time there
  // is.
  const bool due = wake_.at && *wake_.at <= anchor_wall_;
  const bool same = ready == observed_.ready && problems == observed_.problems && finishing == observed_.finishing &&
                    unheard == observed_.unheard && silent == observed_.silent && !workers_told;
  if (decided_ && happened.empty() && !due && same) {
    durable_ = covered;
    committed_.notify();
    co_return;
  }
  reconcile::Decision decision = reconcile::decide(state_, plan_memory_, observed_, std::move(happened), anchor_wall_);
  metrics_
      .histogram("rubato_decision_seconds", "Time to decide one turn.",
                 {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5})
      .observe(to_seconds(world_.clock.now() - began));
  decided_ = true;
  wake_ = decision.wake;
  if (!decision.records.empty()) {
    committing_ = true;
    const auto records = std::make_shared<const std::vector<Record>>(std::move(decision.records));
    co_await history_.append(records);
    committing_ = false;
    co_await act(*records);
    count(*records);
  }
  durable_ = covered;
  committed_.notify();
}

std::set<NodeId> Controller::concerned(const std::vector<Record>& records) {
  std::set<NodeId> nodes;
  for (const Record& record : records) {
    if (const std::optional<NodeId> node = cluster::node_of(record.event)) nodes.insert(*node);
    // Those who vouched for it must hear of it, whatever becomes of their jobs.
    if (const auto* lost = std::get_if<cluster::NodeLost>(&record.event)) {
      for (const JobId& job : state_.beside_cut_off) {
        if (!state_.jobs.at(job).cut_off.contains(lost->node)) continue;
        for (const cluster::Seat& seat : state_.jobs.at(job).round) nodes.insert(seat.node);
      }
    }
    const std::optional<JobId> id = cluster::job_of(record.event);
    if (!id) continue;
    std::set<NodeId>& told = told_[*id];
    nodes.insert(told.begin(), told.end());
    told.clear();
    const auto job = state_.jobs.find(*id);
    if (job == state_.jobs.end() || cluster::ended(job->second.phase)) {
      told_.erase(*id);
      logs_.close(*id);
      observed_.ready.erase(*id);
      observed_.problems.erase(*id);
      observed_.finishing.erase(*id);
      observed_.in_place.erase(*id);
      observed_.unsettled.erase(*id);
      observed_.declined.erase(*id);
      continue;
    }
    for (const cluster::Seat& seat : job->second.seats) told.insert(seat.node);
    for (const auto& [node, workers] : job->second.leaving) told.insert(node);
    nodes.insert(told.begin(), told.end());
    if (told.empty()) told_.erase(*id);
  }
  return nodes;
}

Task<void> Controller::act(const std::vector<Record>& records) {
  Turns turns(world_.clock.loop());  // a large job's orders go to thousands of nodes
  for (const Record& record : records) {
    // Its connection may have ended while this was decided, when there was no node yet to miss it.
    const auto* joined = std::get_if<cluster::NodeJoined>(&record.event);
    if (!joined || sessions_.connected(joined->node)) continue;
    const Instant give_up = listening_.at(world_.clock.now()) + kReconnectWindow;
    // If this head had stood still, the agent may have given *it* up, and come back.
    absent_[joined->node].give_up = stalled_ ? std::max(give_up, patience_) : give_up;
  }
  std::set<NodeId> nodes = concerned(records);
  nodes.merge(owed_);
  owed_.clear();
  for (const NodeId& node : nodes) {
    const auto it = state_.nodes.find(node);
    const bool unwanted =
        it == state_.nodes.end() || it->second.phase == NodePhase::kRemoving || it->second.phase == NodePhase::kLost;
    if (unwanted) {
      sessions_.dismiss(node, it == state_.nodes.end() ? "removed" : it->second.reason, false);
    } else {
      sessions_.send_orders(node);
    }
    co_await turns.step();
  }
  bool everything = false;
  std::set<NodeId> changed;
  for (const Record& record : records) {
    everything = everything || std::holds_alternative<cluster::ClusterConfigured>(record.event) ||
                 std::holds_alternative<cluster::HeadStarted>(record.event);
    if (std::optional<NodeId> node = cluster::node_of(record.event)) changed.insert(std::move(*node));
  }
  if (everything) {
    machines_.follow(state_);
  } else {
    machines_.follow(state_, changed);
  }
}

bool Controller::finished() const {
  return state_.shutting_down && state_.nodes.empty() && state_.active.empty() && state_.queued.empty() && !committing_;
}

Task<void> Controller::submit(std::vector<cluster::Event> events) {
  for (cluster::Event& event : events) happened_.push_back(std::move(event));
  const uint64_t mine = ++submitted_;
  changed_.notify();
  while (durable_ < mine) {
    if (failure_) throw *failure_;
    co_await committed_.wait_until(world_.clock.now() + 1s);
  }
}

Task<const cluster::State*> Controller::settled() {
  while (committing_) {
    if (failure_) throw *failure_;
    co_await committed_.wait_until(world_.clock.now() + 1s);
  }
  co_return &state_;
}

std::optional<JobId> Controller::pending_request(const std::string& request_id) const {
  for (const cluster::Event& event : happened_) {
    const auto* submitted = std::get_if<cluster::JobSubmitted>(&event);
    if (submitted && submitted->request_id == request_id) return submitted->job;
  }
  return std::nullopt;
}

// Whether this agent is the newer one of two that were started for a node, and nothing is lost with the other.
bool Controller::replaces(const elastic::Hello& hello, const cluster::Node& node) const {
  return node.agent_started != WallTime{} && node.agent_started < hello.started && !state_.jobs_on.contains(node.id);
}

std::optional<std::string> Controller::refuse(const elastic::Hello& hello) {
  const auto it = state_.nodes.find(hello.node);
  if (it == state_.nodes.end()) return fmt::format("the cluster has no node '{}' (any more)", hello.node.value);
  const cluster::Node& node = it->second;
  if (node.phase == NodePhase::kLost || node.phase == NodePhase::kRemoving) {
    return fmt::format("node '{}' was given up: {}", hello.node.value, node.reason);
  }
  if (node.retired == hello.agent) return fmt::format("node '{}' is being updated", hello.node.value);
  if (!node.agent.value.empty() && node.agent != hello.agent && !replaces(hello, node))
    return fmt::format("another agent has joined as node '{}'", hello.node.value);
  for (const cluster::Event& event : happened_) {
    const auto* joined = std::get_if<cluster::NodeJoined>(&event);
    if (joined && joined->node == hello.node && joined->agent != hello.agent && joined->started > hello.started)
      return fmt::format("a newer agent has joined as node '{}'", hello.node.value);
  }
  return std::nullopt;
}

void Controller::connected(const elastic::Hello& hello) {
  absent_.erase(hello.node);
  observed_.away.erase(hello.node);
  if (observed_.silent.erase(hello.node) > 0) {
    decided_ = false;
    // It was this head that was cut off, it seems: the others are on their way back too.
    for (auto& [id, absence] : absent_) {
      if (observed_.silent.contains(id) && !absence.dead)
        absence.give_up = listening_.at(world_.clock.now()) + settings_.adoption;
    }
  }
  answered_[hello.node] = world_.clock.now();  // the welcome is an answer
  fenced(hello.agent, hello.fenced);
  const cluster::Node& node = state_.nodes.at(hello.node);
  const bool is_up = node.phase == NodePhase::kUp || node.phase == NodePhase::kDraining;
  if (!is_up || node.agent != hello.agent) {
    cluster::NodeJoined joined;
    joined.node = hello.node;
    joined.agent = hello.agent;
    joined.info = hello.info;
    joined.info.id = hello.agent;
    joined.resources = hello.resources;
    joined.own_disk = hello.own_disk;
    joined.started = hello.started;
    tell(std::move(joined));
  }
  reported(hello.node, hello.job_orders);
  if (hello.info.peer_port != 0 && !doors_.contains(hello.agent)) scope_.spawn(try_door(hello.node, hello.agent));
  // The state may be ahead of the journal: what it says now is for act() to send.
  if (committing_) {
    owed_.insert(hello.node);
  } else {
    sessions_.send_orders(hello.node);
  }
}

void Controller::reported(const NodeId& node, std::vector<elastic::JobOrderReport> job_orders) {
  reports_[node] = std::move(job_orders);
  changed_.notify();
}

void Controller::caught_up(const NodeId& node) {
  if (observed_.unheard.erase(node) > 0) decided_ = false;
  changed_.notify();
}

void Controller::leaving(const NodeId& node, const elastic::Leaving& notice) {
  const auto it = state_.nodes.find(node);
  const std::optional<AgentId> agent = sessions_.agent_of(node);
  if (it == state_.nodes.end() || !agent) return;
  const cluster::Node& known = it->second;
  bool is_its_agent = known.agent == *agent && (known.phase == NodePhase::kUp || known.phase == NodePhase::kDraining);
  bool is_told = known.phase == NodePhase::kDraining && known.noticed;  // it tells it again on each connection
  for (const cluster::Event& event : happened_) {
    const auto* joined = std::get_if<cluster::NodeJoined>(&event);
    is_its_agent = is_its_agent || (joined && joined->node == node && joined->agent == *agent);
    const auto* told = std::get_if<cluster::NodeDraining>(&event);
    is_told = is_told || (told && told->node == node && told->noticed);
  }
  if (is_its_agent && notice.ends) promises_[*agent] = world_.clock.now() + elastic::lease_over_after(notice.in);
  if (!is_its_agent || is_told) return;
  cluster::NodeDraining draining;
  draining.node = node;
  draining.reason = notice.reason;
  draining.noticed = true;
  if (notice.ends || notice.in > 0s) draining.deadline = cluster::later(now(), notice.in);
  tell(std::move(draining));
}

// Each is a record: a job tells much more often than its profile changes.
void Controller::profiled(const NodeId& node, elastic::JobHints hints) {
  const auto it = state_.jobs.find(hints.job);
  if (it == state_.jobs.end() || !it->second.seat_on(node) || it->second.profile == hints.profile) return;
  // The first one that says enough is not waited for.
  const bool first = !it->second.profile || (is_known(hints.profile) && !is_known(it->second.profile));
  if (!first && now() - it->second.profiled < kProfileEvery) return;
  const auto is_told = [&](const cluster::Event& event) {
    const auto* told = std::get_if<cluster::JobProfiled>(&event);
    return told && told->job == hints.job;
  };
  if (std::ranges::any_of(happened_, is_told)) return;
  tell(cluster::JobProfiled{hints.job, std::move(hints.profile)});
}

void Controller::disconnected(const NodeId& node, bool closed) {
  reconcile::forget(observed_, node);
  // A closed connection that is not made anew at once may mean that the process is gone; silence has been waited for.
  const Instant give_up = listening_.at(world_.clock.now()) + (closed ? kReconnectWindow : Duration(0));
  // One that has not spoken since this process stood still may have given *us* up meanwhile.
  Absence absence;
  absence.give_up = observed_.unheard.contains(node) ? std::max(give_up, patience_) : give_up;
  absence.closed = closed;
  absent_[node] = absence;
  observed_.away.insert(node);
  begin_to_watch(node);
  changed_.notify();
}

elastic::Orders Controller::orders(const NodeId& node) {
  elastic::Orders orders = reconcile::orders_for(state_, node, settings_.folder + "/jobs");
  // An agent that was told by its machine knows better.
  const auto it = state_.nodes.find(node);
  if (it != state_.nodes.end() && it->second.departs() && !it->second.noticed)
    orders.drain_in = std::max<Duration>(0s, it->second.deadline - now());
  add_checkpoints(orders, node);
  return orders;
}

Task<uint64_t> Controller::keep_lines(NodeId node, AgentId agent, elastic::LogLines lines) {
  // Lines of a job that nobody remembers have nowhere to go: acknowledged, so that the agent forgets them.
  if (!state_.jobs.contains(lines.job)) co_return lines.lines.empty() ? 0 : lines.lines.back().sequence;
  if (!lines.agent.value.empty()) agent = lines.agent;
  const JobId id = lines.job;
  const uint64_t kept =
      co_await logs_.append(id, std::move(node), std::move(agent), std::move(lines.lines), lines.follows);
  // They may come after the job's end, when there was no room before.
  const auto job = state_.jobs.find(id);
  if (job == state_.jobs.end() || cluster::ended(job->second.phase)) logs_.close(id);
  co_return kept;
}

elastic::PackagePart Controller::package_part(const elastic::PackageWanted& wanted) {
  elastic::PackagePart part;
  part.hash = wanted.hash;
  part.offset = wanted.offset;
  part.size = packages_.size(wanted.hash);
  if (part.size > 0) part.bytes = packages_.read(wanted.hash, wanted.offset, kPackagePart);
  return part;
}

void Controller::count(const std::vector<Record>& records) {
  std::map<std::string_view, uint64_t> by_type;
  for (const Record& record : records) ++by_type[cluster::type_name(record.event)];
  for (const auto& [type, records_of_type] : by_type) {
    metrics_
        .counter("rubato_events_total", "Records committed to the journal, by type.", {{"type", std::string(type)}})
        .add(static_cast<double>(records_of_type));
  }
}

void Controller::gauge() {
  metrics_.gauge("rubato_jobs_queued", "Jobs that wait for a place.").set(static_cast<double>(state_.queued.size()));
  metrics_.gauge("rubato_jobs_active", "Jobs that start, run or stop.").set(static_cast<double>(state_.active.size()));
  metrics_.gauge("rubato_nodes", "Nodes, in whatever phase.").set(static_cast<double>(state_.nodes.size()));
  metrics_.gauge("rubato_agents_connected", "Agents with a connection.").set(static_cast<double>(sessions_.size()));
  metrics_.gauge("rubato_cost_dollars", "What the cluster's nodes have cost so far, as far as prices are known.")
      .set(static_cast<double>(cluster::cost_so_far(state_, now())) / 1e6);
  metrics_.gauge("rubato_strays", "Machines of this cluster that nobody knew of, so far.")
      .set(static_cast<double>(state_.strays));
  metrics_.gauge("rubato_journal_offset", "The last record.").set(static_cast<double>(state_.offset));
}

}  // namespace rubato::head
