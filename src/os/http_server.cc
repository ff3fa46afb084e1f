#include "os/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/text.h"
#include "os/http_rate.h"
#include "os/http_request.h"
#include "os/server_wire.h"
#include "world/http_reply.h"

namespace rubato::os {

namespace {

constexpr Duration kHandshakeMax = 10s;
constexpr Duration kFinishMax = 2s;
// Connections over the limit that are being told so; beyond that they are just closed.
constexpr size_t kTurningAwayMax = 64;
constexpr size_t kStreamPieceBytes = 256 << 10;

const char* reason(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

ServerReply refusal_reply(const HttpRefusal& refusal) {
  const bool large = refusal.status == 413 || refusal.status == 431;
  const bool busy = refusal.status == 429 || refusal.status == 503;
  ServerReply reply = error_reply(refusal.status, large ? "too_large" : busy ? "unavailable" : "usage", refusal.words);
  if (refusal.status == 405) reply.headers["allow"] = "GET, PUT, POST, DELETE";
  if (busy) reply.headers["retry-after"] = "1";
  return reply;
}

// A value that ended the line early would let whoever chose it write headers of his own.
bool is_safe(const std::map<std::string, std::string>& headers) {
  return std::ranges::all_of(headers, [](const auto& entry) {
    const auto clean = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; };
    return !entry.first.empty() && entry.first.find_first_of(" :") == std::string::npos &&
           std::ranges::all_of(entry.first, clean) && std::ranges::all_of(entry.second, clean);
  });
}

enum class BodyKind { kSized, kChunked, kUntilClose };

std::string reply_head(const ServerReply& reply, BodyKind kind, bool keep_alive) {
  std::map<std::string, std::string> headers{{"cache-control", "no-store"}, {"x-content-type-options", "nosniff"}};
  for (const auto& [name, value] : reply.headers) headers[to_lower(name)] = value;
  for (const char* ours : {"content-length", "transfer-encoding", "connection"}) headers.erase(ours);
  if (kind == BodyKind::kChunked) headers["transfer-encoding"] = "chunked";
  const bool bodyless = reply.status == 204 || reply.status == 304;
  if (kind == BodyKind::kSized && !bodyless) headers["content-length"] = std::to_string(reply.body.size());
  if (!keep_alive) headers["connection"] = "close";
  std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " " + reason(reply.status) + "\r\n";
  for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  head += "\r\n";
  if (kind == BodyKind::kSized && !bodyless) head += reply.body;
  return head;
}

// Who shares a rate: see http_server.h.
std::string rate_key(const std::string& address) {
  boost::system::error_code error;
  const auto parsed = boost::asio::ip::make_address(address, error);
  if (error || !parsed.is_v6()) return address;
  boost::asio::ip::address_v6::bytes_type bytes = parsed.to_v6().to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return boost::asio::ip::address_v6(bytes).to_string();
}

// What the connections of one server share.
struct Shared {
  Runtime& runtime;
  const HttpLimits limits;
  const Log log;
  HttpRates rates;
  size_t connections = 0;
  size_t turning_away = 0;
  size_t bodies_bytes = 0;  // of requests that are being read or handled
  std::set<ServerWire*> open;
};

// A share of a counter, given back when it goes.
class Share {
 public:
  explicit Share(size_t& total) : total_(total) {}
  Share(const Share&) = delete;
  ~Share() { total_ -= mine_; }
  void set(size_t amount) {
    total_ = total_ - mine_ + amount;
    mine_ = amount;
  }

 private:
  size_t& total_;
  size_t mine_ = 0;
};

class ChunkWriter final : public HttpStreamWriter {
 public:
  ChunkWriter(ServerWire& wire, const HttpLimits& limits, bool chunked)
      : wire_(wire), limits_(limits), chunked_(chunked) {}

  Task<void> write(std::string bytes) override {
    for (size_t at = 0; at < bytes.size(); at += kStreamPieceBytes) {
      const std::string_view piece = std::string_view(bytes).substr(at, kStreamPieceBytes);
      std::string frame;
      if (chunked_) frame = fmt::format("{:x}\r\n", piece.size());
      frame += piece;
      if (chunked_) frame += "\r\n";
      const bool written = co_await wire_.write(std::move(frame), limits_.write_stall_max);
      if (!written) throw Error(ErrorCode::kUnavailable, "the client is gone", wire_.peer());
    }
  }

