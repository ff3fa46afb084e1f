#include "os/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <random>

#include "os/channel_connection.h"
#include "os/http_client.h"
#include "os/interfaces.h"
#include "os/unix_address.h"

namespace rubato::os {

namespace {

using Addresses = std::vector<boost::asio::ip::address>;

// Runs on the helper thread: the resolver may take seconds.
Addresses look_up(const std::string& host) {
  boost::system::error_code error;
  const auto literal = boost::asio::ip::make_address(host, error);
  if (!error) return {literal};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (failed)
    throw Error(ErrorCode::kUnavailable, fmt::format("cannot resolve '{}': {}", host, gai_strerror(failed)), host);
  Addresses found;
  for (const addrinfo* entry = list; entry; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(entry->ai_addr);
      found.push_back(boost::asio::ip::address_v4(ntohl(in->sin_addr.s_addr)));
    } else if (entry->ai_family == AF_INET6) {
      const auto* in6 = reinterpret_cast<const sockaddr_in6*>(entry->ai_addr);
      boost::asio::ip::address_v6::bytes_type bytes;
      std::copy_n(in6->sin6_addr.s6_addr, bytes.size(), bytes.begin());
      found.push_back(boost::asio::ip::address_v6(bytes, in6->sin6_scope_id));
    }
  }
  freeaddrinfo(list);
  // Our own listeners are IPv4 or both: IPv4 first saves a refused try.
  std::ranges::stable_sort(found, {}, [](const auto& a) { return a.is_v6(); });
  return found;
}

Task<Addresses> resolve(Runtime& runtime, std::string host) {
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  if (!error || host == "localhost") {
    // No need for a second thread.
    if (host == "localhost") host = "127.0.0.1";
    co_return look_up(host);
  }
  std::function<Addresses()> work = [host] { return look_up(host); };
  co_return co_await runtime.offload(std::move(work));
}

// Bridges and tunnels of container engines: no other machine reaches us there.
bool is_private_bridge(const std::string& name) {
  for (const char* prefix : {"docker", "veth", "br-", "virbr", "cni", "flannel", "podman"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

class HeldPort final : public PortLease {
 public:
  HeldPort(int fd, uint16_t port) : fd_(fd), port_(port) {}
  ~HeldPort() override { ::close(fd_); }
  uint16_t port() const override { return port_; }

 private:
  int fd_;
  uint16_t port_;
};

std::unique_ptr<HeldPort> hold(uint16_t port, bool reuse) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw Error(ErrorCode::kFailed, fmt::format("cannot make a socket: {}", strerror(errno)));
  const int on = 1;
  if (reuse) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    return std::make_unique<HeldPort>(fd, port);
  }
  ::close(fd);
  return nullptr;
}

}  // namespace

std::unique_ptr<Listener> RealNetwork::listen(const Endpoint& endpoint, const ChannelKey& key, Duration silence_max) {
  return make_listener(runtime_, {endpoint}, key, silence_max);
}

Task<ConnectResult> RealNetwork::connect(Endpoint endpoint, ChannelKey key, Instant deadline, Duration silence_max) {
  ConnectResult result;
  if (is_unix(endpoint)) {
    result = co_await connect_channel(runtime_, endpoint.host, std::move(key), deadline, silence_max);
    co_return result;
  }
  std::optional<Addresses> addresses;
  try {
    addresses = co_await with_deadline(runtime_, deadline, os::resolve(runtime_, endpoint.host));
  } catch (const Error& error) {
    result.failure = ConnectFailure{ConnectFailure::Kind::kUnreachable, error.message};
  }
  if (result.failure) co_return result;
  if (!addresses || addresses->empty()) {
    result.failure =
        ConnectFailure{ConnectFailure::Kind::kUnreachable, "resolving '" + endpoint.host + "' takes too long"};
    co_return result;
  }
  // Each has its share of the time: the first may be a machine that is gone.
  for (size_t i = 0; i < addresses->size(); ++i) {
    const boost::asio::ip::tcp::endpoint target((*addresses)[i], endpoint.port);
    const Instant now = runtime_.now();
    const Instant until = now + (deadline - now) / static_cast<int64_t>(addresses->size() - i);
    result = co_await connect_channel(runtime_, target, endpoint.host, key, until, silence_max);
    if (result.connection) break;
  }
  co_return result;
}

Task<bool> RealNetwork::is_local(std::string host) {
  Addresses wanted;
  try {
    wanted = co_await os::resolve(runtime_, host);
  } catch (const Error&) {
    co_return false;
  }
  const auto ours = interfaces();
  for (const auto& address : wanted) {
    if (address.is_loopback()) co_return true;
    for (const Interface& mine : ours) {
      if (mine.address == address) co_return true;
    }
  }
  co_return false;
}

Task<std::vector<std::string>> RealNetwork::resolve(std::string host) {
  std::vector<std::string> found;
  try {
    for (const auto& address : co_await os::resolve(runtime_, std::move(host))) found.push_back(address.to_string());
  } catch (const Error&) {
    // Nobody has that name now.
  }
  co_return found;
}

std::unique_ptr<PortLease> RealNetwork::lease_port(uint16_t wanted) {
  if (wanted != 0) {
    auto held = hold(wanted, true);
    if (held) return held;
    throw Error(ErrorCode::kConflict, fmt::format("port {} is in use on this machine", wanted),
                fmt::format("127.0.0.1:{}", wanted),
                fmt::format("choose another --master-port, or stop what uses it ('ss -ltnp sport = :{}')", wanted));
  }
  // Below the kernel's ephemeral range, so that no outgoing connection takes it before the worker binds it.
  std::random_device random;
  for (int tries = 0; tries < 200; ++tries) {
    const auto port = static_cast<uint16_t>(20000 + random() % 12000);
    if (auto held = hold(port, false)) return held;
  }
  throw Error(ErrorCode::kFailed, "found no free port between 20000 and 32000");
}

std::vector<std::string> RealNetwork::addresses() {
  std::vector<Interface> usable;
  for (Interface& entry : interfaces()) {
    const bool link_local = entry.address.is_v6() && entry.address.to_v6().is_link_local();
    if (!entry.address.is_loopback() && !link_local) usable.push_back(std::move(entry));
  }
  std::ranges::stable_sort(usable, {},
                           [](const Interface& i) { return std::pair(is_private_bridge(i.name), i.address.is_v6()); });
  std::vector<std::string> out;
  for (const Interface& entry : usable) out.push_back(entry.address.to_string());
  return out;
}

Task<HttpResponse> RealNetwork::call(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline) {
  return http_call(runtime_, std::move(endpoint), std::move(tls), std::move(request), deadline);
}

Task<HttpResponse> RealNetwork::stream(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant header_deadline,
                                       Channel<std::string>& chunks) {
  return http_stream(runtime_, std::move(endpoint), std::move(tls), std::move(request), header_deadline, chunks);
}

}  // namespace rubato::os
