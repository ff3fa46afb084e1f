#include "os/channel_connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>

#include <boost/asio/read.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <map>

#include "os/acceptor.h"
#include "os/channel_tls.h"
#include "os/connection_places.h"
#include "os/interfaces.h"
#include "os/unix_address.h"

namespace rubato::os {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;  // what TCP and sockets' files have in common
using Socket = Protocol::socket;

constexpr size_t kFrameMax = 16 << 20;
constexpr size_t kUnsentMax = 64 << 20;
constexpr size_t kUnreadMax = 1024;  // messages; then reading waits for the receiver
constexpr auto kHandshakeMax = std::chrono::seconds(5);
constexpr size_t kWriteStepMax = 64 << 10;
constexpr auto kFlushMax = std::chrono::seconds(2);

std::string plain(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

// The other end of a socket's file is on this machine.
std::string address_of(const Protocol::endpoint& endpoint) {
  const auto family = endpoint.protocol().family();
  if (family != AF_INET && family != AF_INET6) return "127.0.0.1";
  asio::ip::tcp::endpoint ip;
  std::memcpy(ip.data(), endpoint.data(), endpoint.size());
  ip.resize(endpoint.size());
  return plain(ip.address());
}

// The socket, its TLS and its queues. Handlers share it; the Connection that the program holds may go first, and what
// it had queued is still written then.
class Wire : public std::enable_shared_from_this<Wire> {
 public:
  Wire(Runtime& runtime, std::shared_ptr<asio::ssl::context> context, Socket socket)
      : context_(std::move(context)),
        stream_(std::move(socket), *context_),
        timer_(runtime.io()),
        stall_(runtime.io()),
        messages_(runtime) {}

  Socket& socket() { return stream_.next_layer(); }
  asio::ssl::stream<Socket>& stream() { return stream_; }

  void configure(Duration silence_max) {
    const int on = 1;
    const unsigned ms = static_cast<unsigned>(to_ms(silence_max));
    const int fd = socket().native_handle();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // A socket's file has no such option: there we watch our own writes.
    const bool tcp = setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms) == 0;
    if (!tcp) stall_max_ = silence_max;
  }

  // `name` is what the other side has proven to be.
  void begin(std::string name) {
    peer_name_ = std::move(name);
    error_code ignored;
    local_ = address_of(socket().local_endpoint(ignored));
    peer_ = address_of(socket().remote_endpoint(ignored));
    read_header();
  }

  void send(std::string message) {
    if (end_ != Connection::End::kOpen || closing_) return;
    if (unsent_bytes_ + message.size() > kUnsentMax) return finish(Connection::End::kSilent);
    const auto size = static_cast<uint32_t>(message.size());
    std::string frame;
    frame.reserve(message.size() + 4);
    for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(size >> shift));
    frame += message;
    unsent_bytes_ += frame.size();
    unsent_.push_back(std::move(frame));
    if (!writing_) write_next();
  }

  // The program has let go: what is queued is written, for a while, then the socket closes.
  void close() {
    closing_ = true;
    messages_.close();
    if (unsent_.empty()) return shut();
    timer_.expires_after(kFlushMax);
    timer_.async_wait([self = shared_from_this()](error_code) { self->shut(); });
  }

  Channel<std::string>& messages() { return messages_; }
  Connection::End end() const { return end_; }
  const std::string& local() const { return local_; }
  const std::string& peer() const { return peer_; }
  const std::string& peer_name() const { return peer_name_; }

  // The first frame of a server that knows its clients by certificate. In TLS 1.3 the client is done before the server
  // has looked at the client's certificate: only this frame says that it was accepted.
  void send_welcome() { send({}); }
  template <class Handler>
  void read_welcome(Handler handler) {
    asio::async_read(stream_, asio::buffer(header_),
                     [self = shared_from_this(), handler = std::move(handler)](error_code error, size_t) {
                       const bool strange = !error && self->header_ != std::array<unsigned char, 4>{};
                       handler(strange ? error_code(asio::error::connection_aborted) : error);
                     });
  }
  void resume_reading() {
    if (paused_ && messages_.size() < kUnreadMax / 2) {
      paused_ = false;
      read_header();
    }
  }

 private:
  void read_header() {
    asio::async_read(stream_, asio::buffer(header_), [self = shared_from_this()](error_code error, size_t) {
      if (error) return self->fail(error);
      uint32_t size = 0;
      for (const unsigned char byte : self->header_) size = size << 8 | byte;
      if (size > kFrameMax) return self->finish(Connection::End::kClosed);
      self->read_body(size);
    });
  }

