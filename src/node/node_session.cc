// NodeAgent's side of the connection: finding the head, Hello and Welcome, then four things at once until it ends.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/turns.h"
#include "node/node_agent.h"

namespace rubato::node {

using namespace elastic;

namespace {

constexpr Duration kRetryFirst = 50ms;
constexpr Duration kRetryMax = 2s;
constexpr Duration kConnectMax = 5s;
constexpr Duration kWelcomeMax = 10s;
// Sent and not acknowledged, over all jobs: well under what Connection::send takes before it cuts the head off.
constexpr uint64_t kInFlightMax = uint64_t{8} << 20;
constexpr size_t kBatchBytes = size_t{256} << 10;

}  // namespace

Task<void> NodeAgent::keep_connected() {
  while (true) {
    std::unique_ptr<Connection> connection = co_await reach_head();
    const bool welcome = co_await greet(*connection);
    if (welcome) {
      say(fmt::format("connected to the head at {} (epoch {})", connection->peer_address(), head_epoch_));
      co_await session(*connection);
      connection_ = nullptr;
      room_.notify();
      packages_.disconnected();
      told_.reset();
      if (ending_.empty()) say("lost the head; the workers go on");
      wake();
    }
    connection.reset();
    // A head that takes and drops connections must not be asked in a tight loop.
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kRetryFirst);
  }
}

Task<std::unique_ptr<Connection>> NodeAgent::reach_head() {
  Duration pause = kRetryFirst;
  std::string last_output;
  bool by_name = true;
  while (true) {
    Endpoint head = settings_.head;
    if (settings_.find_head) head = settings_.find_head().value_or(head);
    by_name = !by_name && !settings_.head_name.empty();
    if (by_name) head.host = settings_.head_name;
    const uint16_t port = head.port;
    const Instant deadline = world_.clock.now() + kConnectMax;
    ConnectResult result =
        co_await world_.network.connect(std::move(head), settings_.key, deadline, std::max<Duration>(heartbeat_, 1s));
    if (result.connection && by_name && settings_.head_moved) {
      settings_.head_moved(Endpoint{result.connection->peer_address(), port});
    }
    if (result.connection) co_return std::move(result.connection);
    if (result.failure && result.failure->message != last_output) {
      last_output = result.failure->message;
      say("no head: " + last_output);
    }
    const double jitter = 0.5 + world_.random.unit();
    co_await Sleep(world_.clock.loop(), world_.clock.now() + seconds(to_seconds(pause) * jitter));
    pause = std::min(2 * pause, kRetryMax);
  }
}

std::vector<JobOrderReport> NodeAgent::reports() {
  std::vector<JobOrderReport> list;
  for (const auto& [job, job_order] : runners_) list.push_back(job_order->report());
  return list;
}

Hello NodeAgent::hello(const Connection& connection) {
  Hello hello;
  hello.version = settings_.version;
  hello.node = settings_.node;
  hello.agent = self_;
  hello.info.id = self_;
  hello.info.host = world_.machine.hostname;
  hello.info.machine = world_.machine.machine_id;
  hello.info.address = settings_.address.empty() ? connection.local_address() : settings_.address;
  hello.info.addresses = world_.network.addresses();
  hello.info.peer_port = leases_.port();
  hello.resources = settings_.resources;
  hello.started = started_;
  hello.head_epoch = head_epoch_;
  hello.own_disk = settings_.own_disk;
  hello.job_orders = reports();
  hello.fenced = leases_.fenced();
  return hello;
}

