#include "simulate/light_agent.h"

#include <fmt/format.h>

#include <algorithm>

namespace rubato::simulate {

using elastic::JobOrder;
using elastic::JobOrderReport;
using elastic::JobOrderState;
using elastic::Phase;
using rubato::NodeId;

namespace {
// As a real worker notices that a peer has gone.
constexpr Duration kPeerLoss = 1s;
constexpr Duration kRetry = 1s;
constexpr Duration kConnectMax = 5s;
constexpr Duration kSilence = 3s;
}  // namespace

void LightGroups::join(const JobOrder& job_order, const NodeId& node, Done done) {
  const Key key{job_order.job, job_order.generation};
  for (auto it = groups_.lower_bound(Key{job_order.job, 0}); it != groups_.end() && it->first.first == job_order.job;
       ++it) {
    if (it->first.second == job_order.generation || !on_mixed) continue;
    for (const auto& [other, seat] : it->second.seats) on_mixed(job_order.job, other);
  }
  Group& group = groups_[key];
  group.world_size = job_order.place.world_size;
  if (group.token == 0) group.token = next_token_++;
  Seat seat;
  seat.first_rank = job_order.place.first_rank;
  seat.workers = job_order.workers;
  seat.done = std::move(done);
  group.workers += seat.workers;
  ++seats_on_[node];
  group.seats[node] = std::move(seat);
  if (group.workers >= group.world_size) begin(key, group);
}

void LightGroups::check_ranks(const Key& key, const Group& group) {
  std::vector<std::pair<int, int>> ranges;
  for (const auto& [node, seat] : group.seats) ranges.emplace_back(seat.first_rank, seat.workers);
  std::ranges::sort(ranges);
  int next = 0;
  for (const auto& [first, count] : ranges) {
    if (first != next && on_broken)
      on_broken(fmt::format("{} generation {}: rank {} follows rank {}", key.first.value, key.second, first, next - 1));
    next = first + count;
  }
  if (next != group.world_size && on_broken)
    on_broken(
        fmt::format("{} generation {}: {} ranks for {} workers", key.first.value, key.second, next, group.world_size));
}

void LightGroups::begin(const Key& key, Group& group) {
  check_ranks(key, group);
  group.training = true;
  group.since = simulator_.now();
  running_ += group.workers;
  const Progress::Run run = progress_.run_of(key.first, key.second, group.world_size);
  if (run.crashes_after) simulator_.mark("worker.crash");
  const Duration after = run.crashes_after.value_or(run.lasts);
  simulator_.at(simulator_.now() + after,
                [this, key, token = group.token, well = !run.crashes_after] { finish(key, token, well); });
}

void LightGroups::forget_seat(const NodeId& node) {
  const auto it = seats_on_.find(node);
  if (it != seats_on_.end() && --it->second == 0) seats_on_.erase(it);
}

void LightGroups::finish(const Key& key, uint64_t token, bool well) {
  const auto it = groups_.find(key);
  if (it == groups_.end() || it->second.token != token) return;
  Group group = std::move(it->second);
  groups_.erase(it);
  if (group.training) {
    running_ -= group.world_size;
    progress_.ended(key.first, key.second, group.world_size, simulator_.now() - group.since,
                    well ? Progress::End::kDone : Progress::End::kCrashed);
  }
  for (const auto& [node, seat] : group.seats) forget_seat(node);
  for (const auto& [node, seat] : group.seats) seat.done(well);
}

void LightGroups::leave(const JobId& job, Generation generation, const NodeId& node, bool saved) {
  const Key key{job, generation};
  const auto it = groups_.find(key);
  if (it == groups_.end()) return;
  Group& group = it->second;
  const auto seat = group.seats.find(node);
  if (seat == group.seats.end()) return;
  if (group.training) {
    group.training = false;
    running_ -= group.world_size;
    progress_.ended(job, generation, group.world_size, simulator_.now() - group.since,
                    saved ? Progress::End::kSaved : Progress::End::kCrashed);
  }
  group.workers -= seat->second.workers;
  group.seats.erase(seat);
  forget_seat(node);
  // The others wait for the one that is gone, and end, unless they are told to before that.
  group.token = next_token_++;
  if (group.seats.empty()) {
    groups_.erase(it);
    return;
  }
  simulator_.at(simulator_.now() + kPeerLoss, [this, key, token = group.token] { finish(key, token, false); });
}

LightAgent::LightAgent(sim::SimProgram& program, LightSettings settings, LightGroups& groups)
    : program_(program),
      world_(program.world()),
      settings_(std::move(settings)),
      groups_(groups),
      self_{world_.random.hex(16)},
      started_(world_.clock.wall()),
      scope_(world_.clock.loop()) {}

LightAgent::~LightAgent() {
  for (auto& [job, part] : parts_) stop_workers(part, false);
}

Task<int> LightAgent::run() {
  while (!ended_) {
    Endpoint head = settings_.head;
    ChannelKey key = settings_.key;
    const Instant deadline = world_.clock.now() + kConnectMax;
    ConnectResult result = co_await world_.network.connect(std::move(head), std::move(key), deadline, kSilence);
    if (result.connection) {
      connection_ = result.connection.get();
      (void)co_await session(*result.connection);
      connection_ = nullptr;
    }
    if (!ended_)
      co_await Sleep(world_.clock.loop(),
                     world_.clock.now() + seconds(to_seconds(kRetry) * (0.5 + world_.random.unit())));
  }
  for (auto& [job, part] : parts_) stop_workers(part, true);
  parts_.clear();
  co_return 0;
}

Task<bool> LightAgent::session(Connection& connection) {
  elastic::Hello hello;
  hello.version = "light";
  hello.node = settings_.node;
  hello.agent = self_;
  hello.info.id = self_;
  hello.info.host = world_.machine.hostname;
  hello.info.machine = world_.machine.machine_id;
  hello.info.address = connection.local_address();
  hello.resources = settings_.resources;
  hello.started = started_;
  hello.head_epoch = head_epoch_;
  hello.job_orders = reports();
  const elastic::ToHead greeting = std::move(hello);
  connection.send(encode(greeting, world_.clock.now()));
  while (true) {
    std::optional<std::string> received = co_await connection.receive();
    if (!received) co_return false;
    elastic::ToAgent message = elastic::decode_to_agent(*received);
    if (const auto* welcome = std::get_if<elastic::Welcome>(&message)) {
      if (welcome->head_epoch < head_epoch_) co_return false;
      head_epoch_ = welcome->head_epoch;
    } else if (std::holds_alternative<elastic::Goodbye>(message)) {
      ended_ = true;
      co_return true;
    } else if (auto* orders = std::get_if<elastic::Orders>(&message)) {
      obey(std::move(*orders));
    }
  }
}

Task<void> LightAgent::later(JobId job, uint64_t step, Duration delay, void (LightAgent::*call)(Part&)) {
  co_await Sleep(world_.clock.loop(), world_.clock.now() + delay);
  const auto it = parts_.find(job);
  if (it == parts_.end() || it->second.step != step) co_return;
  (this->*call)(it->second);
  report();
}

void LightAgent::obey(elastic::Orders orders) {
  fenced_ = std::move(orders.fence);  // it vouches for nobody
  std::map<JobId, Part> before = std::exchange(parts_, {});
  for (JobOrder& job_order : orders.job_orders) {
    const auto known = before.find(job_order.job);
    Part& part = parts_[job_order.job];
    if (known != before.end()) {
      part = std::move(known->second);
      before.erase(known);
    }
    part.job_order = std::move(job_order);
  }
  for (auto& [job, part] : before) stop_workers(part, true);
  for (auto& [job, part] : parts_) follow(part);
  report();
}

void LightAgent::follow(Part& part) {
  const JobOrder& job_order = part.job_order;
  part.report.job = job_order.job;
  const bool running = job_order.phase == Phase::kRunning;
  if (running && part.workers_of == job_order.generation) return;
  if (running && part.report.generation == job_order.generation &&
      (part.report.state == JobOrderState::kSucceeded || part.report.state == JobOrderState::kFailed))
    return;
  if (running) {
    part.report = JobOrderReport{};
    part.report.job = job_order.job;
    part.report.generation = job_order.generation;
    part.report.state = JobOrderState::kRunning;
    part.workers_of = job_order.generation;
    part.finished = 0;
    scope_.spawn(later(job_order.job, ++part.step, settings_.start_delay, &LightAgent::started));
    return;
  }
  const JobOrderState wanted = job_order.phase == Phase::kGathering ? JobOrderState::kReady : JobOrderState::kGone;
  if (part.report.generation == job_order.generation && part.report.state == wanted) return;
  if (part.workers_of == 0) {
    stopped(part);
    return;
  }
  if (part.report.state == JobOrderState::kPreparing && part.report.generation == job_order.generation) return;
  const bool stopping = part.report.state == JobOrderState::kPreparing;
  part.report = JobOrderReport{};
  part.report.job = job_order.job;
  part.report.generation = job_order.generation;
  part.report.state = JobOrderState::kPreparing;
  if (stopping) return;  // a timer runs already
  if (part.joined) groups_.leave(job_order.job, part.workers_of, settings_.node, true);
  part.joined = false;
  scope_.spawn(later(job_order.job, ++part.step, settings_.stop_delay, &LightAgent::stopped));
}

void LightAgent::stop_workers(Part& part, bool saved) {
  if (part.joined) groups_.leave(part.job_order.job, part.workers_of, settings_.node, saved);
  part.joined = false;
  part.workers_of = 0;
  ++part.step;
}

void LightAgent::started(Part& part) {
  part.joined = true;
  const JobId job = part.job_order.job;
  const Generation generation = part.workers_of;
  std::weak_ptr<bool> alive = alive_;
  groups_.join(part.job_order, settings_.node, [this, alive, job, generation](bool well) {
    if (alive.expired()) return;
    const auto it = parts_.find(job);
    if (it == parts_.end() || it->second.workers_of != generation) return;
    Part& mine = it->second;
    mine.joined = false;
    mine.workers_of = 0;
    if (mine.report.state != JobOrderState::kRunning) return;  // it is being stopped
    mine.report.state = well ? JobOrderState::kSucceeded : JobOrderState::kFailed;
    if (well) mine.finished = generation;
    if (!well) {
      elastic::Failure failure;
      failure.host = world_.machine.hostname;
      failure.rank = mine.job_order.place.first_rank;
      failure.generation = generation;
      failure.exit_code = 1;
      failure.at = world_.clock.now();
      mine.report.failures.push_back(std::move(failure));
    }
    report();
  });
}

void LightAgent::stopped(Part& part) {
  part.workers_of = 0;
  part.report = JobOrderReport{};
  part.report.job = part.job_order.job;
  part.report.generation = part.job_order.generation;
  part.report.state = part.job_order.phase == Phase::kGathering ? JobOrderState::kReady : JobOrderState::kGone;
  if (part.job_order.phase == Phase::kGathering) part.report.port = 29500;
}

std::vector<JobOrderReport> LightAgent::reports() const {
  std::vector<JobOrderReport> list;
  for (const auto& [job, part] : parts_) {
    list.push_back(part.report);
    list.back().succeeded = part.finished;
  }
  return list;
}

void LightAgent::report() {
  if (!connection_) return;
  const elastic::ToHead message = elastic::Reports{reports(), fenced_};
  connection_->send(encode(message, world_.clock.now()));
}

void LightAgent::notice(Duration in) {
  if (!connection_) return;
  elastic::Leaving leaving;
  leaving.reason = "the machine is reclaimed";
  leaving.in = in;
  const elastic::ToHead message = std::move(leaving);
  connection_->send(encode(message, world_.clock.now()));
}

}  // namespace rubato::simulate
