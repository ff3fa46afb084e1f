#include "os/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "os/connection_places.h"
#include "os/http_rate.h"
#include "os/http_request.h"
#include "os/http_response_text.h"
#include "os/server_wire.h"
#include "world/http_reply.h"

namespace rubato::os {

namespace {

constexpr Duration kHandshakeMax = 5s;
constexpr Duration kFinishMax = 2s;
constexpr size_t kStreamPieceBytes = 256 << 10;
// A client that is refused reads our answer only when its body is out: a few uploads' worth. A stranger may not send
// any.
constexpr size_t kFinishBytesMax = 64 << 20;
constexpr size_t kStrangerFinishBytesMax = 64 << 10;

// What the connections of one server share.
struct Shared {
  Runtime& runtime;
  const HttpLimits limits;
  const Log log;
  HttpRates rates;
  ConnectionPlaces places;                                // of those who have shown nothing yet
  std::map<ConnectionPlaces::Id, ServerWire*> strangers;  // by their places
  // Of the others, by their peers and in their order.
  std::map<std::string, std::map<uint64_t, ServerWire*>> seats;
  size_t seats_taken = 0;
  uint64_t next_seat = 1;
  size_t bodies_bytes = 0;  // of requests that are being read or handled
  std::set<ServerWire*> open;
  HttpAdmit admit;

  bool close_place(std::optional<ConnectionPlaces::Id> place) {
    const auto found = place ? strangers.find(*place) : strangers.end();
    if (found == strangers.end()) return false;
    found->second->close();
    strangers.erase(found);
    return true;
  }

  // nullopt: there is none for him.
  std::optional<uint64_t> take_seat(const std::string& peer, ServerWire* wire) {
    if (seats_taken >= limits.connections_max && !vacate_seat_for(peer)) return std::nullopt;
    ++seats_taken;
    seats[peer][next_seat] = wire;
    return next_seat++;
  }
  void leave_seat(const std::string& peer, uint64_t seat) {
    const auto held = seats.find(peer);
    if (held == seats.end() || held->second.erase(seat) == 0) return;
    --seats_taken;
    if (held->second.empty()) seats.erase(held);
  }
  // Who may come in is not always one of ours: the pods of an operator belong to many. So whoever holds the most seats
  // gives up the oldest to one who has fewer.
  bool vacate_seat_for(const std::string& peer) {
    const auto size = [](const auto& held) { return held.second.size(); };
    const auto most = std::ranges::max_element(seats, {}, size);
    const auto mine = seats.find(peer);
    if (most == seats.end() || most->second.size() < (mine == seats.end() ? 0 : mine->second.size()) + 2) return false;
    const auto [seat, wire] = *most->second.begin();
    leave_seat(std::string(most->first), seat);
    wire->close();
    return true;
  }
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
      if (!written) throw Error(ErrorCode::kUnavailable, "the client is gone", wire_.peer().address);
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
  Session(std::shared_ptr<Shared> shared, std::shared_ptr<ServerWire> wire, ConnectionPlaces::Id place,
          const HttpHandler& handler)
      : shared_(std::move(shared)),
        limits_(shared_->limits),
        wire_(std::move(wire)),
        handler_(handler),
        place_(place),
        body_(shared_->bodies_bytes) {
    shared_->open.insert(wire_.get());
  }
  Session(const Session&) = delete;
  ~Session() {
    leave_place();
    if (seat_) shared_->leave_seat(wire_->peer().key, *seat_);
    shared_->open.erase(wire_.get());
    wire_->close();
  }

  Task<void> run() {
    const bool opened = co_await wire_->open(now() + kHandshakeMax);
    while (opened && !wire_->closed()) {
      const Duration idle_max =
          authenticated_ ? limits_.idle_max : std::min(limits_.stranger_idle_max, limits_.idle_max);
      const ServerWire::Heard heard = co_await wire_->hear(now() + idle_max);
      if (heard != ServerWire::Heard::kBytes) break;
      const bool more = co_await exchange();
      if (!more) break;
    }
  }

 private:
  Instant now() const { return shared_->runtime.now(); }

  void leave_place() {
    shared_->places.leave(place_);
    shared_->strangers.erase(place_);
  }

  // The header of a request is there.
  HttpRequestParser::HeadAnswer judge(const ServerRequest& head) {
    const HttpAdmission admission = shared_->admit(head);
    HttpRequestParser::HeadAnswer answer;
    answer.body_bytes_max = admission.body_bytes_max;
    may_send_ = admission.authenticated;
    // A stranger spends what is his, also where he shares an address with one who is none.
    const std::string& key = wire_->peer().key;
    if (!shared_->rates.take(admission.authenticated ? key : "stranger " + key, now())) {
      answer.refusal = HttpRefusal{429, "more requests than one client may make"};
    } else if (!admission.authenticated && has_body(head)) {
      answer.refusal = HttpRefusal{401, "a token is needed"};
    } else if (admission.authenticated && !take_seat()) {
      answer.refusal = HttpRefusal{503, "too many connections"};
    }
    return answer;
  }

  static bool has_body(const ServerRequest& head) {
    const auto length = head.headers.find("content-length");
    return head.headers.contains("transfer-encoding") || (length != head.headers.end() && length->second != "0");
  }

  // From now on the connection counts among those who have shown what they need. False: there are too many of them.
  bool take_seat() {
    if (authenticated_) return true;
    seat_ = shared_->take_seat(wire_->peer().key, wire_.get());
    if (!seat_) return false;
    authenticated_ = true;
    leave_place();
    shared_->places.remember(wire_->peer().key);
    return true;
  }

