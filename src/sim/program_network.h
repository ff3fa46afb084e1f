// ProgramNetwork: the Network seam as one program on a simulated machine sees it.
#pragma once

#include <memory>
#include <string>

#include "sim/link.h"
#include "sim/network.h"
#include "world/network.h"

namespace rubato::sim {

// Whether a program may still act. While a killed program's frames are destroyed its destructors run, though the
// real one's would not: what they would send or write is dropped.
struct ProgramLife {
  bool running = true;
};

// What a holder of this key proves to be: the name of its certificate file; empty when a secret is used.
inline std::string proven_name(const ChannelKey& key) {
  return key.identity.use_tls ? key.identity.certificate : std::string();
}

class SimListener final : public Listener {
 public:
  SimListener(Node& node, LocalLoop& loop, const ProgramLife& life, uint16_t port, bool local_only, ChannelKey key,
              Duration silence_max);
  ~SimListener() override;  // resets the connections that nobody accepted

  uint16_t port() const override { return port_; }
  Task<std::unique_ptr<Connection>> accept() override;

  bool takes_from(NodeId id) const { return !local_only_ || id == node_.id; }
  // By identity: both hold a certificate, and of the same CA.
  bool shares(const ChannelKey& key) const;
  LocalLoop& loop() { return loop_; }
  Link::Party party() { return Link::Party{node_, loop_, silence_max_, proven_name(key_)}; }
  void offer(std::shared_ptr<Link> link) { arrived_.push(std::move(link)); }

 private:
  Node& node_;
  LocalLoop& loop_;
  const ProgramLife& life_;
  const uint16_t port_;
  const bool local_only_;
  const ChannelKey key_;
  const Duration silence_max_;
  Channel<std::shared_ptr<Link>> arrived_;
};

class ProgramNetwork final : public Network {
 public:
  ProgramNetwork(SimNetwork& network, Node& node, LocalLoop& loop, const ProgramLife& life)
      : network_(network), node_(node), loop_(loop), life_(life) {}

  std::unique_ptr<Listener> listen(const Endpoint& endpoint, const ChannelKey& key, Duration silence_max) override;
  Task<ConnectResult> connect(Endpoint endpoint, ChannelKey key, Instant deadline, Duration silence_max) override;
  Task<bool> is_local(std::string host) override;
  Task<std::vector<std::string>> resolve(std::string host) override;
  std::unique_ptr<PortLease> lease_port(uint16_t wanted) override;
  std::vector<std::string> addresses() override { return {node_.address}; }

  // There is no HTTP in the simulation: both throw kUnavailable.
  Task<HttpResponse> call(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline) override;
  Task<HttpResponse> stream(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant header_deadline,
                            Channel<std::string>& chunks) override;

 private:
  enum class Answer { kNone, kRefused, kRejected, kWelcome };
  Answer knock(const Node& target, uint16_t port, const ChannelKey& key) const;
  ConnectResult failure(ConnectFailure::Kind kind, const Endpoint& endpoint, const std::string& why) const;
  ConnectResult connected(Node& target, uint16_t port, const ChannelKey& key, Duration silence_max);

  SimNetwork& network_;
  Node& node_;
  LocalLoop& loop_;
  const ProgramLife& life_;
};

}  // namespace rubato::sim
