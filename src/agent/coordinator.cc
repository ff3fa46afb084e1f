#include "agent/coordinator.h"

#include <nlohmann/json.hpp>

namespace rubato::agent {

using namespace elastic;

namespace {
// Changes that nobody acts on are gathered for this long, so that a thousand agents that join do not cause a million
// messages.
constexpr Duration kDetailsInterval = 50ms;
// An agent that connects and says nothing is not kept.
constexpr Duration kGreetingMax = 5s;
int64_t micros(Instant at) { return at.time_since_epoch().count() / 1000; }

// At the end: how long agents that stop their workers are waited for beyond what they need is up to them; one that
// has gone silent is given up with the heartbeat. This bounds the rest.
constexpr Duration kFarewellMax = 60s;
}  // namespace

Coordinator::Coordinator(World& world, AgentId self, ChannelKey key, std::string run_id, Rendezvous machine,
                         Confirm confirm, EventLog& events)
    : world_(world),
      self_(std::move(self)),
      key_(std::move(key)),
      run_id_(std::move(run_id)),
      machine_(std::move(machine)),
      confirm_(std::move(confirm)),
      events_(events),
      listening_(world.clock.now()),
      changed_(world.clock.loop()),
      scope_(world.clock.loop()) {}

Instant Coordinator::turn() {
  const Instant now = world_.clock.now();
  const Duration behind = now - listening_.at(now);
  if (behind > std::exchange(not_listened_, behind)) machine_.stood_still(now);
  return now;
}

void Coordinator::admit(std::unique_ptr<Connection> connection) { scope_.spawn(attend(std::move(connection))); }

void Coordinator::supersede(const Moved& by) {
  superseded_by_ = by;
  changed_.notify();
}

void Coordinator::retire(const std::string& reason) {
  machine_.retire(self_, reason, turn());
  changed_.notify();
}

Task<std::optional<AgentId>> Coordinator::greet(Connection& connection) {
  const Instant deadline = world_.clock.now() + kGreetingMax;
  auto answered = co_await with_deadline(world_.clock.loop(), deadline, connection.receive());
  if (!answered || !*answered) co_return std::nullopt;
  const Instant now = turn();
  if (machine_.retired()) co_return std::nullopt;
  const Message message = decode(**answered, now);
  if (const auto* moved = std::get_if<Moved>(&message)) {
    // A group that has run outranks one that only gathers, should both be led by their second host.
    const auto theirs = std::pair(moved->epoch, moved->round);
    if (theirs > std::pair(machine_.epoch(), machine_.legacy().round)) supersede(*moved);
    co_return std::nullopt;
  }
  if (const auto* where = std::get_if<Where>(&message)) {
    // With a quorum of the older round, this host would not look for the newer one: it must be told.
    if (!provisional()) machine_.saw_host(where->from, where->epoch);
    changed_.notify();
    if (machine_.superseded()) co_return std::nullopt;
    if (!provisional() || outranks(standing(), *where)) connection.send(encode(whereabouts(), now));
    co_return std::nullopt;
  }
  const auto* join = std::get_if<Join>(&message);
  if (!join) co_return std::nullopt;
  if (machine_.phase() == Phase::kEnded) {
    // Who comes late, or comes back, hears how it ended.
    connection.send(encode(common_view(), now));
    co_return std::nullopt;
  }
  std::optional<std::string> refusal;
  if (join->run_id != run_id_) {
    refusal = "this rendezvous is for the run id '" + run_id_ + "', not '" + join->run_id + "'";
  } else {
    refusal = machine_.join(join->member, join->claim, now);
  }
  changed_.notify();
  // One that knows of a newer host must look for that one: we are about to do the same.
  if (machine_.superseded()) co_return std::nullopt;
  if (refusal) {
    connection.send(encode(Refused{*refusal}, now));
    co_return std::nullopt;
  }
  co_return join->member.id;
}

Task<void> Coordinator::attend(std::unique_ptr<Connection> connection) {
  std::optional<AgentId> id;
  try {
    id = co_await greet(*connection);
    if (!id) co_return;
    sessions_[*id] = connection.get();
    send_view(*id, *connection);
    while (true) {
      const std::optional<std::string> text = co_await connection->receive();
      if (!text) break;
      // It was given up as silent, and goes on: it must come in again.
      if (!machine_.has(*id) && machine_.phase() != Phase::kEnded) break;
      dispatch(*id, decode(*text, world_.clock.now()));
    }
  } catch (const Error&) {
    // An agent that does not speak our language is cut off; its loss is then handled like any other.
  }
  // A member that came back has a newer session: then this end means nothing.
  const auto session = id ? sessions_.find(*id) : sessions_.end();
  if (session != sessions_.end() && session->second == connection.get()) {
    sessions_.erase(session);
    changed_.notify();
    // After the end everybody goes: no loss.
    if (machine_.phase() == Phase::kEnded || machine_.retired()) co_return;
    const Loss how = connection->ended() == Connection::End::kSilent ? Loss::kSilent : Loss::kClosed;
    const auto doorway = machine_.doorway(*id);
    machine_.disconnected(*id, how, turn());
    changed_.notify();
    if (how == Loss::kClosed && doorway) {
      const Endpoint there{doorway->address, doorway->port};
      co_await verify_death(*id, there);
    }
  }
}

Task<void> Coordinator::verify_death(AgentId id, Endpoint doorway) {
  const Instant deadline = world_.clock.now() + kReconnectWindow;
  const Duration silence_max = machine_.legacy().terms.heartbeat;
  ConnectResult result = co_await world_.network.connect(doorway, key_, deadline, silence_max);
  if (result.failure && result.failure->kind == ConnectFailure::Kind::kRefused) declare_dead(id, true);
}

void Coordinator::dispatch(const AgentId& id, const Message& message) {
  const Instant now = turn();
  if (const auto* beat = std::get_if<Beat>(&message)) {
    std::optional<Instant> proof;
    if (beat->proof_us > 0) proof = Instant(std::chrono::microseconds(beat->proof_us));
    machine_.heard(id, proof, now);
    const auto session = sessions_.find(id);
    if (beat->sent_us == 0 || session == sessions_.end()) return;
    Beat answer = *beat;
    answer.at_us = micros(now);
    session->second->send(encode(answer, now));
    return;
  }
  if (const auto* ready = std::get_if<Ready>(&message)) {
    machine_.ready(id, ready->generation, ready->port, now, ready->workers);
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    machine_.failed(id, failed->generation, failed->failures, now, failed->in_group);
  } else if (const auto* done = std::get_if<Succeeded>(&message)) {
    machine_.succeeded(id, done->generation, now);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    machine_.leaving(id, leave->reason, now);
  } else if (const auto* settled = std::get_if<Settled>(&message)) {
    machine_.settled(id, settled->generation, now);
  } else if (const auto* offer = std::get_if<Offer>(&message)) {
    machine_.offered(id, offer->generation, now);
  } else if (const auto* broken = std::get_if<Broken>(&message)) {
    machine_.broken(id, broken->generation, broken->reason, now);
  }
  changed_.notify();
}

void Coordinator::declare_dead(const AgentId& id, bool in_round) {
  machine_.declare_dead(id, in_round, turn());
  changed_.notify();
}

Moved Coordinator::whereabouts() const {
  return {address_.host, address_.port, machine_.epoch(), machine_.legacy().round, self_};
}

Where Coordinator::standing() const {
  const uint64_t epoch = machine_.incumbent() ? machine_.epoch() : machine_.epoch() - 1;
  return {epoch, machine_.legacy().round, machine_.incumbent(), machine_.seniority(self_), self_};
}

View Coordinator::common_view() const {
  View view = machine_.common_view();
  view.host = self_;
  view.host_in_round = machine_.in_round(self_);
  return view;
}

void Coordinator::send_view(const AgentId& id, Connection& connection) {
  if (machine_.revision() != published_revision_) {
    // What no authority has confirmed yet is told by publish() only; make sure that it comes by here.
    published_details_ = 0;
    return;
  }
  View view = common_view();
  machine_.personalise(view, id);
  connection.send(encode(view, world_.clock.now()));
}

Task<bool> Coordinator::publish() {
  const uint64_t revision = machine_.revision();
  const Instant now = world_.clock.now();
  if (revision == published_revision_ && (machine_.details() == published_details_ || now < next_details_)) {
    co_return true;
  }
  const bool acts = revision != published_revision_;
  View view = common_view();
  // Encoded before the confirmation: what is sent is what was confirmed.
  std::vector<std::pair<AgentId, std::string>> letters;
  for (const auto& [id, connection] : sessions_) {
    machine_.personalise(view, id);
    letters.emplace_back(id, encode(view, now));
  }
  published_details_ = machine_.details();
  next_details_ = now + kDetailsInterval;
  if (acts && confirm_ && view.phase != Phase::kGathering) {
    const bool confirmed = co_await confirm_(view);
    if (!confirmed) co_return false;
  }
  published_revision_ = revision;
  for (auto& [id, text] : letters) {
    const auto session = sessions_.find(id);
    if (session != sessions_.end()) session->second->send(std::move(text));
  }
  co_return true;
}

void Coordinator::write_notes() {
  for (const Note& note : machine_.take_notes()) {
    if (note.kind == Note::Kind::kJoined) {
      events_.write("member_joined",
                    {{"member", note.member.id.value}, {"host", note.member.host}, {"nproc", note.member.nproc}});
    } else if (note.kind == Note::Kind::kLost || note.kind == Note::Kind::kLeft) {
      events_.write("member_lost",
                    {{"member", note.member.id.value}, {"host", note.member.host}, {"reason", note.reason}});
    }
  }
}

Task<void> Coordinator::run() {
  std::optional<Instant> farewell;
  scope_.spawn(keep_listening(world_.clock.loop(), listening_));
  while (!superseded_by_ && !machine_.superseded()) {
    machine_.tick(turn());
    write_notes();
    const bool still_host = co_await publish();
    if (!still_host) co_return;
    const Instant now = world_.clock.now();
    if (machine_.phase() == Phase::kEnded || machine_.retired()) {
      if (!farewell) farewell = now + kFarewellMax;
      if (machine_.revision() == published_revision_ && (sessions_.empty() || now >= *farewell)) co_return;
    }
    if (machine_.revision() != published_revision_) continue;
    Instant wake = machine_.next_tick(now);
    if (machine_.details() != published_details_) wake = std::min(wake, next_details_);
    co_await changed_.wait_until(wake);
  }
  if (superseded_by_) {
    // Our agents come along.
    const std::string text = encode(*superseded_by_, world_.clock.now());
    for (const auto& [id, connection] : sessions_) connection->send(text);
  }
}

}  // namespace rubato::agent
