// http_wire: connections as steps that a coroutine can wait for and abandon. Only http_client.cc and byte_streams.cc
// include it.
#pragma once

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/runtime.h"
#include "world/byte_stream.h"

namespace rubato::os::http_wire {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;
using TlsContext = std::shared_ptr<ssl::context>;
using Stream = asio::generic::stream_protocol;  // what TCP and unix sockets have in common

constexpr size_t kReadBytes = 64 << 10;
// Shorter than the idle time-outs of load balancers and NAT (60 s and more), so that a kept connection is seldom dead.
constexpr Duration kKeptFor = 30s;
constexpr size_t kKeptPerEndpoint = 4;

// One connection over TCP or a unix socket, plain or TLS, with at most one step under way, or one read and one write.
// It is all that a handler touches, and each handler holds it: the coroutine that waits for a step may be destroyed at
// any time.
class Wire : public std::enable_shared_from_this<Wire> {
 public:
  Wire(Runtime& runtime, TlsContext context)
      : runtime_(runtime),
        reading_(runtime),
        writing_(runtime),
        socket_(runtime.io()),
        context_(std::move(context)) {
    if (context_) tls_.emplace(socket_, *context_);
  }

  // A socket that somebody has connected or accepted.
  void adopt(Stream::socket socket) {
    socket_ = std::move(socket);
    set_options();
  }
  void end_write() {
    error_code ignored;
    if (!secured_) socket_.shutdown(Stream::socket::shutdown_send, ignored);
  }

  void close() {
    error_code ignored;
    socket_.close(ignored);
  }

  Task<error_code> connect(Stream::endpoint to, Instant deadline) {
    error_code error;
    socket_.open(to.protocol(), error);
    if (error) co_return error;
    set_options();
    socket_.async_connect(to, begin(reading_));
    co_return co_await settled(reading_, deadline);
  }

  Task<error_code> handshake(std::string host, Instant deadline) {
    SSL* handle = tls_->native_handle();
    X509_VERIFY_PARAM* rules = SSL_get0_param(handle);
    if (X509_VERIFY_PARAM_set1_ip_asc(rules, host.c_str()) != 1) {
      X509_VERIFY_PARAM_set1_host(rules, host.data(), host.size());
      SSL_set_tlsext_host_name(handle, host.c_str());
    }
    secured_ = true;
    tls_->async_handshake(ssl::stream_base::client, begin(reading_));
    co_return co_await settled(reading_, deadline);
  }

  Task<error_code> write(std::string text, std::optional<Instant> deadline) {
    out_ = std::move(text);
    if (secured_) {
      asio::async_write(*tls_, asio::buffer(out_), begin(writing_));
    } else {
      asio::async_write(socket_, asio::buffer(out_), begin(writing_));
    }
    const error_code error = co_await settled(writing_, deadline);
    if (!error) out_ = std::string();  // a kept connection need not hold what it sent
    co_return error;
  }

  // Adds what comes next to `in`.
  Task<error_code> read(std::optional<Instant> deadline) {
    const auto space = in.prepare(kReadBytes);
    if (secured_) {
      tls_->async_read_some(space, begin(reading_));
    } else {
      socket_.async_read_some(space, begin(reading_));
    }
    const error_code error = co_await settled(reading_, deadline);
    if (!error) in.commit(reading_.bytes);
    co_return error;
  }

  // Between two calls a server has nothing to say: bytes or an end mean that it has closed or is about to.
  bool quiet() {
    char byte;
    const ssize_t got = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }

  // Why the certificate was not accepted; empty if that was not the reason.
  std::string verify_error() {
    const long result = tls_ ? SSL_get_verify_result(tls_->native_handle()) : X509_V_OK;
    return result == X509_V_OK ? "" : X509_verify_cert_error_string(result);
  }

  boost::beast::flat_buffer in;

 private:
  struct Slot {
    explicit Slot(Loop& loop) : stepped(loop) {}
    Event stepped;
    bool pending = false;
    error_code error;
    size_t bytes = 0;
  };
  struct Step {
    std::shared_ptr<Wire> wire;
    Slot* slot;  // of the wire
    void operator()(error_code error, size_t bytes = 0) const {
      slot->pending = false;
      slot->error = error;
      slot->bytes = bytes;
      slot->stepped.notify();
    }
  };

  Step begin(Slot& slot) {
    CHECK(!slot.pending);
    slot.pending = true;
    return Step{shared_from_this(), &slot};
  }

  Task<error_code> settled(Slot& slot, std::optional<Instant> deadline) {
    while (slot.pending) {
      if (!deadline) {
        co_await slot.stepped.wait();
      } else if (runtime_.now() < *deadline) {
        co_await slot.stepped.wait_until(*deadline);
      } else {
        close();
        co_return error_code(asio::error::timed_out);
      }
    }
    co_return slot.error;
  }

  void set_options() {
    const int fd = socket_.native_handle();
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // Asio leaves it to our children
    const int on = 1, idle_s = 15, interval_s = 5, probes = 3;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  }

  Runtime& runtime_;
  Slot reading_, writing_;
  Stream::socket socket_;
  TlsContext context_;
  std::optional<ssl::stream<Stream::socket&>> tls_;
  bool secured_ = false;  // TLS has begun; a proxy is asked before
  std::string out_;
};

// A Wire as a ByteStream, from what it has read already on.
class WireStream final : public ByteStream {
 public:
  explicit WireStream(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  ~WireStream() override { wire_->close(); }

  Task<std::string> read() override {
    if (wire_->in.size() == 0) {
      const error_code error = co_await wire_->read(std::nullopt);
      if (error) co_return std::string();
    }
    const auto data = wire_->in.data();
    std::string out(static_cast<const char*>(data.data()), data.size());
    wire_->in.consume(out.size());
    co_return out;
  }
  Task<bool> write(std::string bytes) override {
    const error_code error = co_await wire_->write(std::move(bytes), std::nullopt);
    co_return !error;
  }
  void end_write() override { wire_->end_write(); }

 private:
  const std::shared_ptr<Wire> wire_;
};

// What outlives a call: idle connections and TLS contexts. Asio keeps it in the Runtime's io_context.
class Kept final : public asio::execution_context::service {
 public:
  static asio::execution_context::id id;
  explicit Kept(asio::execution_context& owner) : service(owner) {}

  std::shared_ptr<Wire> take(const std::string& peer, Instant now) {
    std::vector<Idle>& idle = idle_[peer];
    while (!idle.empty()) {
      const Idle last = std::move(idle.back());
      idle.pop_back();
      if (now - last.since < kKeptFor && last.wire->quiet()) return last.wire;
    }
    return nullptr;
  }

  void put(const std::string& peer, std::shared_ptr<Wire> wire, Instant now) {
    for (auto& [other, idle] : idle_) {
      std::erase_if(idle, [now](const Idle& one) { return now - one.since >= kKeptFor; });
    }
    std::vector<Idle>& idle = idle_[peer];
    if (idle.size() < kKeptPerEndpoint) idle.push_back(Idle{std::move(wire), now});
  }

  struct Context {
    TlsContext context;
    Instant made;
  };
  std::map<std::string, Context> contexts;

 private:
  void shutdown() noexcept override {
    idle_.clear();
    contexts.clear();
  }
  struct Idle {
    std::shared_ptr<Wire> wire;
    Instant since;
  };
  std::map<std::string, std::vector<Idle>> idle_;
};
inline asio::execution_context::id Kept::id;

}  // namespace rubato::os::http_wire