 private:
  ServerWire& wire_;
  const HttpLimits& limits_;
  const bool chunked_;
};

// Tasks that end with a value, so that they can race.
Task<bool> ended(Task<void> task) {
  co_await std::move(task);
  co_return true;
}

// One connection from its handshake to its end.
class Session {
 public:
  Session(std::shared_ptr<Shared> shared, std::shared_ptr<ServerWire> wire, const HttpHandler& handler)
      : shared_(std::move(shared)),
        limits_(shared_->limits),
        wire_(std::move(wire)),
        handler_(handler),
        body_(shared_->bodies_bytes) {
    shared_->open.insert(wire_.get());
  }
  Session(const Session&) = delete;
  ~Session() {
    shared_->open.erase(wire_.get());
    wire_->close();
  }

  Task<void> run() {
    const bool opened = co_await wire_->open(now() + kHandshakeMax);
    Duration patience = std::min(limits_.idle_max, limits_.request_max);  // of a stranger who says nothing
    while (opened && !wire_->closed()) {
      const ServerWire::Heard heard = co_await wire_->hear(now() + patience);
      if (heard != ServerWire::Heard::kBytes) break;
      const bool more = co_await exchange();
      if (!more) break;
      patience = limits_.idle_max;
    }
  }

  // The newest connection, when there are too many.
  Task<void> turn_away() {
    const bool opened = co_await wire_->open(now() + kFinishMax);
    if (!opened) co_return;
    HttpRefusal refusal{503, "too many connections"};
    co_await refuse(std::move(refusal));
  }

 private:
  Instant now() const { return shared_->runtime.now(); }

  // One request and its reply. False: the connection ends.
  Task<bool> exchange() {
    HttpRequestParser parser(limits_);
    std::optional<HttpRefusal> refusal = co_await read_request(parser);
    if (refusal) {
      parser.take();  // the rest of a refused upload is read for a while, its body is not kept
      body_.set(0);
      if (refusal->status != 0) co_await refuse(std::move(*refusal));
      co_return false;
    }
    const bool keep_alive = parser.keep_alive();
    ServerRequest request = parser.take();
    request.peer = wire_->peer();
    const std::string what = request.method + " " + request.path;
    std::optional<ServerReply> reply = co_await handle(std::move(request), what);
    if (!reply) co_return false;
    body_.set(0);
    if (reply->stream) co_return co_await send_stream(*reply, keep_alive, parser.is_http_1_0(), what);
    std::string text = reply_head(*reply, BodyKind::kSized, keep_alive);
    const bool written = co_await wire_->write(std::move(text), limits_.write_stall_max);
    if (written && !keep_alive) co_await wire_->finish(now() + kFinishMax);
    co_return written&& keep_alive;
  }

  // nullopt: the parser has it. Status 0: the client went away in the middle.
  Task<std::optional<HttpRefusal>> read_request(HttpRequestParser& parser) {
    const Instant deadline = now() + limits_.request_max;
    bool counted = false, continued = false;
    while (true) {
      wire_->consume(parser.feed(wire_->unread()));
      if (parser.refusal()) co_return parser.refusal();
      if (parser.head_done() && !std::exchange(counted, true) && !shared_->rates.take(rate_key(wire_->peer()), now())) {
        co_return HttpRefusal{429, "more requests than one client may make"};
      }
      body_.set(parser.body_bytes());
      if (shared_->bodies_bytes > limits_.bodies_bytes_max) co_return HttpRefusal{503, "too many uploads at once"};
      if (parser.done()) co_return std::nullopt;
      if (parser.head_done() && parser.expects_continue() && !std::exchange(continued, true)) {
        std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        const bool written = co_await wire_->write(std::move(go_on), limits_.write_stall_max);
        if (!written) co_return HttpRefusal{0, ""};
      }
      const ServerWire::Heard heard = co_await wire_->hear(deadline);
      if (heard == ServerWire::Heard::kEnd) co_return HttpRefusal{0, ""};
      if (heard == ServerWire::Heard::kLate) co_return HttpRefusal{408, "the request took too long to arrive"};
    }
  }

  Task<void> refuse(HttpRefusal refusal) {
    std::string text = reply_head(refusal_reply(refusal), BodyKind::kSized, false);
    const bool written = co_await wire_->write(std::move(text), std::min(limits_.write_stall_max, kFinishMax));
    if (written) co_await wire_->finish(now() + kFinishMax);
  }

