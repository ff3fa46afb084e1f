#include "os/server_wire.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace rubato::os {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kBlockBytes = 16 << 10;  // a TLS record
// What a client may send ahead while its reply is under way; then TCP makes it wait.
constexpr size_t kAheadMax = 64 << 10;
constexpr size_t kArrivedMax = 64;  // connections that nobody has taken yet

}  // namespace

ServerWire::ServerWire(Runtime& runtime, TlsContext context, Acceptor::Socket socket, Peer peer)
    : runtime_(runtime),
      changed_(runtime),
      socket_(std::move(socket)),
      context_(std::move(context)),
      peer_(std::move(peer)) {
  if (context_) tls_.emplace(socket_, *context_);
  const int fd = socket_.native_handle();
  // A client whose machine is gone without a word is noticed after 60 + 3 × 10 s. No effect on a socket's file.
  const int on = 1, idle_s = 60, interval_s = 10, probes = 3;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

Task<bool> ServerWire::open(Instant deadline) {
  if (!tls_) co_return true;
  shaking_ = true;
  tls_->async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](error_code error) {
    self->shaking_ = false;
    self->broken_ = self->broken_ || error;
    self->changed_.notify();
  });
  while (shaking_ && runtime_.now() < deadline) co_await changed_.wait_until(deadline);
  const bool opened = !shaking_ && !broken_;
  if (!opened) close();
  co_return opened;
}

void ServerWire::start_reading() {
  if (reading_ || ended_) return;
  reading_ = true;
  block_.resize(kBlockBytes);
  auto handler = [self = shared_from_this()](error_code error, size_t bytes) {
    self->reading_ = false;
    if (error) {
      self->ended_ = true;
    } else {
      self->in_.append(self->block_.data(), bytes);
    }
    self->changed_.notify();
  };
  if (tls_) {
    tls_->async_read_some(asio::buffer(block_), std::move(handler));
  } else {
    socket_.async_read_some(asio::buffer(block_), std::move(handler));
  }
}

void ServerWire::consume(size_t bytes) {
  read_ += bytes;
  if (read_ < in_.size()) return;
  // An idle connection holds no buffers to speak of.
  in_ = {};
  read_ = 0;
}

Task<ServerWire::Heard> ServerWire::hear(Instant deadline) {
  if (!unread().empty()) co_return Heard::kBytes;
  co_return co_await hear_more(deadline);
}

Task<ServerWire::Heard> ServerWire::hear_more(Instant deadline) {
  if (read_ > 0) {
    in_.erase(0, read_);
    read_ = 0;
  }
  const size_t before = in_.size();
  while (in_.size() == before) {
    if (ended_) co_return Heard::kEnd;
    if (runtime_.now() >= deadline) co_return Heard::kLate;
    start_reading();
    co_await changed_.wait_until(deadline);
  }
  co_return Heard::kBytes;
}

void ServerWire::start_writing() {
  writing_ = true;
  auto handler = [self = shared_from_this()](error_code error, size_t bytes) {
    self->writing_ = false;
    self->written_ += bytes;
    self->broken_ = self->broken_ || error;
    self->changed_.notify();
  };
  const auto rest = asio::buffer(out_) + written_;
  if (tls_) {
    tls_->async_write_some(rest, std::move(handler));
  } else {
    socket_.async_write_some(rest, std::move(handler));
  }
}

Task<bool> ServerWire::write(std::string bytes, Duration stall_max) {
  CHECK(!writing_);
  out_ = std::move(bytes);
  written_ = 0;
  while (!broken_ && written_ < out_.size()) {
    start_writing();
    const Instant deadline = runtime_.now() + stall_max;
    while (writing_ && runtime_.now() < deadline) co_await changed_.wait_until(deadline);
    if (writing_) broken_ = true;
  }
  if (broken_) {
    close();
  } else {
    out_ = {};
  }
  co_return !broken_;
}

Task<void> ServerWire::gone() {
  while (!ended_) {
    if (in_.size() - read_ < kAheadMax) start_reading();
    co_await changed_.wait();
  }
}

Task<void> ServerWire::finish(Instant deadline, size_t bytes_max) {
  error_code ignored;
  // No TLS farewell: it would wait for the other side, and each reply tells its own end.
  socket_.shutdown(Acceptor::Socket::shutdown_send, ignored);
  for (size_t dropped = 0; dropped < bytes_max;) {
    dropped += unread().size();
    consume(unread().size());
    if (co_await hear(deadline) != Heard::kBytes) break;
  }
  close();
}

void ServerWire::close() {
  error_code ignored;
  socket_.close(ignored);
}

void ServerDoor::bind(const Endpoint& endpoint, std::function<bool()> make_room) {
  acceptor_ = std::make_shared<Acceptor>(runtime_, endpoint, "serve HTTP");
  acceptor_->make_room = std::move(make_room);
  acceptor_->arrived = [weak = weak_from_this()](Acceptor::Socket socket, Peer peer) {
    const std::shared_ptr<ServerDoor> self = weak.lock();
    if (!self) return;
    auto wire = std::make_shared<ServerWire>(self->runtime_, self->context_, std::move(socket), std::move(peer));
    self->arrived_.push(std::move(wire));
    if (self->arrived_.size() < kArrivedMax) self->acceptor_->accept_one();
  };
}

Task<std::shared_ptr<ServerWire>> ServerDoor::accept() {
  acceptor_->accept_one();
  std::optional<std::shared_ptr<ServerWire>> next = co_await arrived_.pop();
  CHECK(next);
  co_return std::move(*next);
}

void ServerDoor::close() {
  acceptor_->close();
  while (std::optional<std::shared_ptr<ServerWire>> left = arrived_.try_pop()) (*left)->close();
}

ServerWire::TlsContext make_server_context(const TlsFiles& files) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX* native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  const auto need = [](const error_code& error, const char* what, const std::string& path) {
    if (!error) return;
    throw Error(ErrorCode::kFailed, fmt::format("cannot use the {} '{}': {}", what, path, error.message()), path,
                "is it there, in PEM, and may this user read it?");
  };
  error_code error;
  context->use_certificate_chain_file(files.certificate, error);
  need(error, "certificate", files.certificate);
  context->use_private_key_file(files.key, asio::ssl::context::pem, error);
  need(error, "key", files.key);
  return context;
}

}  // namespace rubato::os