  void read_body(uint32_t size) {
    body_.resize(size);
    asio::async_read(stream_, asio::buffer(body_), [self = shared_from_this()](error_code error, size_t) {
      if (error) return self->fail(error);
      self->messages_.push(std::move(self->body_));
      if (self->messages_.size() >= kUnreadMax) {
        self->paused_ = true;
      } else {
        self->read_header();
      }
    });
  }

  void write_next() {
    writing_ = true;
    // Asked before each step of a long frame.
    const auto rest = [self = shared_from_this()](error_code error, size_t) -> size_t {
      self->expect_progress();
      return error ? 0 : kWriteStepMax;
    };
    asio::async_write(stream_, asio::buffer(unsent_.front()), rest,
                      [self = shared_from_this()](error_code error, size_t n) {
                        self->writing_ = false;
                        self->stall_.cancel();
                        if (error) return self->fail(error);
                        self->unsent_bytes_ -= n;
                        self->unsent_.pop_front();
                        if (!self->unsent_.empty()) return self->write_next();
                        if (self->closing_) self->shut();
                      });
  }

  void expect_progress() {
    if (stall_max_ == Duration::zero()) return;
    stall_.expires_after(stall_max_);
    stall_.async_wait([weak = weak_from_this()](error_code error) {
      const std::shared_ptr<Wire> self = weak.lock();
      if (!error && self && self->writing_) self->finish(Connection::End::kSilent);
    });
  }

  void fail(error_code error) {
    const bool silent = error == asio::error::timed_out || error == asio::error::host_unreachable ||
                        error == asio::error::network_unreachable;
    finish(silent ? Connection::End::kSilent : Connection::End::kClosed);
  }

  void finish(Connection::End how) {
    if (end_ == Connection::End::kOpen) end_ = how;
    messages_.close();
    shut();
  }

  void shut() {
    error_code ignored;
    timer_.cancel(ignored);
    stall_.cancel(ignored);
    // No TLS farewell: a closed socket says the same, and waits for nobody.
    socket().shutdown(Socket::shutdown_both, ignored);
    socket().close(ignored);
  }

  std::shared_ptr<asio::ssl::context> context_;
  asio::ssl::stream<Socket> stream_;
  asio::steady_timer timer_;
  asio::steady_timer stall_;
  Duration stall_max_{};  // zero: the kernel watches
  std::array<unsigned char, 4> header_{};
  std::string body_;
  std::deque<std::string> unsent_;
  size_t unsent_bytes_ = 0;
  bool writing_ = false;
  bool closing_ = false;
  bool paused_ = false;
  Connection::End end_ = Connection::End::kOpen;
  std::string local_, peer_, peer_name_;
  Channel<std::string> messages_;
};

class WireConnection final : public Connection {
 public:
  explicit WireConnection(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  ~WireConnection() override { wire_->close(); }
  void send(std::string message) override { wire_->send(std::move(message)); }
  Task<std::optional<std::string>> receive() override { return receive_from(wire_); }
  End ended() const override { return wire_->end(); }
  std::string local_address() const override { return wire_->local(); }
  std::string peer_address() const override { return wire_->peer(); }
  std::string peer_name() const override { return wire_->peer_name(); }

 private:
  static Task<std::optional<std::string>> receive_from(std::shared_ptr<Wire> wire) {
    std::optional<std::string> message = co_await wire->messages().pop();
    wire->resume_reading();
    co_return message;
  }
  std::shared_ptr<Wire> wire_;
};

// The accepting half, shared with its handlers.
class Door : public std::enable_shared_from_this<Door> {
 public:
  Door(Runtime& runtime, const ChannelKey& key, Duration silence_max)
      : runtime_(runtime),
        context_(channel_context(key, true)),
        by_identity_(key.identity.use_tls),
        silence_max_(silence_max),
        places_(within_open_files(PlaceLimits{})),
        arrived_(runtime) {}

