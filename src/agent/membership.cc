#include "agent/membership.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rubato::agent {

using namespace elastic;

namespace {
// An agent that was asked to let us in answers within this time, or we ask elsewhere.
constexpr Duration kAnswerMax = 1s;
constexpr Duration kRetryPause = 50ms;
// A turn that comes this much too late shows that the process was stopped, swapped out, or on a paused machine.
constexpr Duration kStall = 500ms;
}  // namespace

Membership::Membership(World& world, const LaunchSpec& spec, AgentId self, Finder& finder, EventLog& events, Sink sink)
    : world_(world),
      spec_(spec),
      self_(std::move(self)),
      finder_(finder),
      events_(events),
      sink_(std::move(sink)),
      changed_(world.clock.loop()) {}

Task<void> Membership::run() {
  // In this frame: whoever cancels run() ends the session with it.
  Scope scope(world_.clock.loop());
  scope.spawn(keep_joined());
  scope.spawn(watch_fence());
  scope.spawn(finder_.watch());
  try {
    co_await scope.join();
  } catch (const Error& error) {
    sink_(error);
  }
}

Task<void> Membership::keep_joined() {
  past_.since = world_.clock.now();
  while (true) {
    std::unique_ptr<Connection> connection = co_await finder_.find(past_);
    past_.hint.reset();
    co_await session(std::move(connection));
    connection_ = nullptr;
    wakes_at_ = Instant::max();
    lost_ = world_.clock.now();
    if (joined_) {
      past_.since = lost_;
      past_.heard = vouched_;
      const Endpoint host = finder_.found();
      const HostLost lost{host, past_.was_closed, past_.view->host_leaves};
      const char* how = lost.left ? "left" : lost.closed ? "closed" : "silent";
      events_.write("host_lost", {{"address", to_string(host)}, {"how", how}});
      sink_(lost);
    }
    if (joined_) {
      past_.unanswered.clear();
    } else {
      past_.unanswered.insert(finder_.found());
    }
    const bool at_once = joined_ || past_.hint;
    joined_ = answered_ = false;
    changed_.notify();
    if (!at_once) co_await Sleep(world_.clock.loop(), world_.clock.now() + kRetryPause);
  }
}

Join Membership::introduce(const Connection& connection) const {
  Join join;
  join.run_id = spec_.run_id;
  MemberInfo& me = join.member;
  me.id = self_;
  me.host = world_.machine.hostname;
  me.machine = world_.machine.machine_id;
  me.address = spec_.local_addr.empty() ? connection.local_address() : spec_.local_addr;
  me.addresses = world_.network.addresses();
  me.peer_port = finder_.peer_port();
  me.nproc = spec_.nproc;
  me.role = spec_.role;
  if (spec_.backend == Backend::kStatic) me.node_rank = spec_.node_rank.value_or(0);
  me.identity = spec_.identity;
  if (past_.view) {
    const Legacy& last = past_.view->legacy;
    join.claim.epoch = last.epoch;
    join.claim.generation = last.generation;
    join.claim.round = last.round;
    join.claim.round_size = last.round_size;
    join.claim.in_round = past_.view->in_round;
    join.claim.running = join.claim.in_round && workers_running_;
    join.claim.succeeded = join.claim.in_round && workers_succeeded_;
    join.claim.seniority = past_.view->seniority;
    join.claim.restarts_used = last.restarts_used;
    join.claim.peers = peers_in_round(*past_.view);
  }
  return join;
}

Task<void> Membership::session(std::unique_ptr<Connection> connection) {
  connection_ = connection.get();
  const Instant begun = world_.clock.now();
  provisional_since_.reset();
  proof_us_ = answer_us_ = 0;
  connection->send(encode(introduce(*connection), begun));
  joined_at_ = begun;
  Instant next_beat = begun + beat_interval(heartbeat());
  while (true) {
    // Given up when the workers are fenced, not later: a host that speaks again must learn that they are gone.
    Instant give_up = answered_ ? std::max(heard_, stalled_) + fence_after(heartbeat()) : begun + kAnswerMax;
    // Another would-be host that gathers no quorum may be waiting on the wrong side: look around again.
    if (provisional_since_ && !finder_.hosting()) give_up = std::min(give_up, *provisional_since_ + 2 * heartbeat());
    const Instant wake = wakes_at_ = std::min(give_up, next_beat);
    auto received = co_await with_deadline(world_.clock.loop(), wake, connection->receive());
    const Instant now = world_.clock.now();
    notice_stall(now);
    if (now >= give_up && (!answered_ || now >= stalled_ + fence_after(heartbeat()))) {
      past_.was_closed = false;
      co_return;
    }
    if (now >= next_beat) {
      const Beat beat{now.time_since_epoch().count() / 1000, proof_us_, answer_us_};
      connection->send(encode(beat, now));
      next_beat = now + beat_interval(heartbeat());
    }
    if (!received) continue;
    if (!*received) {
      past_.was_closed = connection->ended() != Connection::End::kSilent;
      co_return;
    }
    const bool go_on = co_await handle(**received, *connection);
    if (!go_on) co_return;
  }
}

