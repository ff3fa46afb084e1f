#include "os/peer.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace rubato::os {

namespace {

// One end of a connection; IPv4 that came by an IPv6 socket is told as IPv4.
struct End {
  bool v6 = false;
  std::array<unsigned char, 16> bytes{};  // 4 of them without v6
  uint16_t port = 0;                      // network order

  bool same_address(const End& other) const { return v6 == other.v6 && bytes == other.bytes; }
  bool loopback() const {
    if (!v6) return bytes[0] == 127;
    return IN6_IS_ADDR_LOOPBACK(reinterpret_cast<const in6_addr*>(bytes.data()));
  }
  std::string text() const {
    char out[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(v6 ? AF_INET6 : AF_INET, bytes.data(), out, sizeof out);
    return out;
  }
};

std::optional<End> end_from(const sockaddr_storage& storage) {
  End end;
  if (storage.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
    std::memcpy(end.bytes.data(), &in.sin_addr, 4);
    end.port = in.sin_port;
    return end;
  }
  if (storage.ss_family != AF_INET6) return std::nullopt;
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
  end.port = in6.sin6_port;
  end.v6 = !IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&in6.sin6_addr);
  if (end.v6) {
    std::memcpy(end.bytes.data(), bytes, 16);
  } else {
    std::memcpy(end.bytes.data(), bytes + 12, 4);
  }
  return end;
}

std::optional<End> local_end(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  return end_from(storage);
}

std::optional<End> remote_end(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  return end_from(storage);
}

bool is_ours(unsigned user) { return user == ::geteuid() || user == 0; }

// Its subscriber, for IPv6.
std::string address_key(End end) {
  if (end.v6) std::fill(end.bytes.begin() + 8, end.bytes.end(), 0);
  return end.text();
}

Peer peer_at_file(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  Peer peer;
  peer.address = "127.0.0.1";
  const bool known = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0;
  peer.ours = known && is_ours(credentials.uid);
  peer.refused = !peer.ours;
  peer.key = known ? "user " + std::to_string(credentials.uid) : kUnknownUser;
  return peer;
}

}  // namespace

PeerFinder::PeerFinder() : diag_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG)) {}

Peer PeerFinder::find(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) == 0 && storage.ss_family == AF_UNIX) {
    return peer_at_file(socket);
  }
  const std::optional<End> here = local_end(socket), there = remote_end(socket);
  Peer peer;
  peer.key = kUnknownUser;
  if (!here || !there) return peer;  // it has gone again
  peer.address = there->text();
  if (!there->loopback() && !there->same_address(*here)) {
    peer.key = address_key(*there);
    return peer;
  }
  if (const std::optional<unsigned> user = owner_of(socket)) {
    peer.key = "user " + std::to_string(*user);
    peer.ours = is_ours(*user);
  }
  return peer;
}

std::optional<unsigned> PeerFinder::owner_of(int socket) {
  const std::optional<End> here = local_end(socket), there = remote_end(socket);
  if (!diag_ || !here || !there || here->v6 != there->v6) return std::nullopt;
  struct {
    nlmsghdr header;
    inet_diag_req_v2 question;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.question.sdiag_family = here->v6 ? AF_INET6 : AF_INET;
  request.question.sdiag_protocol = IPPROTO_TCP;
  request.question.idiag_states = ~0U;
  inet_diag_sockid& id = request.question.id;  // as the other end sees it
  id.idiag_sport = there->port;
  id.idiag_dport = here->port;
  std::memcpy(id.idiag_src, there->bytes.data(), there->bytes.size());
  std::memcpy(id.idiag_dst, here->bytes.data(), here->bytes.size());
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  alignas(nlmsghdr) char answer[8192];
  while (::recv(diag_.get(), answer, sizeof answer, 0) > 0) {
  }  // what a call before has left
  if (::send(diag_.get(), &request, sizeof request, 0) != sizeof request) return std::nullopt;
  // The kernel has answered when send() returns.
  const ssize_t got = ::recv(diag_.get(), answer, sizeof answer, 0);
  if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)))) return std::nullopt;
  const auto* header = reinterpret_cast<const nlmsghdr*>(answer);
  if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  // A closed end has no user any more and is told as root's; a listener on that port is not the one who came.
  if (found->idiag_state != TCP_ESTABLISHED || found->idiag_inode == 0) return std::nullopt;
  return found->idiag_uid;
}

}  // namespace rubato::os
