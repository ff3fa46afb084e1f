#include "kubernetes/exec.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "rest/base64.h"

namespace rubato::kubernetes {
namespace {

constexpr Duration kOpenTimeout = 30s;
constexpr size_t kPieceMax = 32 << 10;  // older servers read into buffers of this size
// What a pipe holds for a command that does not read: a server with no more than that goes on reading from us.
constexpr uint64_t kHeldMax = 32 << 10;
constexpr const char* kNewest = "v5.channel.k8s.io";
constexpr const char* kOlder = "v4.channel.k8s.io";
constexpr const char* kDoesItRun = "does the container run? kubectl describe pod";

HttpRequest exec_request(Client& client, const Login& login, const ExecOrder& order, const std::string& protocol,
                         const std::string& key) {
  HttpRequest out;
  rest::Query query;
  for (const std::string& word : order.argv) query.emplace_back("command", word);
  if (!order.container.empty()) query.emplace_back("container", order.container);
  query.emplace_back("stdin", "true");
  query.emplace_back("stdout", "true");
  // A terminal has one output; the server refuses both.
  if (!order.tty) query.emplace_back("stderr", "true");
  if (order.tty) query.emplace_back("tty", "true");
  std::string base = client.access().server().path;
  while (base.ends_with('/')) base.pop_back();
  out.target = base + path_of(pods(), order.pod, "exec") + "?" + rest::encode_query(query);
  out.headers = {{"connection", "Upgrade"},
                 {"upgrade", "websocket"},
                 {"sec-websocket-version", "13"},
                 {"sec-websocket-key", key},
                 {"sec-websocket-protocol", protocol}};
  client.access().introduce(login, out);
  out.proxy = client.access().proxy();
  return out;
}

std::string header_of(const HttpResponse& response, const std::string& name) {
  const auto found = response.headers.find(name);
  return found == response.headers.end() ? "" : std::string(trim(found->second));
}

// A server that does not know the protocol refuses the handshake in words of its WebSocket library; one that does not
// let us in, with a Status.
bool may_speak_older(const HttpResponse& response) {
  if (response.status != 400 && response.status != 403 && response.status != 500) return false;
  const nlohmann::json document = nlohmann::json::parse(response.body, nullptr, false);
  return text_in(document, "reason") != "Forbidden" && text_in(document, "reason") != "NotFound";
}

Error refusal_of(const HttpResponse& response, const ExecOrder& order) {
  rest::CloudError error = read_refusal(response, "exec in pod " + to_string(order.pod));
  const std::string text = to_lower(error.message + response.body);
  // A container that is being started is refused as a mistake of ours.
  const bool later = response.status == 500 || text.find("container") != std::string::npos ||
                     text.find("does not have a host assigned") != std::string::npos;
  if (later && error.code != ErrorCode::kAuth) {
    return Error(ErrorCode::kUnavailable, error.message, error.where, kDoesItRun);
  }
  return error;
}

Task<UpgradeResult> try_upgrade(Client& client, HttpUpgrades& upgrades, const ExecOrder& order, std::string protocol) {
  World& world = client.world();
  const bool second_try[] = {false, true};
  UpgradeResult out;
  for (const bool last : second_try) {
    Task<Login> fetched = client.access().login();
    const Login login = co_await std::move(fetched);
    std::string bytes;
    for (int i = 0; i < 16; ++i) bytes += static_cast<char>(world.random.below(256));
    const std::string key = rest::base64(bytes);
    HttpRequest request = exec_request(client, login, order, protocol, key);
    Endpoint endpoint = client.access().server().endpoint;
    const Instant deadline = world.clock.now() + kOpenTimeout;
    out = co_await upgrades.upgrade(std::move(endpoint), login.tls, std::move(request), deadline);
    if (out.response.status == 401 && !last) {
      client.access().forget();
      continue;
    }
    const bool right = header_of(out.response, "sec-websocket-accept") == websocket_accept(key) &&
                       header_of(out.response, "sec-websocket-protocol") == protocol;
    if (out.stream && !right) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("exec in pod {}: the answer is not the server's", to_string(order.pod)), "",
                  "is a proxy in between that does not know WebSockets?");
    }
    break;
  }
  co_return out;
}

}  // namespace

ExecSession::ExecSession(World& world, std::unique_ptr<ByteStream> stream, bool framed)
    : world_(world),
      stream_(std::move(stream)),
      framed_(framed),
      sent_(world.clock.loop()),
      pongs_(world.clock.loop()) {}