  void bind(const Endpoint& endpoint) {
    auto acceptor = std::make_shared<Acceptor>(runtime_, endpoint, "listen");
    const std::weak_ptr<Door> weak = weak_from_this();
    const std::weak_ptr<Acceptor> again = acceptor;
    acceptor->arrived = [weak, again](Socket socket, Peer peer) {
      if (const auto self = weak.lock()) self->welcome(std::move(socket), peer);
      if (const auto one = again.lock()) one->accept_one();
    };
    acceptor->make_room = [weak] {
      const auto self = weak.lock();
      return self && self->close_place(self->places_.evict_stranger());
    };
    acceptor->accept_one();
    if (port_ == 0) port_ = acceptor->port();
    acceptors_.push_back(std::move(acceptor));
  }

  void close() {
    for (const auto& acceptor : acceptors_) acceptor->close();
    arrived_.close();
  }

  uint16_t port() const { return port_; }
  Channel<std::unique_ptr<Connection>>& arrived() { return arrived_; }

 private:
  void welcome(Socket socket, const Peer& peer) {
    const ConnectionPlaces::Arrival arrival = places_.arrive(peer, runtime_.now());
    close_place(arrival.evicted);
    if (!arrival.place) return;
    auto wire = std::make_shared<Wire>(runtime_, context_, std::move(socket));
    shaking_[*arrival.place] = wire;
    shake_hands(wire, *arrival.place, peer.key);
  }

  bool close_place(std::optional<ConnectionPlaces::Id> place) {
    const auto found = place ? shaking_.find(*place) : shaking_.end();
    if (found == shaking_.end()) return false;
    error_code ignored;
    found->second->socket().close(ignored);
    shaking_.erase(found);
    return true;
  }

  void shake_hands(std::shared_ptr<Wire> wire, ConnectionPlaces::Id place, std::string key) {
    wire->configure(silence_max_);
    auto limit = std::make_shared<asio::steady_timer>(runtime_.io(), kHandshakeMax);
    limit->async_wait([wire](error_code error) {
      error_code ignored;
      if (!error) wire->socket().close(ignored);
    });
    wire->stream().async_handshake(asio::ssl::stream_base::server, [self = shared_from_this(), wire, limit, place,
                                                                    key = std::move(key)](error_code error) {
      self->places_.leave(place);
      self->shaking_.erase(place);
      limit->cancel();
      if (error || !wire->socket().is_open()) return;
      std::optional<std::string> name = proven_name(wire->stream().native_handle(), self->by_identity_);
      if (!name) return;
      self->places_.remember(key);
      wire->begin(std::move(*name));
      if (self->by_identity_) wire->send_welcome();
      self->arrived_.push(std::make_unique<WireConnection>(wire));
    });
  }

  Runtime& runtime_;
  std::shared_ptr<asio::ssl::context> context_;
  const bool by_identity_;
  Duration silence_max_;
  ConnectionPlaces places_;
  std::map<ConnectionPlaces::Id, std::shared_ptr<Wire>> shaking_;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;
  uint16_t port_ = 0;
  Channel<std::unique_ptr<Connection>> arrived_;
};

class DoorListener final : public Listener {
 public:
  explicit DoorListener(std::shared_ptr<Door> door) : door_(std::move(door)) {}
  ~DoorListener() override { door_->close(); }
  uint16_t port() const override { return door_->port(); }
  Task<std::unique_ptr<Connection>> accept() override {
    std::optional<std::unique_ptr<Connection>> next = co_await door_->arrived().pop();
    CHECK(next);
    co_return std::move(*next);
  }

 private:
  std::shared_ptr<Door> door_;
};

// A connection attempt. The coroutine that waits for it may be destroyed: the attempt then closes its socket.
struct Attempt : std::enable_shared_from_this<Attempt> {
  Attempt(Runtime& runtime, const ChannelKey& key)
      : wire(std::make_shared<Wire>(runtime, channel_context(key, false), Socket(runtime.io()))),
        by_identity(key.identity.use_tls),
        done(runtime) {}
  std::shared_ptr<Wire> wire;
  const bool by_identity;
  Event done;
  bool finished = false;
  bool connected = false;  // the socket is; an error after this is about the handshake
  error_code error;

