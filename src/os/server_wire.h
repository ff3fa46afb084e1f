// ServerWire: one accepted connection, plain or TLS, as steps that a coroutine can wait for and abandon. ServerDoor:
// the port or socket's file that they come from.
//
// One read and one write may be under way at a time. Handlers of Asio share the wire, so that the coroutine that waits
// for a step may be destroyed at any moment; who lets go of a wire closes it.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/channel.h"
#include "os/acceptor.h"
#include "os/runtime.h"
#include "world/network.h"

namespace rubato::os {

class ServerWire : public std::enable_shared_from_this<ServerWire> {
 public:
  using TlsContext = std::shared_ptr<boost::asio::ssl::context>;
  ServerWire(Runtime& runtime, TlsContext context, Acceptor::Socket socket, Peer peer);  // no context: no TLS

  // The TLS handshake, if there is to be one. False: it failed or took too long.
  Task<bool> open(Instant deadline);

  enum class Heard { kBytes, kEnd, kLate };
  // Waits until unread() has something.
  Task<Heard> hear(Instant deadline);
  // Waits until unread() has more than it has now.
  Task<Heard> hear_more(Instant deadline);
  std::string_view unread() const { return std::string_view(in_).substr(read_); }
  void consume(size_t bytes);

  // Everything, as fast as the other side takes it. False: it is gone, or took nothing for `stall_max`.
  Task<bool> write(std::string bytes, Duration stall_max);

  // Returns when the other side has closed. Reads ahead for that, a little.
  Task<void> gone();

  // Says the end, and gives the other side until the deadline to read what was written: a socket that is closed with
  // unread bytes in it takes the last reply back. So many bytes that it still sends are read for that.
  Task<void> finish(Instant deadline, size_t bytes_max);

  void close();
  bool closed() const { return !socket_.is_open(); }
  const Peer& peer() const { return peer_; }

 private:
  void start_reading();
  void start_writing();

  Runtime& runtime_;
  Event changed_;  // a step has ended
  Acceptor::Socket socket_;
  TlsContext context_;
  std::optional<boost::asio::ssl::stream<Acceptor::Socket&>> tls_;
  const Peer peer_;
  std::vector<char> block_;
  std::string in_;
  size_t read_ = 0;  // of in_
  std::string out_;
  size_t written_ = 0;  // of out_
  bool reading_ = false, writing_ = false, shaking_ = false;
  bool ended_ = false;   // nothing more will be read
  bool broken_ = false;  // nothing more can be written, or the handshake failed
};

class ServerDoor : public std::enable_shared_from_this<ServerDoor> {
 public:
  ServerDoor(Runtime& runtime, ServerWire::TlsContext context)
      : runtime_(runtime), context_(std::move(context)), arrived_(runtime) {}

  // As Acceptor. `make_room` closes a connection, if it can, when there are too many for this process.
  void bind(const Endpoint& endpoint, std::function<bool()> make_room);
  uint16_t port() const { return acceptor_->port(); }
  // The next connection, before any handshake.
  Task<std::shared_ptr<ServerWire>> accept();
  void close();

 private:
  Runtime& runtime_;
  ServerWire::TlsContext context_;
  std::shared_ptr<Acceptor> acceptor_;
  Channel<std::shared_ptr<ServerWire>> arrived_;
};

// For servers that show a certificate to anyone. TLS 1.2 or newer. Throws kFailed naming the file.
ServerWire::TlsContext make_server_context(const TlsFiles& files);

}  // namespace rubato::os
