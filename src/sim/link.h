// Link: one simulated TCP connection, as the kernels of its two ends see it.
//
// An end:   (1) open ──FIN or RST arrives──▶ (2) ended kClosed
//               open ──no round trip for silence_max──▶ (3) ended kSilent
//               open ──its program closes it──▶ (4) closed: a FIN follows what is still on the way
//               open ──power off──▶ (5) closed, nothing follows
// In (2) to (5) the end is `gone`: what arrives there is answered with a reset, as is a keep-alive of the other end.
// When both are gone the network forgets the link. Messages arrive in order; one that finds the path cut waits
// (TCP sends it again) and arrives some time after the cut has healed.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>

#include "core/channel.h"
#include "sim/network.h"
#include "world/network.h"

namespace rubato::sim {

class Link final : public std::enable_shared_from_this<Link> {
 public:
  struct Party {
    Node& node;
    LocalLoop& loop;  // of the program that owns this end
    Duration silence_max;
    std::string name = {};  // what it has proven to be
  };
  static constexpr int kClient = 0, kServer = 1;

  // The client's end is open at once; the server's program gets its end when the first packet has arrived there.
  static std::shared_ptr<Link> open(SimNetwork& network, const Party& client, const Party& server, uint16_t port);
  Link(SimNetwork& network, uint64_t id, const Party& client, const Party& server, uint16_t port);

  void send(int from, std::string bytes);
  Task<std::optional<std::string>> receive(int at);
  void close(int from);
  Connection::End ended(int at) const { return ends_[at].how; }
  Node& node(int at) { return ends_[at].node; }
  const std::string& name(int at) const { return ends_[at].name; }

  // For SimNetwork.
  void lose_node(NodeId id, bool drop_what_travels);
  void path_changed();

 private:
  struct Packet {
    enum class Kind { kOpen, kMessage, kEnd };
    Kind kind;
    Instant at;
    std::string bytes;
  };
  struct Half {
    Half(Link& link, int index, const Party& party);
    void arrive() { link.arrive(index); }
    void silent() { link.end(index, Connection::End::kSilent); }
    void probe() { link.probe(index); }

    Link& link;
    const int index;
    Node& node;
    Duration silence_max;
    const std::string name;
    bool gone = false;
    Connection::End how = Connection::End::kOpen;

    std::deque<std::string> inbox;
    Event arrived;
    size_t unread_bytes = 0;  // sent by the other end, not yet read here

    std::deque<Packet> travelling;  // to the other end
    Instant last_arrival{};
    bool blocked = false;
    Instant blocked_since{};
    Due<Half> arrival;
    Due<Half> silence;  // in the machine's own time
    Due<Half> probing;
  };

  void send_again(Half& half);
  void hear_again(Half& half);
  void travel(int from, Packet::Kind kind, std::string bytes);
  void arrive(int from);
  void deliver(int from, Packet packet);
  void give_to_listener();
  void probe(int at);
  void end(int at, Connection::End how);
  void leave(Half& half);

  SimNetwork& network_;
  const uint64_t id_;
  const uint16_t port_;
  std::array<Half, 2> ends_;
};

}  // namespace rubato::sim