// False: this connection is of no use.
Task<bool> NodeAgent::greet(Connection& connection) {
  for (const auto& [job, job_order] : runners_) job_order->log().rewind();
  const Instant greeted = world_.clock.now();
  const ToHead greeting = hello(connection);
  connection.send(encode(greeting, world_.clock.now()));
  const Instant deadline = world_.clock.now() + kWelcomeMax;
  auto received = co_await with_deadline(world_.clock.loop(), deadline, connection.receive());
  if (!received || !*received) co_return false;
  try {
    const ToAgent answer = decode_to_agent(**received);
    if (const auto* goodbye = std::get_if<Goodbye>(&answer)) handle_goodbye(*goodbye);
    const auto* welcome = std::get_if<Welcome>(&answer);
    if (!welcome) co_return false;
    if (welcome->head_epoch < head_epoch_) {
      say(fmt::format("refused a head of epoch {}: it was replaced by {}", welcome->head_epoch, head_epoch_));
      co_return false;
    }
    head_epoch_ = welcome->head_epoch;
    heartbeat_ = welcome->heartbeat;
    leases_.welcomed(*welcome, greeted);
  } catch (const Error& error) {
    say("the head is not understood: " + error.message);
    co_return false;
  }
  told_ = std::get<Hello>(greeting).job_orders;
  told_fenced_ = std::get<Hello>(greeting).fenced;
  co_return true;
}

Task<void> NodeAgent::session(Connection& connection) {
  connection_ = &connection;
  revision_ = 0;  // this head counts anew
  begun_ = {};
  PackageStore::Ask ask = [&connection](const PackageWanted& wanted) {
    const ToHead message = wanted;
    connection.send(encode(message));
  };
  packages_.connected(std::move(ask));
  checkpoints_.connected(head_epoch_);
  if (!ending_.empty() || !notice_.empty()) send_leaving();
  wake();
  // They go with this frame, or when receive() has ended.
  Scope scope(world_.clock.loop());
  scope.spawn(send_beats(connection));
  scope.spawn(send_news(connection));
  co_await receive(connection);
}

Task<void> NodeAgent::send_beats(Connection& connection) {
  while (true) {
    co_await Sleep(world_.clock.loop(), world_.clock.now() + beat_interval(heartbeat_));
    const ToHead beat = NodeBeat{revision_};
    connection.send(encode(beat));
  }
}

// Reports and log lines, whenever there are any. Lines go first: a report that workers have ended waits for them.
Task<void> NodeAgent::send_news(Connection& connection) {
  while (true) {
    co_await send_logs(connection);
    std::vector<JobOrderReport> now = reports();
    std::vector<AgentId> fenced = leases_.fenced();
    if (now != told_ || fenced != told_fenced_) {
      told_ = now;
      told_fenced_ = fenced;
      const ToHead message = Reports{std::move(now), std::move(fenced)};
      connection.send(encode(message, world_.clock.now()));
    }
    std::optional<Instant> retry;
    for (const auto& [job, job_order] : runners_) {
      const std::optional<Instant> at = job_order->log().retry_at();
      if (at && (!retry || *at < *retry)) retry = at;
    }
    if (retry) {
      co_await changed_.wait_until(*retry);
    } else {
      co_await changed_.wait();
    }
  }
}

// Round the jobs, so that a noisy one does not keep the others waiting.
Task<void> NodeAgent::send_logs(Connection& connection) {
  Turns turns(world_.clock.loop());
  bool sent = false;
  while (true) {
    std::vector<JobId> jobs;
    uint64_t in_flight = 0;
    for (const auto& [job, job_order] : runners_) {
      in_flight += job_order->log().in_flight_bytes();
      jobs.push_back(job);
    }
    bool more = false;
    for (const JobId& job : jobs) {
      // It may have gone while others had their turn.
      const auto found = runners_.find(job);
      if (in_flight >= kInFlightMax || found == runners_.end()) continue;
      LogSpool& log = found->second->log();
      const uint64_t before = log.in_flight_bytes();
      LogLines lines{.job = job, .lines = {}, .agent = log.owner(), .follows = log.sent_sequence()};
      lines.lines = log.take(kBatchBytes);
      if (lines.lines.empty()) continue;
      more = sent = true;
      in_flight += log.in_flight_bytes() - std::min(before, log.in_flight_bytes());
      const ToHead message = std::move(lines);
      connection.send(encode(message));
      co_await turns.step();
    }
    if (!more) break;
  }
  if (sent) wake();  // a job order may have waited for it
}

