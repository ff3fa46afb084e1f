#include "sim/program_network.h"

#include <fmt/format.h>

#include <algorithm>

namespace rubato::sim {

namespace {

// A name of all machines, as a headless service of Kubernetes is for its pods.
constexpr std::string_view kEveryMachine = "every-node";

class SimConnection final : public Connection {
 public:
  SimConnection(std::shared_ptr<Link> link, int end, const ProgramLife& life)
      : link_(std::move(link)), end_(end), life_(life) {}
  ~SimConnection() override { link_->close(end_); }

  void send(std::string message) override {
    if (life_.running) link_->send(end_, std::move(message));
  }
  Task<std::optional<std::string>> receive() override { return link_->receive(end_); }
  End ended() const override { return link_->ended(end_); }
  std::string local_address() const override { return address(end_); }
  std::string peer_address() const override { return address(1 - end_); }
  std::string peer_name() const override { return link_->name(1 - end_); }

 private:
  std::string address(int end) const { return link_->node(end).address; }

  std::shared_ptr<Link> link_;
  const int end_;
  const ProgramLife& life_;
};

class SimPortLease final : public PortLease {
 public:
  SimPortLease(Node& node, uint16_t port) : node_(node), port_(port) { node_.take_port(port, nullptr); }
  ~SimPortLease() override { node_.ports.erase(port_); }
  uint16_t port() const override { return port_; }

