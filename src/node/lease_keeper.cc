#include "node/lease_keeper.h"

#include <fmt/format.h>

#include <algorithm>

namespace rubato::node {

using namespace elastic;

namespace {

constexpr Duration kPauseMin = 50ms;
constexpr Duration kListenAgain = 5s;
// Others may be on slow machines; the lease is over before a longer wait is.
constexpr Duration kAskConnectMax = 1s;
constexpr size_t kPeersMax = 20'000;

int64_t micros_of(Instant time) {
  return std::chrono::floor<std::chrono::microseconds>(time.time_since_epoch()).count();
}
std::vector<AgentId> agents_of(const LeaseTerms& terms) {
  std::vector<AgentId> agents;
  for (const WitnessAddress& one : terms.witnesses) agents.push_back(one.agent);
  return agents;
}

Instant instant_of(int64_t micros) { return Instant{} + std::chrono::microseconds(micros); }

}  // namespace

LeaseKeeper::LeaseKeeper(World& world, const NodeSettings& settings, AgentId self, std::function<void()> on_renewed,
                         std::function<void()> on_fenced)
    : world_(world),
      settings_(settings),
      self_(std::move(self)),
      on_renewed_(std::move(on_renewed)),
      on_fenced_(std::move(on_fenced)),
      holder_(self_),
      changed_(world.clock.loop()),
      scope_(world.clock.loop()) {
  // Its own address, if it is one of this machine, else all.
  for (const std::string& host : {settings_.address, std::string()}) {
    if (listener_) break;
    try {
      listener_ = world_.network.listen(Endpoint{host, 0}, settings_.key, 2 * heartbeat_);
    } catch (const Error&) {
      // Without a port nobody can ask it, and its death is known by silence only.
    }
  }
}

Task<void> LeaseKeeper::run() {
  Scope scope(world_.clock.loop());
  if (listener_) scope.spawn(listen());
  scope.spawn(ask_head());
  scope.spawn(ask_witnesses());
  scope.spawn(watch_fence());
  co_await scope.join();
}

void LeaseKeeper::welcomed(const Welcome& welcome, Instant greeted) {
  heartbeat_ = welcome.heartbeat;
  holder_.set_heartbeat(heartbeat_);
  witness_.set_heartbeat(heartbeat_);
  leased_ = welcome.leased;
  stays_here_ = welcome.stays_here;
  head_epoch_ = std::max(head_epoch_, welcome.head_epoch);
  reached_ = head();
  holder_.heard_by_head(greeted);
  changed_.notify();
  on_renewed_();
}

void LeaseKeeper::follow(const Orders& orders) {
  witnesses_.clear();
  std::set<RoundId> kept = live_, shared;
  for (const JobOrder& job_order : orders.job_orders) {
    if (job_order.phase != Phase::kRunning && job_order.kept == 0) continue;
    LeaseTerms terms = lease_terms(job_order);
    kept.insert(terms.round);
    if (!terms.witnesses.empty()) shared.insert(terms.round);
    for (const WitnessAddress& one : terms.witnesses) {
      if (one.agent != self_ && one.port != 0) witnesses_[one.agent] = one;
    }
    const RoundId round = terms.round;
    terms_.insert_or_assign(round, std::move(terms));
  }
  std::erase_if(terms_, [&](const auto& entry) { return !kept.contains(entry.first); });
  holder_.keep_rounds(kept);
  rounds_.assign(shared.begin(), shared.end());
  witness_.follow(std::move(shared), std::set<AgentId>(orders.fence.begin(), orders.fence.end()));
  changed_.notify();
  on_renewed_();
  on_fenced_();
}

std::optional<Instant> LeaseKeeper::valid_until(const LeaseTerms& terms) const {
  if (!leased_ && !holder_.given_up()) return std::nullopt;
  return holder_.valid_until(terms.round, agents_of(terms), terms.lease);
}

std::vector<AgentId> LeaseKeeper::fenced() const {
  const std::set<AgentId> clear = witness_.clear_of(world_.clock.now());
  return {clear.begin(), clear.end()};
}

Endpoint LeaseKeeper::head() const {
  return settings_.find_head ? settings_.find_head().value_or(settings_.head) : settings_.head;
}

Task<void> LeaseKeeper::listen() {
  while (true) {
    std::unique_ptr<Connection> connection = co_await listener_->accept();
    if (scope_.running() < kPeersMax) scope_.spawn(serve(std::move(connection)));
  }
}

Task<void> LeaseKeeper::serve(std::unique_ptr<Connection> connection) {
  try {
    while (true) {
      const Instant deadline = world_.clock.now() + 2 * heartbeat_;
      const auto received = co_await with_deadline(world_.clock.loop(), deadline, connection->receive());
      if (!received || !*received) co_return;
      const ToHead message = decode_to_head(**received);
      const auto* ask = std::get_if<LeaseAsk>(&message);
      if (!ask || connection->peer_name() != "node/" + ask->node.value) co_return;
      if (ask->stopped) {
        witness_.stopped(ask->agent);
        on_fenced_();
      }
      LeaseAnswer answer;
      answer.agent = self_;
      answer.sent_us = ask->sent_us;
      if (!ask->stopped) answer.rounds = witness_.vouch(ask->agent, ask->rounds, world_.clock.now());
      if (!answer.rounds.empty()) answer.word = LeaseAnswer::Word::kGoOn;
      if (witness_.is_fenced(ask->agent)) answer.word = LeaseAnswer::Word::kGivenUp;
      connection->send(encode(ToAgent(answer)));
    }
  } catch (const Error&) {
    // Whoever speaks otherwise is none of ours.
  }
}

Task<void> LeaseKeeper::ask_head() {
  while (true) {
    if (!leased_) {
      co_await changed_.wait();
      continue;
    }
    const Instant began = world_.clock.now();
    Endpoint endpoint = head();
    ChannelKey key = settings_.key;
    const bool known = reached_ == endpoint;
    ConnectResult result =
        co_await world_.network.connect(std::move(endpoint), std::move(key), began + kAskConnectMax, heartbeat_);
    if (result.connection) {
      AgentId nobody;
      co_await ask_over(*result.connection, std::move(nobody));
      result.connection.reset();
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kPauseMin);
      continue;
    }
    // There is no head where it was, and none can be elsewhere: the next one counts from its start.
    const bool none = result.failure && result.failure->kind == ConnectFailure::Kind::kRefused;
    if (none && known && stays_here_) missed_head(began);
    co_await Sleep(world_.clock.loop(), world_.clock.now() + beat_interval(heartbeat_));
  }
}

