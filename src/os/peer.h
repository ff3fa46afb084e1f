// Peer: who is at the other end of an accepted connection, before a word was said. It decides whose limits count, and
// never who may come in: that is for tokens and certificates.
#pragma once

#include <optional>
#include <string>

#include "os/fd.h"

namespace rubato::os {

// The key of local connections whose user cannot be found.
inline constexpr const char* kUnknownUser = "user unknown";

struct Peer {
  std::string address;  // of TCP; "127.0.0.1" for a socket's file, whose other end is on this machine, too
  // Who shares limits: the user for a connection from this machine, else the address (the first 64 bits of IPv6, which
  // one subscriber owns). Local ones whose user cannot be found share one key.
  std::string key;
  bool ours = false;     // our own user, or root
  bool refused = false;  // at a socket's file: any other user
};

// Asks the kernel which user owns the other end of local connections. Without that (an old kernel), all local TCP
// connections share one key.
class PeerFinder {
 public:
  PeerFinder();
  Peer find(int socket);

 private:
  // The user at the other end of an established connection of this machine.
  std::optional<unsigned> owner_of(int socket);
  Fd diag_;  // of NETLINK_SOCK_DIAG
};

}  // namespace rubato::os
