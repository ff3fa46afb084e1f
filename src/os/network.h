// RealNetwork: TCP with TLS keyed by a shared secret, and HTTP to other people's servers.
#pragma once

#include <memory>

#include "os/runtime.h"
#include "world/network.h"

namespace rubato::os {

class RealNetwork final : public Network {
 public:
  explicit RealNetwork(Runtime& runtime) : runtime_(runtime) {}

  std::unique_ptr<Listener> listen(const Endpoint& endpoint, const ChannelKey& key, Duration silence_max) override;
  Task<ConnectResult> connect(Endpoint endpoint, ChannelKey key, Instant deadline, Duration silence_max) override;
  Task<bool> is_local(std::string host) override;
  Task<std::vector<std::string>> resolve(std::string host) override;
  std::unique_ptr<PortLease> lease_port(uint16_t wanted) override;
  std::vector<std::string> addresses() override;
  Task<HttpResponse> call(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline) override;
  Task<HttpResponse> stream(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant header_deadline,
                            Channel<std::string>& chunks) override;

 private:
  Runtime& runtime_;
};

}  // namespace rubato::os