Task<void> LeaseKeeper::ask_witnesses() {
  while (true) {
    const Instant now = world_.clock.now();
    if (!leased_ || witnesses_.empty()) {
      co_await changed_.wait();
      continue;
    }
    if (!holder_.asks_others(now) && !holder_.given_up()) {
      co_await Sleep(world_.clock.loop(), holder_.asks_others_at());
      continue;
    }
    for (const auto& [agent, witness] : witnesses_) {
      if (asked_.insert(agent).second) scope_.spawn(ask_witness(witness));
    }
    co_await Sleep(world_.clock.loop(), now + beat_interval(heartbeat_));
  }
}

Task<void> LeaseKeeper::ask_witness(WitnessAddress witness) {
  Endpoint endpoint{witness.address, witness.port};
  ChannelKey key = settings_.key;
  const Instant deadline = world_.clock.now() + kAskConnectMax;
  ConnectResult result = co_await world_.network.connect(std::move(endpoint), std::move(key), deadline, heartbeat_);
  AgentId agent = witness.agent;
  if (result.connection) co_await ask_over(*result.connection, std::move(agent));
  asked_.erase(witness.agent);
}

Task<void> LeaseKeeper::ask_over(Connection& connection, AgentId agent) {
  const bool is_head = agent.value.empty();
  while (is_head || holder_.asks_others(world_.clock.now()) || holder_.given_up()) {
    LeaseAsk ask;
    ask.node = settings_.node;
    ask.agent = self_;
    ask.head_epoch = head_epoch_;
    ask.sent_us = micros_of(world_.clock.now());
    ask.stopped = holder_.given_up() && live_.empty();
    if (!is_head) ask.rounds = rounds_;
    const ToHead message = ask;
    connection.send(encode(message));
    const Instant deadline = world_.clock.now() + heartbeat_;
    const auto received = co_await with_deadline(world_.clock.loop(), deadline, connection.receive());
    if (!received || !*received) co_return;
    try {
      const ToAgent answered = decode_to_agent(**received);
      if (const auto* answer = std::get_if<LeaseAnswer>(&answered)) take(*answer, agent);
    } catch (const Error&) {
      co_return;
    }
    // Of all messages these are the most: the head is asked no more often than its answers are needed.
    const Duration usual = is_head ? heartbeat_ / 3 : beat_interval(heartbeat_);
    const Duration pause = holder_.given_up() ? kPauseMin : usual;
    co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
  }
}

void LeaseKeeper::missed_head(Instant asked) {
  const Instant now = world_.clock.now();
  for (const auto& [round, terms] : terms_) holder_.missed_head(round, agents_of(terms), terms.lease, asked, now);
  on_renewed_();
}

void LeaseKeeper::take(const LeaseAnswer& answer, const AgentId& agent) {
  // Another agent may listen there by now.
  if (answer.agent != agent) return;
  const Instant sent = instant_of(answer.sent_us);
  switch (answer.word) {
    case LeaseAnswer::Word::kNotKnown:
      return;
    case LeaseAnswer::Word::kGoOn:
      if (agent.value.empty()) holder_.heard_by_head(sent);
      for (const RoundId& round : answer.rounds) holder_.heard_by(agent, round, sent);
      break;
    case LeaseAnswer::Word::kGivenUp:
      if (!holder_.given_up()) {
        world_.console.err(fmt::format("{} agent {}: this node was given up; its workers end now\n",
                                       format_time(world_.clock.wall()), settings_.node.value));
      }
      holder_.give_up();
      break;
  }
  on_renewed_();
}

Task<void> LeaseKeeper::watch_fence() {
  while (true) {
    const std::optional<Instant> next = witness_.next(world_.clock.now());
    if (next) {
      co_await changed_.wait_until(*next);
    } else {
      co_await changed_.wait();
    }
    on_fenced_();
  }
}

}  // namespace rubato::node