 private:
  Node& node_;
  const uint16_t port_;
};

bool is_loopback(const std::string& host) { return host == "localhost" || host == "127.0.0.1" || host == "::1"; }

}  // namespace

SimListener::SimListener(Node& node, LocalLoop& loop, const ProgramLife& life, uint16_t port, bool local_only,
                         ChannelKey key, Duration silence_max)
    : node_(node),
      loop_(loop),
      life_(life),
      port_(port),
      local_only_(local_only),
      key_(std::move(key)),
      silence_max_(silence_max),
      arrived_(loop) {
  node_.take_port(port_, this);
}

SimListener::~SimListener() {
  node_.ports.erase(port_);
  while (std::optional<std::shared_ptr<Link>> link = arrived_.try_pop()) (*link)->close(Link::kServer);
}

bool SimListener::shares(const ChannelKey& key) const {
  const TlsFiles& mine = key_.identity;
  const TlsFiles& theirs = key.identity;
  if (mine.use_tls != theirs.use_tls) return false;
  if (!mine.use_tls) return key.secret == key_.secret;
  return mine.ca == theirs.ca && !mine.certificate.empty() && !theirs.certificate.empty();
}

Task<std::unique_ptr<Connection>> SimListener::accept() {
  std::optional<std::shared_ptr<Link>> link = co_await arrived_.pop();
  std::unique_ptr<Connection> connection = std::make_unique<SimConnection>(std::move(*link), Link::kServer, life_);
  co_return connection;
}

std::unique_ptr<Listener> ProgramNetwork::listen(const Endpoint& endpoint, const ChannelKey& key,
                                                 Duration silence_max) {
  if (!endpoint.host.empty() && network_.resolve(endpoint.host, node_.id) != &node_) {
    throw Error(ErrorCode::kFailed, "listen on " + endpoint.host + ": not an address of this machine", node_.name);
  }
  const uint16_t port = endpoint.port != 0 ? endpoint.port : node_.free_port();
  return std::make_unique<SimListener>(node_, loop_, life_, port, is_loopback(endpoint.host), key, silence_max);
}

ProgramNetwork::Answer ProgramNetwork::knock(const Node& target, uint16_t port, const ChannelKey& key) const {
  if (!network_.round_trip(node_.id, target.id)) return Answer::kNone;
  const auto found = target.ports.find(port);
  if (found == target.ports.end() || !found->second || !found->second->takes_from(node_.id)) return Answer::kRefused;
  if (found->second->loop().held()) return Answer::kNone;  // its kernel answers, its handshake does not
  return found->second->shares(key) ? Answer::kWelcome : Answer::kRejected;
}

ConnectResult ProgramNetwork::failure(ConnectFailure::Kind kind, const Endpoint& endpoint,
                                      const std::string& why) const {
  const std::string where = endpoint.host + ":" + std::to_string(endpoint.port);
  ConnectResult result;
  result.failure = ConnectFailure{kind, "connect to " + where + " from " + node_.address + ": " + why};
  return result;
}

ConnectResult ProgramNetwork::connected(Node& target, uint16_t port, const ChannelKey& key, Duration silence_max) {
  const Link::Party client{node_, loop_, silence_max, proven_name(key)};
  const Link::Party server = target.ports.at(port)->party();
  ConnectResult result;
  result.connection = std::make_unique<SimConnection>(Link::open(network_, client, server, port), Link::kClient, life_);
  return result;
}

Task<ConnectResult> ProgramNetwork::connect(Endpoint endpoint, ChannelKey key, Instant deadline, Duration silence_max) {
  const Instant begun = loop_.now();
  if (endpoint.host == kEveryMachine) {
    // One address after the other, each with its share of the time, as on the real machine.
    ConnectResult last = failure(ConnectFailure::Kind::kUnreachable, endpoint, "no such host");
    int count = 0;
    while (network_.resolve(fmt::format("node{}", count + 1), node_.id)) ++count;
    for (int i = 1; i <= count; ++i) {
      const Endpoint one{fmt::format("node{}", i), endpoint.port};
      const Instant until = loop_.now() + (deadline - loop_.now()) / (count - i + 1);
      last = co_await connect(one, key, until, silence_max);
      if (last.connection) break;
    }
    co_return last;
  }
  Node* target = network_.resolve(endpoint.host, node_.id);
  if (!target) {
    co_await Sleep(loop_, std::min(deadline, begun + network_.faults.latency_min));
    co_return failure(ConnectFailure::Kind::kUnreachable, endpoint, "no such host");
  }
  bool greeted = false;  // the first round trip opens the connection, the second proves the key
  for (Duration retry = network_.faults.syn_retry; loop_.now() < deadline;) {
    const Instant answered =
        loop_.now() + network_.latency(node_.id, target->id) + network_.latency(target->id, node_.id);
    co_await Sleep(loop_, std::min(answered, deadline));
    if (loop_.now() < answered) break;
    const Answer answer = knock(*target, endpoint.port, key);
    if (answer == Answer::kRefused) {
      co_return failure(ConnectFailure::Kind::kRefused, endpoint, "connection refused");
    }
    if (answer == Answer::kNone) {
      co_await Sleep(loop_, std::min(deadline, loop_.now() + retry));
      retry *= 2;
      greeted = false;
      continue;
    }
    if (!std::exchange(greeted, true)) continue;
    if (answer == Answer::kRejected) {
      co_return failure(ConnectFailure::Kind::kRejected, endpoint, "it does not share our key");
    }
    co_return connected(*target, endpoint.port, key, silence_max);
  }
  co_return failure(ConnectFailure::Kind::kUnreachable, endpoint,
                    "timed out after " + format_duration(loop_.now() - begun));
}

Task<bool> ProgramNetwork::is_local(std::string host) { co_return network_.resolve(host, node_.id) == &node_; }

Task<std::vector<std::string>> ProgramNetwork::resolve(std::string host) {
  std::vector<std::string> found;
  if (host != kEveryMachine) {
    if (const Node* node = network_.resolve(host, node_.id)) found.push_back(node->address);
    co_return found;
  }
  for (int i = 1; const Node* node = network_.resolve(fmt::format("node{}", i), node_.id); ++i) {
    found.push_back(node->address);
  }
  co_return found;
}

std::unique_ptr<PortLease> ProgramNetwork::lease_port(uint16_t wanted) {
  return std::make_unique<SimPortLease>(node_, wanted != 0 ? wanted : node_.free_port());
}

Task<HttpResponse> ProgramNetwork::call(Endpoint endpoint, TlsFiles, HttpRequest, Instant) {
  throw Error(ErrorCode::kUnavailable, "the simulation has no HTTP", endpoint.host);
  co_return HttpResponse();
}

Task<HttpResponse> ProgramNetwork::stream(Endpoint endpoint, TlsFiles, HttpRequest, Instant, Channel<std::string>&) {
  throw Error(ErrorCode::kUnavailable, "the simulation has no HTTP", endpoint.host);
  co_return HttpResponse();
}

}  // namespace rubato::sim
