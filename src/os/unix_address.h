// UnixAddress: a socket's file as the kernel wants it, however long its path is.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "os/fd.h"
#include "world/network.h"

namespace rubato::os {

// A path is the name of a socket's file (world/network.h): no name of a host begins so.
inline bool is_unix(const Endpoint& endpoint) { return endpoint.host.starts_with('/'); }

// The kernel takes 107 bytes. A longer path is named by way of its folder, which is open as long as this lives.
// Throws kFailed when that folder cannot be opened.
class UnixAddress {
 public:
  explicit UnixAddress(const std::string& path);
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return sizeof address_; }

 private:
  Fd folder_;
  sockaddr_un address_{};
};

}  // namespace rubato::os