  // One request and its reply. False: the connection ends.
  Task<bool> exchange() {
    HttpRequestParser::OnHead on_head = [this](const ServerRequest& head) { return judge(head); };
    HttpRequestParser parser(limits_, std::move(on_head));
    std::optional<HttpRefusal> refusal = co_await read_request(parser);
    if (refusal) {
      parser.take();  // the rest of a refused upload is read for a while, its body is not kept
      body_.set(0);
      if (refusal->status != 0) co_await refuse(std::move(*refusal));
      co_return false;
    }
    const bool keep_alive = parser.keep_alive();
    ServerRequest request = parser.take();
    request.peer = wire_->peer().address;
    const std::string what = request.method + " " + request.path;
    std::optional<ServerReply> reply = co_await handle(std::move(request), what);
    if (!reply) co_return false;
    body_.set(0);
    if (reply->stream) co_return co_await send_stream(*reply, keep_alive, parser.is_http_1_0(), what);
    std::string text = reply_head(*reply, BodyKind::kSized, keep_alive);
    const bool written = co_await wire_->write(std::move(text), limits_.write_stall_max);
    if (written && !keep_alive) co_await finish();
    co_return written&& keep_alive;
  }

  // nullopt: the parser has it. Status 0: the client went away in the middle.
  Task<std::optional<HttpRefusal>> read_request(HttpRequestParser& parser) {
    const Instant begun = now();
    bool continued = false;
    while (true) {
      wire_->consume(parser.feed(wire_->unread()));
      if (parser.refusal()) co_return parser.refusal();
      body_.set(parser.body_bytes());
      if (shared_->bodies_bytes > limits_.bodies_bytes_max) co_return HttpRefusal{503, "too many uploads at once"};
      if (parser.done()) co_return std::nullopt;
      if (parser.head_done() && parser.expects_continue() && !std::exchange(continued, true)) {
        std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        const bool written = co_await wire_->write(std::move(go_on), limits_.write_stall_max);
        if (!written) co_return HttpRefusal{0, ""};
      }
      const Duration header_max = std::min(limits_.header_max, limits_.request_max);
      const ServerWire::Heard heard =
          co_await wire_->hear(begun + (parser.head_done() ? limits_.request_max : header_max));
      if (heard == ServerWire::Heard::kEnd) co_return HttpRefusal{0, ""};
      if (heard == ServerWire::Heard::kLate) co_return HttpRefusal{408, "the request took too long to arrive"};
    }
  }

  Task<void> finish() {
    co_await wire_->finish(now() + kFinishMax, may_send_ ? kFinishBytesMax : kStrangerFinishBytesMax);
  }

  Task<void> refuse(HttpRefusal refusal) {
    std::string text = reply_head(refusal_reply(refusal), BodyKind::kSized, false);
    const bool written = co_await wire_->write(std::move(text), std::min(limits_.write_stall_max, kFinishMax));
    if (written) co_await finish();
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
    if (whole && !keep_alive) co_await finish();
    co_return whole&& keep_alive;
  }

  const std::shared_ptr<Shared> shared_;
  const HttpLimits& limits_;
  const std::shared_ptr<ServerWire> wire_;
  const HttpHandler& handler_;
  const ConnectionPlaces::Id place_;
  bool authenticated_ = false;  // once
  bool may_send_ = false;       // the last request was
  std::optional<uint64_t> seat_;
  Share body_;
};

class RealHttpServer final : public HttpServer {
 public:
  RealHttpServer(Runtime& runtime, const Endpoint& endpoint, const TlsFiles& tls, const HttpLimits& limits, Log log)
      : shared_(std::make_shared<Shared>(Shared{runtime,
                                                limits,
                                                std::move(log),
                                                HttpRates(limits.requests_per_second, limits.requests_burst),
                                                ConnectionPlaces(within_open_files(PlaceLimits{})),
                                                {},
                                                {},
                                                0,
                                                1,
                                                0,
                                                {},
                                                {}})),
        door_(std::make_shared<ServerDoor>(runtime, tls.use_tls ? make_server_context(tls) : nullptr)) {
    std::function<bool()> make_room = [weak = std::weak_ptr<Shared>(shared_)] {
      const std::shared_ptr<Shared> shared = weak.lock();
      return shared && shared->close_place(shared->places.evict_stranger());
    };
    door_->bind(endpoint, std::move(make_room));
  }
  ~RealHttpServer() override {
    door_->close();
    for (ServerWire* wire : shared_->open) wire->close();
  }

  uint16_t port() const override { return door_->port(); }

  Task<void> serve(HttpHandler handler, HttpAdmit admit) override {
    const std::shared_ptr<Shared> shared = shared_;
    const std::shared_ptr<ServerDoor> door = door_;
    shared->admit = std::move(admit);
    Scope sessions(shared->runtime);
    while (true) {
      std::shared_ptr<ServerWire> wire = co_await door->accept();
      const ConnectionPlaces::Arrival arrival = shared->places.arrive(wire->peer(), shared->runtime.now());
      shared->close_place(arrival.evicted);
      if (arrival.place) {
        shared->strangers[*arrival.place] = wire.get();
        sessions.spawn(converse(shared, std::move(wire), *arrival.place, handler));
      } else {
        wire->close();
      }
    }
  }

 private:
  static Task<void> converse(std::shared_ptr<Shared> shared, std::shared_ptr<ServerWire> wire,
                             ConnectionPlaces::Id place, const HttpHandler& handler) {
    Session session(shared, std::move(wire), place, handler);
    co_await session.run();
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