// False: this connection is of no use any more.
Task<bool> Membership::handle(const std::string& text, Connection& connection) {
  const Message message = decode(text, world_.clock.now());
  if (const auto* beat = std::get_if<Beat>(&message)) {
    const Instant sent(std::chrono::microseconds(beat->sent_us));
    if (sent <= world_.clock.now()) heard_ = std::max(heard_, sent);
    if (joined_) vouched_ = heard_;
    answer_us_ = beat->at_us;
    proof_us_ = beat->since_us;
    // At once: the host's quorum rests on what it knows that we know.
    connection.send(encode(Beat{0, proof_us_}, world_.clock.now()));
    co_return true;
  }
  if (const auto* moved = std::get_if<Moved>(&message)) {
    past_.hint = *moved;
    past_.was_closed = true;
    // The one who sent us on may know an old host only: do not spin.
    co_await Sleep(world_.clock.loop(), world_.clock.now() + 20ms);
    co_return false;
  }
  if (const auto* refused = std::get_if<Refused>(&message)) {
    throw Error(ErrorCode::kConflict, "the rendezvous refused this agent: " + refused->reason,
                connection.peer_address());
  }
  if (const auto* view = std::get_if<View>(&message)) co_return accept(*view);
  co_return true;
}

bool Membership::accept(const View& view) {
  // The answer proves that our greeting was heard.
  if (!answered_) heard_ = joined_at_;
  answered_ = true;
  own_host_ = finder_.hosting();
  if (!view.provisional) {
    const bool stale = past_.view && !newer_or_same(view.legacy, past_.view->legacy);
    if (stale) return false;
    if (!joined_) events_.write("joined", {{"address", to_string(finder_.found())}});
    past_.view = view;
    past_.host = finder_.found();
    provisional_since_.reset();
    if (view.assignment) my_round_ = view.legacy.generation;
    finder_.settled(view);
    joined_ = true;
    vouched_ = std::max(vouched_, heard_);
    fenced_ = false;
  } else {
    if (!provisional_since_) provisional_since_ = world_.clock.now();
    finder_.following(view);
    // A host in office has lost its quorum: the other side may be about to go on.
    if (joined_) fence();
    joined_ = false;
  }
  changed_.notify();
  sink_(view);
  // The host waits until it sees us go.
  if (view.host_leaves) past_.was_closed = true;
  return !view.host_leaves;
}

// Whether all agents of the group live on this machine, for sure. A view names all of them if the host knows that it is
// so, with addresses of this machine.
bool Membership::nobody_elsewhere() const {
  if (!past_.view || !past_.view->legacy.terms.needs_quorum) return false;  // else somebody may ask etcd at any time
  const View& view = *past_.view;
  if (view.provisional || !view.assignment || !view.missing.empty()) return false;
  const int agents = view.assignment->group_world_size + view.legacy.spares;
  if (agents == 1) return true;
  if (static_cast<size_t>(agents) > view.successors.size()) return false;
  const std::vector<std::string> ours = world_.network.addresses();
  return std::ranges::all_of(view.successors, [&](const Successor& agent) {
    return is_loopback(agent.address) || agent.address == world_.machine.hostname ||
           std::ranges::find(ours, agent.address) != ours.end();
  });
}

// A process that stood still has not heard whether it is still wanted. On one machine it hears that now: whoever went
// on without it has told its kernel. Elsewhere it must not wait for that.
void Membership::notice_stall(Instant now) {
  if (now <= wakes_at_ || now - wakes_at_ < kStall) return;
  wakes_at_ = Instant::max();
  if (nobody_elsewhere()) stalled_ = now;
}

void Membership::fence() {
  if (std::exchange(fenced_, true)) return;
  fenced_round_ = my_round_;
  workers_running_ = false;
  sink_(Fence{});
}

Task<void> Membership::watch_fence() {
  while (true) {
    // An agent that stopped hosting was replaced, or must not go on. Else: what the last real host promised holds.
    const bool replaced = own_host_ && !connection_;
    notice_stall(world_.clock.now());
    const Instant deadline = replaced ? lost_ : std::max(vouched_, stalled_) + fence_after(heartbeat());
    if (fenced_) {
      co_await changed_.wait();
    } else if (world_.clock.now() >= deadline) {
      fence();
    } else {
      co_await changed_.wait_until(deadline);
    }
  }
}

void Membership::say(const Message& message) {
  if (connection_ && answered_) connection_->send(encode(message, world_.clock.now()));
}

void Membership::set_workers(Generation generation, bool running, bool succeeded) {
  workers_running_ = running && generation == my_round_ && generation != fenced_round_;
  workers_succeeded_ = succeeded && generation == my_round_;
}

Duration Membership::heartbeat() const { return past_.view ? past_.view->legacy.terms.heartbeat : spec_.heartbeat; }

}  // namespace rubato::agent
