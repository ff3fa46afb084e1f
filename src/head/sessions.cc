#include "head/sessions.h"

#include <fmt/format.h>

#include "core/turns.h"

namespace rubato::head {

using namespace elastic;

namespace {
// An agent that connects and says nothing is not kept.
constexpr Duration kGreetingMax = 5s;
// Who delivers reads a disk and compresses between two messages.
constexpr Duration kDeliveryQuietMax = 60s;

bool is_of_checkpoint(const ToHead& message) {
  if (const auto* offer = std::get_if<OutputOffer>(&message)) return offer->checkpoint.has_value();
  if (const auto* part = std::get_if<OutputPart>(&message)) return part->checkpoint.has_value();
  const auto* wanted = std::get_if<PackageWanted>(&message);
  return wanted && !wanted->checkpoint_of.value.empty();
}

}  // namespace

Sessions::Sessions(World& world, SessionHost& host, Log log, SessionTerms terms, ListeningClock& listening)
    : world_(world),
      host_(host),
      log_(std::move(log)),
      terms_(terms),
      listening_(listening),
      scope_(world.clock.loop()) {}

Task<void> Sessions::serve(Listener& listener, uint64_t epoch) {
  while (true) {
    std::unique_ptr<Connection> connection = co_await listener.accept();
    scope_.spawn(attend(std::move(connection), epoch));
  }
}

Task<std::optional<Hello>> Sessions::greet(Connection& connection, uint64_t epoch) {
  const auto answered = co_await within(world_.clock.loop(), listening_, kGreetingMax, connection.receive());
  if (!answered || !*answered) co_return std::nullopt;
  ToHead message = decode_to_head(**answered, world_.clock.now());
  if (const auto* delivery = std::get_if<Delivery>(&message)) co_await take_delivery(connection, *delivery, epoch);
  if (const auto* ask = std::get_if<LeaseAsk>(&message)) co_await answer_leases(connection, *ask, epoch);
  auto* hello = std::get_if<Hello>(&message);
  if (!hello) co_return std::nullopt;
  if (hello->head_epoch > epoch) {
    // This head was replaced and does not know it yet. What it would say could end an agent that the next one needs.
    log_.warning("an agent has obeyed a newer head", {{"node", hello->node.value}, {"epoch", hello->head_epoch}});
    co_return std::nullopt;
  }
  std::optional<std::string> refusal;
  if (hello->protocol != kNodeProtocol) {
    refusal = fmt::format("this head speaks protocol {}, the agent {}: use the same version of rubato", kNodeProtocol,
                          hello->protocol);
  } else if (connection.peer_name() != "node/" + hello->node.value) {
    refusal = fmt::format("its certificate is for '{}', not for node '{}'", connection.peer_name(), hello->node.value);
  } else {
    refusal = host_.refuse(*hello);
  }
  if (refusal) {
    log_.warning("agent refused", {{"node", hello->node.value}, {"why", *refusal}});
    Goodbye goodbye;
    goodbye.reason = *refusal;
    goodbye.refused = true;
    connection.send(encode(ToAgent(goodbye)));
    // It hangs up when it has read this.
    (void)co_await with_deadline(world_.clock.loop(), world_.clock.now() + kGreetingMax, connection.receive());
    co_return std::nullopt;
  }
  co_return std::move(*hello);
}

Task<void> Sessions::attend(std::unique_ptr<Connection> connection, uint64_t epoch) {
  std::optional<Hello> hello;
  try {
    hello = co_await greet(*connection, epoch);
  } catch (const std::exception& error) {
    log_.warning("bad greeting", {{"from", connection->peer_address()}, {"error", error.what()}});
  }
  if (!hello) co_return;
  const NodeId node = hello->node;
  auto session = std::make_shared<Session>();
  session->connection = std::move(connection);
  session->agent = hello->agent;
  session->heard = listening_.at(world_.clock.now());
  sessions_[node] = session;

  session->connection->send(encode(ToAgent(welcome(epoch, node))));
  host_.connected(*hello);
  bool closed = false;
  try {
    closed = co_await listen_to(node, *session);
  } catch (const std::exception& error) {
    log_.warning("agent cut off", {{"node", node.value}, {"error", error.what()}});
  }
  if (!is_current(node, *session)) co_return;  // it is back already on a newer connection
  sessions_.erase(node);
  host_.disconnected(node, closed);
}

// The head's own machine cannot be cut off from it.
Welcome Sessions::welcome(uint64_t epoch, const NodeId& node) const {
  Welcome welcome;
  welcome.head_epoch = epoch;
  welcome.heartbeat = terms_.heartbeat;
  welcome.leased = terms_.leased && node.value != kHeadNode;
  welcome.stays_here = terms_.stays_here;
  return welcome;
}

Task<void> Sessions::answer_leases(Connection& connection, LeaseAsk ask, uint64_t epoch) {
  const NodeId node = ask.node;
  while (ask.node == node && connection.peer_name() == "node/" + node.value && ask.head_epoch <= epoch) {
    LeaseAnswer answer;
    answer.sent_us = ask.sent_us;
    answer.word = host_.vouch(node, ask.agent);
    if (const auto it = sessions_.find(node); it != sessions_.end() && it->second->agent == ask.agent)
      it->second->heard = listening_.at(world_.clock.now());
    connection.send(encode(ToAgent(answer)));
    const auto received = co_await within(world_.clock.loop(), listening_, 2 * terms_.heartbeat, connection.receive());
    if (!received || !*received) co_return;
    const ToHead message = decode_to_head(**received, world_.clock.now());
    const auto* next = std::get_if<LeaseAsk>(&message);
    if (!next) co_return;
    ask = *next;
  }
}

Task<void> Sessions::take_delivery(Connection& connection, Delivery delivery, uint64_t epoch) {
  const NodeId node = delivery.node;
  if (connection.peer_name() != "node/" + node.value) {
    log_.warning("delivery refused", {{"node", node.value}, {"certificate", connection.peer_name()}});
    co_return;
  }
  const std::pair key(node, delivery.purpose);
  deliveries_[key] = &connection;
  connection.send(encode(ToAgent(welcome(epoch, node))));
  bool more = true;
  while (more) {
    const auto received = co_await within(world_.clock.loop(), listening_, kDeliveryQuietMax, connection.receive());
    const auto newest = deliveries_.find(key);
    // Who only fetches may do so on several at once.
    const bool current =
        delivery.purpose == Delivery::Purpose::kFetch || (newest != deliveries_.end() && newest->second == &connection);
    if (!current) co_return;
    if (!received || !*received) break;
    ToHead message = decode_to_head(**received, world_.clock.now());
    more = co_await take_delivered(connection, node, std::move(message));
  }
  const auto newest = deliveries_.find(key);
  if (newest != deliveries_.end() && newest->second == &connection) deliveries_.erase(newest);
}

Task<void> Sessions::take_checkpoint(Connection& connection, const NodeId& node, ToHead message) {
  if (auto* offer = std::get_if<OutputOffer>(&message)) {
    const OutputAck ack = co_await host_.checkpoint_offered(node, std::move(*offer));
    connection.send(encode(ToAgent(ack)));
  } else if (auto* part = std::get_if<OutputPart>(&message)) {
    const OutputAck ack = co_await host_.keep_checkpoint(node, std::move(*part));
    connection.send(encode(ToAgent(ack)));
  } else if (auto* wanted = std::get_if<PackageWanted>(&message)) {
    const PackagePart part = co_await host_.checkpoint_part(std::move(*wanted));
    connection.send(encode(ToAgent(part)));
  }
}

Task<bool> Sessions::take_delivered(Connection& connection, const NodeId& node, ToHead message) {
  if (is_of_checkpoint(message)) {
    co_await take_checkpoint(connection, node, std::move(message));
  } else if (auto* lines = std::get_if<LogLines>(&message)) {
    LogAck ack;
    ack.job = lines->job;
    const uint64_t last = lines->lines.empty() ? 0 : lines->lines.back().sequence;
    ack.sequence = co_await host_.keep_last_lines(node, std::move(*lines));
    ack.refused = ack.sequence < last;
    connection.send(encode(ToAgent(ack)));
  } else if (const auto* offer = std::get_if<OutputOffer>(&message)) {
    const OutputAck ack = co_await host_.output_offered(node, offer->job);
    connection.send(encode(ToAgent(ack)));
  } else if (auto* part = std::get_if<OutputPart>(&message)) {
    const OutputAck ack = co_await host_.keep_output(node, std::move(*part));
    connection.send(encode(ToAgent(ack)));
  } else if (const auto* trouble = std::get_if<OutputTrouble>(&message)) {
    host_.output_trouble(node, *trouble);
  } else if (std::holds_alternative<DeliveryEnd>(message)) {
    host_.delivered(node);
    Goodbye goodbye;
    goodbye.reason = "all of it is here";
    connection.send(encode(ToAgent(goodbye)));
    // It hangs up when it has read this.
    (void)co_await with_deadline(world_.clock.loop(), world_.clock.now() + kGreetingMax, connection.receive());
    co_return false;
  }
  co_return true;
}

Task<bool> Sessions::listen_to(const NodeId& node, Session& session) {
  Turns turns(world_.clock.loop());  // an agent may have sent megabytes of lines at once
  while (true) {
    const auto received =
        co_await within(world_.clock.loop(), listening_, terms_.heartbeat, session.connection->receive());
    if (!received) co_return false;
    if (!*received) co_return session.connection->ended() == Connection::End::kClosed;
    // What comes late on a connection that was replaced would undo what the new one has told.
    if (!is_current(node, session)) co_return false;
    session.heard = listening_.at(world_.clock.now());
    ToHead message = decode_to_head(**received, world_.clock.now());
    co_await handle(node, session, std::move(message));
    co_await turns.step();
  }
}

std::optional<Instant> Sessions::heard(const NodeId& node) const {
  const auto it = sessions_.find(node);
  return it == sessions_.end() ? std::nullopt : std::optional<Instant>(it->second->heard);
}

std::optional<AgentId> Sessions::agent_of(const NodeId& node) const {
  const auto it = sessions_.find(node);
  return it == sessions_.end() ? std::nullopt : std::optional<AgentId>(it->second->agent);
}

bool Sessions::is_current(const NodeId& node, const Session& session) const {
  const auto it = sessions_.find(node);
  return it != sessions_.end() && it->second.get() == &session;
}

Task<void> Sessions::handle(const NodeId& node, Session& session, ToHead message) {
  if (const auto* beat = std::get_if<NodeBeat>(&message)) {
    if (session.asked == 0 || beat->orders < session.asked) co_return;
    session.asked = 0;
    host_.caught_up(node);
  } else if (const auto* reports = std::get_if<Reports>(&message)) {
    host_.fenced(session.agent, reports->fenced);
    host_.reported(node, reports->job_orders);
  } else if (auto* lines = std::get_if<LogLines>(&message)) {
    LogAck ack;
    ack.job = lines->job;
    const uint64_t last = lines->lines.empty() ? 0 : lines->lines.back().sequence;
    // What comes after them waits: a report that workers have ended means that their lines are here.
    ack.sequence = co_await host_.keep_lines(node, session.agent, std::move(*lines));
    ack.refused = ack.sequence < last;
    session.connection->send(encode(ToAgent(ack)));
  } else if (const auto* wanted = std::get_if<PackageWanted>(&message)) {
    session.connection->send(encode(ToAgent(host_.package_part(*wanted))));
  } else if (const auto* leaving = std::get_if<Leaving>(&message)) {
    host_.leaving(node, *leaving);
  } else if (auto* hints = std::get_if<JobHints>(&message)) {
    host_.profiled(node, std::move(*hints));
  }
}

void Sessions::send_orders(const NodeId& node) {
  const auto it = sessions_.find(node);
  if (it == sessions_.end()) return;
  Orders orders = host_.orders(node);
  orders.revision = ++it->second->revision;
  for (std::string& message : encode_orders(std::move(orders))) it->second->connection->send(std::move(message));
}

void Sessions::ask_again() {
  for (const auto& [node, session] : sessions_) {
    send_orders(node);
    session->asked = session->revision;
  }
}

bool Sessions::asked(const NodeId& node) const {
  const auto it = sessions_.find(node);
  return it != sessions_.end() && it->second->asked != 0;
}

void Sessions::dismiss(const NodeId& node, const std::string& reason, bool refused) {
  const auto it = sessions_.find(node);
  if (it == sessions_.end()) return;
  Goodbye goodbye;
  goodbye.reason = reason;
  goodbye.refused = refused;
  it->second->connection->send(encode(ToAgent(goodbye)));
}

}  // namespace rubato::head
