#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "os/fd.h"
#include "os/probe.h"

namespace rubato::os {
namespace {

constexpr int kConnectTimeoutMs = 3000;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList look_up(const std::string& host, uint16_t port, std::string& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) error = code == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(code);
  return AddressList(code == 0 ? found : nullptr, &freeaddrinfo);
}

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

std::string local_address_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return getsockname(fd, address, &size) == 0 ? address_text(address) : "";
}

bool is_own(const std::string& address, const std::vector<InterfaceAddress>& own) {
  if (address.starts_with("127.")) return true;  // all of 127/8 is this machine
  return std::any_of(own.begin(), own.end(), [&](const InterfaceAddress& a) { return a.address == address; });
}

std::string interface_of(const std::string& address, const std::vector<InterfaceAddress>& own) {
  for (const InterfaceAddress& entry : own) {
    if (entry.address == address) return entry.interface;
  }
  return "";
}

// The error of a connect within the limit: 0, or an errno (ETIMEDOUT for no answer).
int connect_within(int fd, const sockaddr* address, socklen_t size) {
  if (connect(fd, address, size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waiting{fd, POLLOUT, 0};
  if (poll(&waiting, 1, kConnectTimeoutMs) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t error_size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) == 0 ? error : errno;
}

// Which of our addresses the kernel would use: a UDP "connect" sends nothing.
std::string source_towards(const sockaddr* address, socklen_t size) {
  const Fd fd(socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return connect(fd.get(), address, size) == 0 ? local_address_of(fd.get()) : "";
}

void try_remote(const addrinfo& entry, EndpointProbe& probe) {
  probe.source = source_towards(entry.ai_addr, entry.ai_addrlen);
  const Fd fd(socket(entry.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int error = connect_within(fd.get(), entry.ai_addr, entry.ai_addrlen);
  using Result = EndpointProbe::Result;
  probe.error = error == 0 ? "" : std::strerror(error);
  probe.result = error == 0              ? Result::kConnected
                 : error == ECONNREFUSED ? Result::kRefused
                 : error == ETIMEDOUT    ? Result::kTimedOut
                                         : Result::kUnreachable;
}

void try_own_port(const addrinfo& entry, EndpointProbe& probe) {
  const Fd fd(socket(entry.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool bound = bind(fd.get(), entry.ai_addr, entry.ai_addrlen) == 0 && listen(fd.get(), 1) == 0;
  probe.error = bound ? "" : std::strerror(errno);
  probe.result = bound ? EndpointProbe::Result::kPortFree : EndpointProbe::Result::kPortTaken;
}

}  // namespace

ResolvedName resolve_name(const std::string& host) {
  ResolvedName out;
  const AddressList list = look_up(host, 0, out.error);
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    const std::string text = address_text(entry->ai_addr);
    if (std::find(out.addresses.begin(), out.addresses.end(), text) == out.addresses.end()) {
      out.addresses.push_back(text);
    }
  }
  return out;
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> out;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string text = address_text(entry->ifa_addr);
    if (text.empty() || text.starts_with("fe80:")) continue;  // link-local: of no use to other machines
    out.push_back({entry->ifa_name, text, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return out;
}

std::string probe_loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const Fd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool listening = bind(server.get(), generic, size) == 0 && listen(server.get(), 1) == 0 &&
                         getsockname(server.get(), generic, &size) == 0;
  if (!listening) return std::strerror(errno);
  const Fd client(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int error = connect_within(client.get(), generic, size);
  return error == 0 ? "" : std::strerror(error);
}

std::string probe_free_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool bound =
      bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(fd.get(), 1) == 0;
  return bound ? "" : std::strerror(errno);
}

EndpointProbe probe_endpoint(const std::string& host, uint16_t port) {
  EndpointProbe probe{.host = host, .port = port};
  const AddressList list = look_up(host, port, probe.error);
  const auto own = interface_addresses();
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    probe.address = address_text(entry->ai_addr);
    is_own(probe.address, own) ? try_own_port(*entry, probe) : try_remote(*entry, probe);
    probe.interface = interface_of(probe.source, own);
    using Result = EndpointProbe::Result;
    if (probe.result == Result::kConnected || probe.result == Result::kPortFree) break;
  }
  return probe;
}

void probe_hosts(std::vector<HostProbe>& hosts) {
  constexpr size_t kAtOnce = 32;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < hosts.size(); i = next++) {
      HostProbe& one = hosts[i];
      one.resolved = resolve_name(one.host);
      if (!one.resolved.addresses.empty()) one.door = probe_endpoint(one.host, one.port);
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::min(kAtOnce, hosts.size()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace rubato::os