  void start(const Protocol::endpoint& address, Duration silence_max) {
    wire->socket().async_connect(address, [self = shared_from_this(), silence_max](error_code result) {
      if (result) return self->finish(result);
      self->connected = true;
      self->wire->configure(silence_max);
      self->wire->stream().async_handshake(asio::ssl::stream_base::client, [self](error_code shaken) {
        if (shaken || !self->by_identity) return self->finish(shaken);
        self->wire->read_welcome([self](error_code welcomed) { self->finish(welcomed); });
      });
    });
  }
  std::optional<std::string> proven() const {
    if (!finished || error) return std::nullopt;
    return proven_name(wire->stream().native_handle(), by_identity);
  }
  // Why our side, or theirs, did not take the other's certificate.
  std::string identity_words() const {
    const long verified = SSL_get_verify_result(wire->stream().native_handle());
    if (verified == X509_V_OK) return error.message();
    return std::string("its certificate is not accepted: ") + X509_verify_cert_error_string(verified);
  }
  void finish(error_code result) {
    error = result;
    finished = true;
    done.notify();
  }
};

struct AttemptGuard {
  std::shared_ptr<Attempt> attempt;
  ~AttemptGuard() {
    error_code ignored;
    if (attempt) attempt->wire->socket().close(ignored);
  }
};

ConnectFailure explain(const Attempt& attempt, const std::string& what, Duration waited) {
  using Kind = ConnectFailure::Kind;
  const bool ssl_said_no = attempt.error.category() == asio::error::get_ssl_category();
  if (!attempt.finished) {
    const char* step = attempt.connected ? ": connected, but it does not answer as an agent would" : ": no answer";
    return {Kind::kUnreachable, fmt::format("{}{} in {}", what, step, format_duration(waited))};
  }
  const bool no_file = attempt.error.value() == ENOENT && !attempt.connected;
  if (no_file || attempt.error == asio::error::connection_refused)
    return {Kind::kRefused, what + ": connection refused"};
  if (attempt.connected && attempt.by_identity && (ssl_said_no || !attempt.error)) {
    return {Kind::kRejected,
            what + ": something listens there that is not of this cluster: " + attempt.identity_words()};
  }
  if (attempt.connected && ssl_said_no) {
    return {Kind::kRejected, what + ": something listens there that does not share this job's key"};
  }
  if (attempt.connected) return {Kind::kUnreachable, what + ": it closed the connection during the handshake"};
  return {Kind::kUnreachable, what + ": " + attempt.error.message()};
}

Task<ConnectResult> connect_to(Runtime& runtime, Protocol::endpoint address, std::string what, ChannelKey key,
                               Instant deadline, Duration silence_max) {
  const Instant begun = runtime.now();
  auto attempt = std::make_shared<Attempt>(runtime, key);
  AttemptGuard guard{attempt};
  attempt->start(address, silence_max);
  while (!attempt->finished && runtime.now() < deadline) co_await attempt->done.wait_until(deadline);
  ConnectResult result;
  std::optional<std::string> name_proven = attempt->proven();
  if (!name_proven) {
    result.failure = explain(*attempt, what, runtime.now() - begun);
    co_return result;
  }
  guard.attempt.reset();
  attempt->wire->begin(std::move(*name_proven));
  result.connection = std::make_unique<WireConnection>(attempt->wire);
  co_return result;
}

std::string connect_words(const std::string& name, const asio::ip::tcp::endpoint& address) {
  const std::string shown = name == plain(address.address()) ? "" : " (" + plain(address.address()) + ")";
  const std::string source = source_towards(address.address());
  const std::string from = source.empty() ? ", to which there is no route" : " from " + source;
  return fmt::format("connect to {}:{}{}{}", name, address.port(), shown, from);
}

}  // namespace

std::unique_ptr<Listener> make_listener(Runtime& runtime, const std::vector<Endpoint>& endpoints, const ChannelKey& key,
                                        Duration silence_max) {
  auto door = std::make_shared<Door>(runtime, key, silence_max);
  for (const Endpoint& endpoint : endpoints) door->bind(endpoint);
  return std::make_unique<DoorListener>(door);
}

Task<ConnectResult> connect_channel(Runtime& runtime, asio::ip::tcp::endpoint address, std::string name, ChannelKey key,
                                    Instant deadline, Duration silence_max) {
  const Protocol::endpoint to(address);
  std::string what = connect_words(name, address);
  co_return co_await connect_to(runtime, to, std::move(what), std::move(key), deadline, silence_max);
}

Task<ConnectResult> connect_channel(Runtime& runtime, std::string path, ChannelKey key, Instant deadline,
                                    Duration silence_max) {
  const UnixAddress address(path);  // to the end of the attempt
  const Protocol::endpoint to(address.data(), address.size());
  std::string what = "connect to " + path;
  co_return co_await connect_to(runtime, to, std::move(what), std::move(key), deadline, silence_max);
}

}  // namespace rubato::os
