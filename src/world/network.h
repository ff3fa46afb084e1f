// Network: message connections between agents, and HTTP calls to other people's servers.
//
// A Connection carries whole messages in order. On the real machine it is TCP with TLS 1.3 keyed by a shared
// secret (ChannelKey), so that both sides prove that they know it before the first message is read.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/channel.h"
#include "core/task.h"

namespace rubato {

struct Endpoint {
  std::string host;
  uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
  auto operator<=>(const Endpoint&) const = default;
};
std::string to_string(const Endpoint& endpoint);  // "host:port", IPv6 in brackets
// "host", "host:port", "[v6]:port". Throws a usage Error naming the text.
Endpoint parse_endpoint(std::string_view text, uint16_t default_port);

// Files of a TLS client or server; empty strings where not given.
struct TlsFiles {
  bool use_tls = false;
  std::string ca, certificate, key;
};

// What both sides of a connection must prove before the first message: that they know a secret, or (identity.use_tls)
// that each holds a certificate of the same CA. Kept out of logs and command lines.
struct ChannelKey {
  std::string secret;
  TlsFiles identity;
};

class Connection {
 public:
  virtual ~Connection() = default;  // closes

  // Queues a message. A peer that does not read is cut off once 64 MiB wait for it. No effect after the end.
  virtual void send(std::string message) = 0;

  // The next message; nullopt at the end of the connection, whose kind ended() then tells.
  virtual Task<std::optional<std::string>> receive() = 0;

  enum class End {
    kOpen,
    kClosed,  // the other side's kernel said so (FIN, RST): that process is gone or has left
    kSilent,  // nothing was heard for too long: it may live behind a broken network
  };
  virtual End ended() const = 0;

  virtual std::string local_address() const = 0;  // our address, as used for this connection
  virtual std::string peer_address() const = 0;

  // The common name in the other side's certificate; empty when a secret was used. In simulation: the name of its
  // certificate file.
  virtual std::string peer_name() const { return {}; }
};

class Listener {
 public:
  virtual ~Listener() = default;
  virtual uint16_t port() const = 0;
  // The next authenticated connection.
  virtual Task<std::unique_ptr<Connection>> accept() = 0;
};

// Why a connection could not be made; the caller reacts to the kind and prints the words.
struct ConnectFailure {
  enum class Kind {
    kRefused,      // that machine answers, nothing listens there: the process is dead or not up yet
    kUnreachable,  // no answer, no route, no such name: nothing is known about that machine
    kRejected,     // something listens there, but it does not share our key
  };
  Kind kind;
  std::string message;  // "connect to 10.0.0.1:29400 from 10.0.0.2: timed out after 1.0s"
};

struct ConnectResult {
  std::unique_ptr<Connection> connection;  // null on failure
  std::optional<ConnectFailure> failure;
};

// A TCP port kept for a later user of it: released on destruction, just before that user binds it.
class PortLease {
 public:
  virtual ~PortLease() = default;
  virtual uint16_t port() const = 0;
};

// Who passes a request on: TLS goes through it unread (CONNECT).
struct HttpProxy {
  Endpoint endpoint;
  std::string authorization;  // the value of Proxy-Authorization; empty: none
};
struct HttpRequest {
  std::string method = "GET";
  std::string target;  // path and query
  std::map<std::string, std::string> headers;
  std::string body;
  std::optional<HttpProxy> proxy;
};
struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};
class Network {
 public:
  virtual ~Network() = default;

  // Port 0 picks a free one. An empty host means every interface. Throws kConflict when the port is taken.
  virtual std::unique_ptr<Listener> listen(const Endpoint& endpoint, const ChannelKey& key, Duration silence_max) = 0;

  // Tries every address of the name. `silence_max` ends a connection on which nothing is acknowledged for so long.
  virtual Task<ConnectResult> connect(Endpoint endpoint, ChannelKey key, Instant deadline, Duration silence_max) = 0;

  // Whether the name is an address of this machine (so that a listener may be bound to it).
  virtual Task<bool> is_local(std::string host) = 0;

  // All addresses of the name; none where it cannot be resolved.
  virtual Task<std::vector<std::string>> resolve(std::string host) = 0;

  // A port that nobody uses now; `wanted` 0 means any. Throws kConflict when the wanted one is taken.
  virtual std::unique_ptr<PortLease> lease_port(uint16_t wanted) = 0;

  // Non-loopback addresses of this machine, the most usable first.
  virtual std::vector<std::string> addresses() = 0;

  // One HTTP/1.1 exchange. Throws kUnavailable when there is no answer by the deadline.
  virtual Task<HttpResponse> call(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant deadline) = 0;

  // As call(), but the body goes to `chunks` as it comes; ends when the server ends it or the task is cancelled.
  virtual Task<HttpResponse> stream(Endpoint endpoint, TlsFiles tls, HttpRequest request, Instant header_deadline,
                                    Channel<std::string>& chunks) = 0;
};

}  // namespace rubato