Task<void> NodeAgent::receive(Connection& connection) {
  while (true) {
    // A dead head is noticed by the connection itself: our beats are not acknowledged.
    const std::optional<std::string> text = co_await connection.receive();
    if (!text) co_return;
    try {
      handle(decode_to_agent(*text), connection);
    } catch (const Error& error) {
      say("the head is not understood: " + error.message);
      co_return;
    }
  }
}

void NodeAgent::handle(const ToAgent& message, Connection&) {
  if (const auto* orders = std::get_if<Orders>(&message)) collect(*orders);
  if (const auto* part = std::get_if<PackagePart>(&message)) packages_.take(*part);
  if (const auto* goodbye = std::get_if<Goodbye>(&message)) handle_goodbye(*goodbye);
  if (const auto* ack = std::get_if<LogAck>(&message)) {
    const auto found = runners_.find(ack->job);
    if (found != runners_.end() && ack->refused) found->second->log().refused(ack->sequence);
    if (found != runners_.end() && !ack->refused) found->second->log().acked(ack->sequence);
    room_.notify();
    wake();
  }
}

void NodeAgent::collect(const Orders& orders) {
  if (orders.revision != begun_.revision) begun_ = Orders{};
  begun_.revision = orders.revision;
  begun_.drain = orders.drain;
  begun_.drain_in = orders.drain_in;
  begun_.job_orders.insert(begun_.job_orders.end(), orders.job_orders.begin(), orders.job_orders.end());
  begun_.outputs.insert(begun_.outputs.end(), orders.outputs.begin(), orders.outputs.end());
  begun_.copies.insert(begun_.copies.end(), orders.copies.begin(), orders.copies.end());
  begun_.fence.insert(begun_.fence.end(), orders.fence.begin(), orders.fence.end());
  if (begun_.job_orders.size() > kJobOrdersMax || begun_.outputs.size() > kOutputsMax)
    throw Error(ErrorCode::kFailed, "it orders more than a node can do");
  if (!orders.more) obey(std::exchange(begun_, {}));
}

void NodeAgent::obey(const Orders& orders) {
  std::map<JobId, const JobOrder*> wanted;
  for (const JobOrder& job_order : orders.job_orders) wanted[job_order.job] = &job_order;
  for (const auto& [job, job_order] : runners_) {
    if (!wanted.contains(job)) job_order->abandon();
  }
  for (const auto& [job, job_order] : wanted) {
    JobOrderRunner& mine = runner(job);
    JobOrder own = *job_order;
    if (settings_.own_disk) own.output = output_folder(settings_.folder, job);
    own.checkpoint_folder = checkpoint_folder(settings_.folder, job);
    mine.obey(own);
    if (!ending_.empty()) mine.leave(ending_);
  }
  follow_drain(orders);
  if (settings_.own_disk) follow_outputs(orders);
  checkpoints_.follow(orders);
  leases_.follow(orders);
  revision_ = orders.revision;
  wake();
}

// What is in the orders is the head's to have, or to have again; the rest is there already, or nobody's.
void NodeAgent::follow_outputs(const Orders& orders) {
  std::set<JobId> kept, wanted;
  for (const JobOrder& job_order : orders.job_orders) kept.insert(job_order.job);
  for (const OutputOrder& output : orders.outputs) {
    kept.insert(output.job);
    if (output.wanted) wanted.insert(output.job);
  }
  outputs_.follow(std::move(wanted));
  for (const JobId& job : outputs_here(world_.files, settings_.folder)) {
    if (!kept.contains(job)) discard(output_folder(settings_.folder, job));
  }
}

void NodeAgent::handle_goodbye(const Goodbye& goodbye) {
  say(fmt::format("the head says goodbye: {}", goodbye.reason));
  refused_ = goodbye.refused;
  end(goodbye.reason, true);
}

}  // namespace rubato::node