Task<void> ExecSession::send(WebSocketKind kind, std::string payload) {
  while (sending_) co_await sent_.wait();
  if (broken_) co_return;
  sending_ = true;
  std::string frame = encode_websocket(kind, payload, static_cast<uint32_t>(world_.random.next()));
  bool fine = co_await stream_->write(std::move(frame));
  while (fine && pong_) {
    const std::string owed = *std::exchange(pong_, std::nullopt);
    std::string answer = encode_websocket(WebSocketKind::kPong, owed, static_cast<uint32_t>(world_.random.next()));
    fine = co_await stream_->write(std::move(answer));
  }
  sending_ = false;
  broken_ = broken_ || !fine;
  sent_.notify();
}

// Never waits: a server that is held up by our input would wait for us to read, and we for it to take the pong. The
// newest ping alone need be answered.
void ExecSession::answer_ping(std::string payload) {
  if (sending_) {
    pong_ = std::move(payload);
  } else {
    pongs_.spawn(send(WebSocketKind::kPong, std::move(payload)));
  }
}

// Our pings say how much was sent before them, and servers take one message after the other.
void ExecSession::hear_pong(const std::string& payload) {
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(payload.data(), payload.data() + payload.size(), count);
  if (error == std::errc() && end == payload.data() + payload.size() && count <= input_) passed_ = count;
}

bool ExecSession::is_silent(Duration longest) const {
  if (!reads_since_ || !passed_ || input_ - *passed_ > kHeldMax) return false;
  return world_.clock.now() - *reads_since_ >= longest;
}

Task<void> ExecSession::write(std::string bytes) {
  for (size_t at = 0; at < bytes.size() && !input_ended_; at += kPieceMax) {
    const std::string_view piece = std::string_view(bytes).substr(at, kPieceMax);
    std::string payload(1, kExecInput);
    payload += framed_ ? framed_piece(piece) : std::string(piece);
    co_await send(WebSocketKind::kBinary, std::move(payload));
    input_ += piece.size();
  }
}

Task<void> ExecSession::end_input() {
  if (std::exchange(input_ended_, true)) co_return;
  std::string payload;
  if (framed_) {
    payload = std::string(1, kExecInput) + framed_piece("");
  } else {
    payload = {kExecClose, kExecInput};
  }
  co_await send(WebSocketKind::kBinary, std::move(payload));
}

Task<void> ExecSession::resize(int columns, int rows) {
  std::string payload = std::string(1, kExecResize) + resize_message(columns, rows);
  co_await send(WebSocketKind::kBinary, std::move(payload));
}

Task<void> ExecSession::ping() {
  std::string count = std::to_string(input_);
  co_await send(WebSocketKind::kPing, std::move(count));
}

Task<std::optional<ExecOutput>> ExecSession::read() {
  while (!closed_) {
    while (next_ < messages_.size()) {
      WebSocketMessage one = std::move(messages_[next_++]);
      if (one.kind == WebSocketKind::kPing) answer_ping(std::move(one.payload));
      if (one.kind == WebSocketKind::kPong) hear_pong(one.payload);
      closed_ = closed_ || one.kind == WebSocketKind::kClose;
      const bool is_data = one.kind == WebSocketKind::kBinary || one.kind == WebSocketKind::kText;
      if (!is_data || one.payload.empty()) continue;
      const char channel = one.payload.front();
      std::string_view bytes = std::string_view(one.payload).substr(1);
      if (channel == kExecStatus) {
        end_ = read_exec_status(bytes);
        has_end_ = true;
      }
      // Servers begin each output with an empty message.
      if ((channel != kExecOutput && channel != kExecError) || bytes.empty()) continue;
      ExecOutput out;
      out.is_stderr = channel == kExecError;
      out.bytes = std::string(bytes);
      co_return out;
    }
    if (closed_) break;
    reads_since_ = world_.clock.now();
    std::string came = co_await stream_->read();
    reads_since_.reset();
    if (came.empty()) break;
    messages_ = decoder_.add(came);
    next_ = 0;
  }
  if (!has_end_) {
    throw Error(ErrorCode::kUnavailable, "the connection to the API server was lost", "",
                "the command may go on there; try again");
  }
  if (end_.unreached) throw Error(ErrorCode::kUnavailable, end_.message, "", kDoesItRun);
  if (!end_.ended) throw Error(ErrorCode::kFailed, "the command could not be run: " + end_.message);
  co_return std::nullopt;
}

Task<std::unique_ptr<ExecSession>> open_exec(Client& client, HttpUpgrades& upgrades, ExecOrder order) {
  UpgradeResult got = co_await try_upgrade(client, upgrades, order, kNewest);
  bool framed = false;
  if (!got.stream && may_speak_older(got.response)) {
    ExecOrder older = order;
    framed = !order.tty;
    if (framed) older.argv = with_framed_input(order.argv);
    got = co_await try_upgrade(client, upgrades, older, kOlder);
  }
  if (!got.stream) throw refusal_of(got.response, order);
  co_return std::make_unique<ExecSession>(client.world(), std::move(got.stream), framed);
}

}  // namespace rubato::kubernetes
