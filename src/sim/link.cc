#include "sim/link.h"

#include <algorithm>

#include "sim/program_network.h"

namespace rubato::sim {

// world/network.h: a peer that does not read is cut off once 64 MiB wait for it.
constexpr size_t kUnreadBytesMax = size_t{64} << 20;

Link::Half::Half(Link& link_in, int index_in, const Party& party)
    : link(link_in),
      index(index_in),
      node(party.node),
      silence_max(party.silence_max),
      name(party.name),
      arrived(party.loop),
      arrival(*this, &Half::arrive),
      silence(*this, &Half::silent),
      probing(*this, &Half::probe) {}

Link::Link(SimNetwork& network, uint64_t id, const Party& client, const Party& server, uint16_t port)
    : network_(network), id_(id), port_(port), ends_{Half(*this, kClient, client), Half(*this, kServer, server)} {}

std::shared_ptr<Link> Link::open(SimNetwork& network, const Party& client, const Party& server, uint16_t port) {
  const uint64_t id = network.next_link_++;
  auto link = std::make_shared<Link>(network, id, client, server, port);
  network.adopt(link, id);
  network.simulator().record(EventKind::kConnection, client.node.id, id);
  link->travel(kClient, Packet::Kind::kOpen, {});
  return link;
}

void Link::send(int from, std::string bytes) {
  Half& half = ends_[from];
  Half& peer = ends_[1 - from];
  if (half.gone) return;
  peer.unread_bytes += bytes.size();
  if (peer.unread_bytes > kUnreadBytesMax) {
    network_.simulator().mark("network.peer_does_not_read");
    half.travelling.clear();
    const auto keep = shared_from_this();
    end(from, Connection::End::kClosed);
    travel(from, Packet::Kind::kEnd, {});
    return;
  }
  travel(from, Packet::Kind::kMessage, std::move(bytes));
}

Task<std::optional<std::string>> Link::receive(int at) {
  Half& half = ends_[at];
  while (half.inbox.empty() && !half.gone) co_await half.arrived.wait();
  if (half.inbox.empty()) co_return std::nullopt;
  std::optional<std::string> out(std::move(half.inbox.front()));
  half.inbox.pop_front();
  half.unread_bytes -= std::min(half.unread_bytes, out->size());
  co_return out;
}

void Link::close(int from) {
  const auto keep = shared_from_this();
  Half& half = ends_[from];
  if (half.gone) return;
  if (!half.inbox.empty() && network_.random_.chance(0.5)) {
    // A socket closed with unread data sends a reset, which may overtake what still waits to be sent again.
    network_.simulator().mark("network.reset_on_close");
    half.travelling.clear();
  }
  leave(half);
  if (half.node.up) travel(from, Packet::Kind::kEnd, {});
}

void Link::lose_node(NodeId id, bool drop_what_travels) {
  const auto keep = shared_from_this();
  for (Half& half : ends_) {
    if (half.node.id != id) continue;
    if (drop_what_travels || half.blocked) {
      half.travelling.clear();
      half.blocked = false;
      half.arrival.disarm();
    }
    leave(half);
  }
}

void Link::path_changed() {
  const bool works = network_.round_trip(ends_[0].node.id, ends_[1].node.id);
  for (Half& half : ends_) {
    if (half.blocked && network_.deliverable(half.node.id, ends_[1 - half.index].node.id)) send_again(half);
    if (half.gone) continue;
    if (works) {
      hear_again(half);
    } else if (!half.silence.armed()) {
      const double jitter = static_cast<double>(half.silence_max.count()) * network_.faults.silence_jitter;
      const Duration patience = half.silence_max + network_.random_up_to(Duration(static_cast<int64_t>(jitter)));
      half.node.kernel->arm(half.silence, half.node.kernel->now() + patience);
    }
  }
}

void Link::send_again(Half& half) {
  // TCP backs off: the longer the cut, the later the next attempt.
  Simulator& simulator = network_.simulator();
  const NetworkFaults& faults = network_.faults;
  const Duration cut_for = simulator.now() - half.blocked_since;
  const Duration late_max = std::max(faults.retransmit_min, std::min(cut_for, faults.retransmit_max));
  half.blocked = false;
  simulator.arm(half.arrival, simulator.now() + faults.latency_min + network_.random_up_to(late_max));
}

void Link::hear_again(Half& half) {
  half.silence.disarm();
  const Half& peer = ends_[1 - half.index];
  if (!peer.gone || !peer.travelling.empty() || half.probing.armed()) return;
  // The next keep-alive finds that the other kernel has forgotten the connection.
  const Duration until_probe = network_.faults.latency_min + network_.random_up_to(half.silence_max / 4);
  network_.simulator().arm(half.probing, network_.simulator().now() + until_probe);
}

void Link::travel(int from, Packet::Kind kind, std::string bytes) {
  Half& half = ends_[from];
  const Instant soonest = network_.simulator().now() + network_.latency(half.node.id, ends_[1 - from].node.id);
  half.last_arrival = std::max(half.last_arrival, soonest);
  half.travelling.push_back(Packet{kind, half.last_arrival, std::move(bytes)});
  if (!half.blocked && !half.arrival.armed()) network_.simulator().arm(half.arrival, half.travelling.front().at);
}

void Link::arrive(int from) {
  const auto keep = shared_from_this();
  Half& half = ends_[from];
  if (half.travelling.empty()) return;
  Simulator& simulator = network_.simulator();
  if (!network_.deliverable(half.node.id, ends_[1 - from].node.id)) {
    simulator.mark("network.blocked");
    half.blocked = true;
    half.blocked_since = simulator.now();
    return;
  }
  Packet packet = std::move(half.travelling.front());
  half.travelling.pop_front();
  if (!half.travelling.empty()) simulator.arm(half.arrival, std::max(simulator.now(), half.travelling.front().at));
  deliver(from, std::move(packet));
}

void Link::deliver(int from, Packet packet) {
  Half& to = ends_[1 - from];
  if (to.gone) {
    if (!ends_[from].gone && packet.kind == Packet::Kind::kMessage) travel(to.index, Packet::Kind::kEnd, {});
    return;
  }
  switch (packet.kind) {
    case Packet::Kind::kOpen:
      give_to_listener();
      return;
    case Packet::Kind::kEnd:
      end(to.index, Connection::End::kClosed);
      return;
    case Packet::Kind::kMessage:
      network_.simulator().record(EventKind::kMessage, to.node.id, hash_of(packet.bytes));
      to.inbox.push_back(std::move(packet.bytes));
      to.arrived.notify();
      return;
  }
}

void Link::give_to_listener() {
  Half& server = ends_[kServer];
  const auto found = server.node.ports.find(port_);
  if (found != server.node.ports.end() && found->second && &found->second->loop() == &server.arrived.loop()) {
    found->second->offer(shared_from_this());
  } else {
    close(kServer);  // it has stopped listening meanwhile
  }
}

void Link::probe(int at) {
  const Half& half = ends_[at];
  const Half& peer = ends_[1 - at];
  if (half.gone || !peer.gone || !peer.travelling.empty()) return;
  if (!network_.round_trip(half.node.id, peer.node.id)) return;
  network_.simulator().mark("network.reset");
  end(at, Connection::End::kClosed);
}

void Link::end(int at, Connection::End how) {
  const auto keep = shared_from_this();
  Half& half = ends_[at];
  if (half.gone) return;
  if (how == Connection::End::kSilent) network_.simulator().mark("network.silent");
  network_.simulator().record(EventKind::kConnection, half.node.id, id_ << 2 | static_cast<uint64_t>(how));
  half.how = how;
  half.travelling.clear();
  half.blocked = false;
  half.arrival.disarm();
  leave(half);
  half.arrived.notify();
}

void Link::leave(Half& half) {
  half.gone = true;
  half.silence.disarm();
  half.probing.disarm();
  if (!ends_[1 - half.index].gone) return;
  for (Half& each : ends_) {
    each.travelling.clear();
    each.arrival.disarm();
  }
  network_.forget(id_);
}

}  // namespace rubato::sim
