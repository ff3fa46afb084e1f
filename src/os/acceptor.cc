#include "os/acceptor.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <boost/asio/ip/address.hpp>
#include <cstring>

#include "os/unix_address.h"

namespace rubato::os {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kBacklog = 4096;
// The loop runs what is ready until nothing is: while a crowd comes, accepting must let it get to the rest.
constexpr unsigned kAtOnce = 8;
constexpr std::chrono::milliseconds kBreak(1);
unsigned accepted = 0;  // by all of this process

// nullptr, or what failed; errno tells why.
const char* listen_at_file(const Fd& fd, const std::string& path) {
  const UnixAddress address(path);
  ::unlink(path.c_str());
  if (::bind(fd.get(), address.data(), address.size()) != 0) return "bind";
  // The folder keeps others out; this keeps them out should it be opened to them one day.
  if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0) return "chmod";
  return ::listen(fd.get(), kBacklog) == 0 ? nullptr : "listen";
}

const char* listen_at_port(const Fd& fd, const Endpoint& endpoint, bool v6) {
  const int on = 1, off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool any = endpoint.host.empty();
  int rc = 0;
  if (v6) {
    if (any) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(endpoint.port);
    if (!any) {
      const auto host = asio::ip::make_address_v6(endpoint.host);
      std::memcpy(&address.sin6_addr, host.to_bytes().data(), 16);
      address.sin6_scope_id = static_cast<uint32_t>(host.scope_id());
    }
    rc = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    if (!any) address.sin_addr.s_addr = htonl(asio::ip::make_address_v4(endpoint.host).to_uint());
    rc = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  if (rc != 0) return "bind";
  return ::listen(fd.get(), kBacklog) == 0 ? nullptr : "listen";
}

uint16_t port_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return 0;
}

struct Listening {
  Fd fd;
  int family = AF_INET;
};

Listening listen_at(const Endpoint& endpoint, const char* what) {
  Listening out;
  const std::string where = is_unix(endpoint) ? endpoint.host : to_string(endpoint);
  const auto fail = [&](int reason) {
    const bool taken = reason == EADDRINUSE;
    throw Error(taken ? ErrorCode::kConflict : ErrorCode::kFailed,
                fmt::format("cannot {} on {}: {}", what, where, std::strerror(reason)), where,
                taken ? "choose another port, or stop what uses it ('ss -ltnp')" : "");
  };
  error_code bad_address;
  if (is_unix(endpoint)) {
    out.family = AF_UNIX;
  } else if (endpoint.host.empty() || asio::ip::make_address(endpoint.host, bad_address).is_v6()) {
    out.family = AF_INET6;
  }
  if (bad_address) fail(EINVAL);
  const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  out.fd = Fd(::socket(out.family, kind, 0));
  if (!out.fd && out.family == AF_INET6 && endpoint.host.empty()) {
    out.family = AF_INET;  // a machine without IPv6
    out.fd = Fd(::socket(out.family, kind, 0));
  }
  if (!out.fd) fail(errno);
  const char* failed = out.family == AF_UNIX ? listen_at_file(out.fd, endpoint.host)
                                             : listen_at_port(out.fd, endpoint, out.family == AF_INET6);
  if (failed) fail(errno);
  return out;
}

}  // namespace

Acceptor::Acceptor(Runtime& runtime, const Endpoint& endpoint, const char* what)
    : runtime_(runtime), acceptor_(runtime.io()), retry_(runtime.io()), next_(runtime.io()) {
  Listening listening = listen_at(endpoint, what);
  port_ = port_of(listening.fd.get());
  acceptor_.assign(Protocol(listening.family, 0), listening.fd.release());
}

void Acceptor::accept_one() {
  if (accepting_ || !acceptor_.is_open()) return;
  accepting_ = true;
  const auto begin = [self = shared_from_this()](error_code error) {
    if (error || !self->acceptor_.is_open()) return;
    self->acceptor_.async_accept(self->next_, [self](error_code result) { self->handle(result); });
  };
  if (++accepted % kAtOnce != 0) return begin({});
  retry_.expires_after(kBreak);
  retry_.async_wait(begin);
}

void Acceptor::handle(error_code error) {
  accepting_ = false;
  if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
  if (error) return pause();
  Socket socket = std::exchange(next_, Socket(runtime_.io()));
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);  // Asio leaves its sockets to our children
  Peer peer = peers_.find(socket.native_handle());
  if (peer.refused || !arrived) return accept_one();
  const auto give = arrived;  // who takes it may close us
  give(std::move(socket), std::move(peer));
}

// Out of file descriptors, most likely: do not spin.
void Acceptor::pause() {
  accepting_ = true;
  const bool room = make_room && make_room();
  retry_.expires_after(std::chrono::milliseconds(room ? 1 : 100));
  retry_.async_wait([self = shared_from_this()](error_code error) {
    self->accepting_ = false;
    if (!error) self->accept_one();
  });
}

void Acceptor::close() {
  error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel(ignored);
  arrived = nullptr;
  make_room = nullptr;
}

}  // namespace rubato::os
