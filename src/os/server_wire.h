// ServerWire: one accepted TCP or TLS connection, as steps that a coroutine can wait for and abandon. ServerDoor: the
// port that they come from.
//
// One read and one write may be under way at a time. Handlers of Asio share the wire, so that the coroutine that waits
// for a step may be destroyed at any moment; who lets go of a wire closes it.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/channel.h"
#include "os/runtime.h"
#include "world/network.h"

namespace rubato::os {

class ServerWire : public std::enable_shared_from_this<ServerWire> {
 public:
  using TlsContext = std::shared_ptr<boost::asio::ssl::context>;
  ServerWire(Runtime& runtime, TlsContext context);  // no context: plain TCP

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
  // unread bytes in it takes the last reply back.
  Task<void> finish(Instant deadline);

  void close();
  bool closed() const { return !socket_.is_open(); }
  std::string peer() const { return peer_; }

 private:
  friend class ServerDoor;
  void accepted();  // once the socket is connected
  void start_reading();
  void start_writing();

  Runtime& runtime_;
  Event changed_;  // a step has ended
  boost::asio::ip::tcp::socket socket_;
  TlsContext context_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  std::string peer_;
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
  ServerDoor(Runtime& runtime, ServerWire::TlsContext context);

  // An empty host means every interface; port 0 picks one. Throws kConflict when the port is taken.
  void bind(const Endpoint& endpoint);
  uint16_t port() const { return acceptor_.local_endpoint().port(); }
  // The next connection, before any handshake.
  Task<std::shared_ptr<ServerWire>> accept();
  void close();

 private:
  void accept_next();
  void pause();

  Runtime& runtime_;
  ServerWire::TlsContext context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  bool accepting_ = false;
  Channel<std::shared_ptr<ServerWire>> arrived_;
};

// For servers that show a certificate to anyone. TLS 1.2 or newer. Throws kFailed naming the file.
ServerWire::TlsContext make_server_context(const TlsFiles& files);

}  // namespace rubato::os