  // nullopt: the client went away.
  Task<std::optional<ServerReply>> handle(ServerRequest request, std::string what) {
    std::optional<ServerReply> reply;
    std::string failure;
    try {
      Task<ServerReply> work = handler_(std::move(request));
      Task<bool> gone = ended(wire_->gone());
      auto first = co_await race(shared_->runtime, std::move(work), std::move(gone));
      if (first.index() == 1) co_return std::nullopt;
      reply = std::move(std::get<0>(first));
      if (!is_safe(reply->headers)) failure = "the reply has a header with a control character in it";
    } catch (const Error& error) {
      reply = error_reply(error);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (!failure.empty()) {
      shared_->log.error("the API failed", {{"request", what}, {"why", failure}});
      reply = error_reply(500, "failed", "the server failed at this request", "", "its log says why");
    }
    co_return reply;
  }

  Task<bool> send_stream(const ServerReply& reply, bool keep_alive, bool http_1_0, std::string what) {
    const BodyKind kind = http_1_0 ? BodyKind::kUntilClose : BodyKind::kChunked;
    std::string head = reply_head(reply, kind, keep_alive);
    const bool begun = co_await wire_->write(std::move(head), limits_.write_stall_max);
    if (!begun) co_return false;
    ChunkWriter writer(*wire_, limits_, kind == BodyKind::kChunked);
    std::string failure;
    try {
      Task<bool> work = ended(reply.stream(writer));
      Task<bool> gone = ended(wire_->gone());
      const auto first = co_await race(shared_->runtime, std::move(work), std::move(gone));
      if (first.index() == 1) co_return false;
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (!failure.empty()) {
      // The reply has begun: to break off is the only way left to say that it is not whole.
      if (!wire_->closed())
        shared_->log.warning("a stream of the API broke off", {{"request", what}, {"why", failure}});
      co_return false;
    }
    bool whole = true;
    if (kind == BodyKind::kChunked) {
      std::string last = "0\r\n\r\n";
      whole = co_await wire_->write(std::move(last), limits_.write_stall_max);
    }
    if (whole && !keep_alive) co_await wire_->finish(now() + kFinishMax);
    co_return whole&& keep_alive;
  }

  const std::shared_ptr<Shared> shared_;
  const HttpLimits& limits_;
  const std::shared_ptr<ServerWire> wire_;
  const HttpHandler& handler_;
  Share body_;
};

class RealHttpServer final : public HttpServer {
 public:
  RealHttpServer(Runtime& runtime, const Endpoint& endpoint, const TlsFiles& tls, const HttpLimits& limits, Log log)
      : shared_(std::make_shared<Shared>(
            Shared{runtime, limits, std::move(log), HttpRates(limits.requests_per_second, limits.requests_burst)})),
        door_(std::make_shared<ServerDoor>(runtime, tls.use_tls ? make_server_context(tls) : nullptr)) {
    door_->bind(endpoint);
  }
  ~RealHttpServer() override {
    door_->close();
    for (ServerWire* wire : shared_->open) wire->close();
  }

  uint16_t port() const override { return door_->port(); }

  Task<void> serve(HttpHandler handler) override {
    const std::shared_ptr<Shared> shared = shared_;
    const std::shared_ptr<ServerDoor> door = door_;
    Scope sessions(shared->runtime);
    while (true) {
      std::shared_ptr<ServerWire> wire = co_await door->accept();
      if (shared->connections < shared->limits.connections_max) {
        sessions.spawn(converse(shared, std::move(wire), handler));
      } else if (shared->turning_away < kTurningAwayMax) {
        sessions.spawn(turn_away(shared, std::move(wire), handler));
      } else {
        wire->close();
      }
    }
  }

 private:
  static Task<void> converse(std::shared_ptr<Shared> shared, std::shared_ptr<ServerWire> wire,
                             const HttpHandler& handler) {
    Share place(shared->connections);
    place.set(1);
    Session session(shared, std::move(wire), handler);
    co_await session.run();
  }
  static Task<void> turn_away(std::shared_ptr<Shared> shared, std::shared_ptr<ServerWire> wire,
                              const HttpHandler& handler) {
    Share place(shared->turning_away);
    place.set(1);
    Session session(shared, std::move(wire), handler);
    co_await session.turn_away();
  }

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<ServerDoor> door_;
};

}  // namespace

std::unique_ptr<HttpServer> make_http_server(Runtime& runtime, const Endpoint& endpoint, const TlsFiles& tls,
                                             const HttpLimits& limits, Log log) {
  return std::make_unique<RealHttpServer>(runtime, endpoint, tls, limits, std::move(log));
}

}  // namespace rubato::os
