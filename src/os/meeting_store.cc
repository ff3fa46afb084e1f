#include "os/meeting_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "os/etcd_json.h"

namespace rubato::os {

namespace {

using Json = nlohmann::json;

constexpr size_t kLineBytesMax = size_t{4} << 20;
constexpr size_t kKeysMax = 10'000;  // of one request
constexpr Duration kWaitMax = 10s;
constexpr Duration kHelloMax = 10s;
constexpr Duration kStallMax = 30s;  // of a client that does not take its reply
// A worker needs a connection for each thread that asks; more come from nobody we know.
constexpr int kConnectionsMax = 4096;

// The next line without its end; nullopt: the connection has ended, or sent what is no line.
Task<std::optional<std::string>> read_line(ServerWire& wire, Instant deadline) {
  size_t searched = 0;
  while (true) {
    const std::string_view text = wire.unread();
    const size_t end = text.find('\n', searched);
    if (end != std::string_view::npos) {
      std::string line(text.substr(0, end));
      wire.consume(end + 1);
      co_return line;
    }
    searched = text.size();
    if (searched > kLineBytesMax) co_return std::nullopt;
    if (co_await wire.hear_more(deadline) != ServerWire::Heard::kBytes) co_return std::nullopt;
  }
}

bool is_hello(const std::string& line, const std::string& token) {
  const Json hello = Json::parse(line, nullptr, false);
  if (!hello.is_object() || hello.value("op", Json()) != "hello") return false;
  const Json given = hello.value("token", Json());
  return given.is_string() && constant_time_equal(given.get<std::string>(), token);
}

std::vector<std::string> keys_of(const Json& request) {
  const Json& list = request.at("keys");
  if (!list.is_array() || list.size() > kKeysMax) throw Error(ErrorCode::kUsage, "'keys' is no list, or too long");
  return list.get<std::vector<std::string>>();
}

}  // namespace

RealMeetingStore::RealMeetingStore(Runtime& runtime, const std::string& token, bool loopback)
    : runtime_(runtime),
      token_(token),
      door_(std::make_shared<ServerDoor>(runtime, nullptr)),
      changed_(runtime),
      scope_(runtime) {
  const Endpoint at{loopback ? "127.0.0.1" : "", 0};
  door_->bind(at, [] { return false; });
  scope_.spawn(serve());
}

RealMeetingStore::~RealMeetingStore() {
  scope_.cancel();
  door_->close();
}

Task<void> RealMeetingStore::serve() {
  while (true) {
    std::shared_ptr<ServerWire> wire = co_await door_->accept();
    if (connections_ >= kConnectionsMax) {
      wire->close();
      continue;
    }
    scope_.spawn(converse(std::move(wire)));
  }
}

Task<void> RealMeetingStore::converse(std::shared_ptr<ServerWire> wire) {
  struct Counted {
    int& count;
    explicit Counted(int& c) : count(++c) {}
    ~Counted() { --count; }
  } counted(connections_);
  struct Closed {
    ServerWire& wire;
    ~Closed() { wire.close(); }
  } closed{*wire};
  const std::optional<std::string> hello = co_await read_line(*wire, runtime_.now() + kHelloMax);
  if (!hello || !is_hello(*hello, token_)) co_return;
  bool taken = co_await wire->write("{}\n", kStallMax);
  while (taken) {
    std::optional<std::string> line = co_await read_line(*wire, Instant::max());
    if (!line) co_return;
    std::string reply = co_await answer(std::move(*line));
    taken = co_await wire->write(std::move(reply), kStallMax);
  }
}

Task<bool> RealMeetingStore::wait_for(std::vector<std::string> keys, Duration most) {
  const Instant deadline = runtime_.now() + most;
  while (table_.missing(keys)) {
    if (runtime_.now() >= deadline) co_return false;
    co_await changed_.wait_until(deadline);
  }
  co_return true;
}

Task<std::string> RealMeetingStore::answer(std::string line) {
  Json reply = Json::object();
  try {
    const Json request = Json::parse(line);
    const std::string op = request.at("op").get<std::string>();
    if (op == "set") {
      table_.set(request.at("key").get<std::string>(), etcd_json::decode(request.at("value").get<std::string>()));
      changed_.notify();
    } else if (op == "get") {
      const std::vector<std::string> keys = keys_of(request);
      const Duration wanted = std::chrono::milliseconds(std::clamp(request.value("wait_ms", 0), 0, 1'000'000));
      const bool there = co_await wait_for(keys, std::min(wanted, kWaitMax));
      if (there) {
        reply["values"] = Json::array();
        for (const std::string& key : keys) reply["values"].push_back(etcd_json::encode(*table_.find(key)));
      } else {
        reply["missing"] = *table_.missing(keys);
      }
    } else if (op == "add") {
      reply["sum"] = table_.add(request.at("key").get<std::string>(), request.at("amount").get<int64_t>());
      changed_.notify();
    } else if (op == "delete") {
      reply["deleted"] = table_.remove_prefix(request.at("prefix").get<std::string>());
    } else {
      reply["error"] = "unknown op '" + op + "'";
    }
  } catch (const Json::exception& error) {
    reply = Json{{"error", error.what()}};
  } catch (const Error& error) {
    reply = Json{{"error", error.message}};
  }
  co_return reply.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace rubato::os
