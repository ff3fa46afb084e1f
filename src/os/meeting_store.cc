#include "os/meeting_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/json_bounds.h"
#include "core/text.h"
#include "os/etcd_json.h"

namespace rubato::os {

namespace {

using Json = nlohmann::json;

constexpr size_t kLineBytesMax = size_t{4} << 20;
constexpr size_t kKeysMax = 10'000;  // of one request
constexpr JsonBounds kBounds{4, kKeysMax, kKeysMax + 16};
// What is larger takes milliseconds to read or to write.
constexpr size_t kBesideBytes = size_t{64} << 10;
constexpr Duration kWaitMax = 10s;
constexpr Duration kHelloMax = 10s;
constexpr Duration kStallMax = 30s;  // of a client that does not take its reply
// With the token. A worker needs a connection for each thread that asks; more come from nobody we know.
constexpr int kConnectionsMax = 4096;

// The next line without its end; nullopt: the connection has ended, or sent what is no line.
Task<std::optional<std::string>> read_line(ServerWire& wire, size_t bytes_max, Instant deadline) {
  size_t searched = 0;
  while (true) {
    const std::string_view text = wire.unread();
    const size_t end = text.find('\n', searched);
    if (end != std::string_view::npos && end <= bytes_max) {
      std::string line(text.substr(0, end));
      wire.consume(end + 1);
      co_return line;
    }
    searched = text.size();
    if (searched > bytes_max) co_return std::nullopt;
    if (co_await wire.hear_more(deadline) != ServerWire::Heard::kBytes) co_return std::nullopt;
  }
}

bool is_hello(const std::string& line, const std::string& token) {
  const Json hello = Json::parse(line, nullptr, false);
  if (!hello.is_object() || hello.value("op", Json()) != "hello") return false;
  const Json given = hello.value("token", Json());
  return given.is_string() && constant_time_equal(given.get<std::string>(), token);
}

struct Request {
  std::string op, key, value, prefix;
  std::vector<std::string> keys;
  int64_t amount = 0;
  Duration wait{};
  std::string problem;  // it is none
};

void read_fields(const Json& json, Request& request) {
  request.op = json.at("op").get<std::string>();
  if (request.op == "set") {
    request.key = json.at("key").get<std::string>();
    request.value = etcd_json::decode(json.at("value").get_ref<const std::string&>());
  } else if (request.op == "get") {
    request.keys = json.at("keys").get<std::vector<std::string>>();
    request.wait = std::chrono::milliseconds(std::clamp(json.value("wait_ms", 0), 0, 1'000'000));
  } else if (request.op == "add") {
    request.key = json.at("key").get<std::string>();
    request.amount = json.at("amount").get<int64_t>();
  } else if (request.op == "delete") {
    request.prefix = json.at("prefix").get<std::string>();
  } else {
    request.problem = "unknown op '" + request.op + "'";
  }
}

Request read_request(const std::string& line) {
  Request request;
  try {
    check_json_bounds(line, kBounds, "a request");
    read_fields(Json::parse(line), request);
  } catch (const Json::exception& error) {
    request.problem = error.what();
  } catch (const Error& error) {
    request.problem = error.message;
  }
  return request;
}

std::string text_of(const Json& reply) { return reply.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

// Base64 needs no escapes.
std::string values_text(const std::vector<std::string>& values) {
  std::string text = "{\"values\":[";
  for (const std::string& value : values) {
    if (text.back() != '[') text += ',';
    text += '"' + etcd_json::encode(value) + '"';
  }
  return text + "]}\n";
}

}  // namespace

RealMeetingStore::RealMeetingStore(Runtime& runtime, const std::string& token, bool loopback)
    : runtime_(runtime),
      token_(token),
      door_(std::make_shared<ServerDoor>(runtime, nullptr)),
      gate_(runtime),
      turns_(runtime),
      places_(within_open_files(PlaceLimits{})),
      scope_(runtime) {
  const Endpoint at{loopback ? "127.0.0.1" : "", 0};
  std::function<bool()> make_room = [this] { return close_place(places_.evict_stranger()); };
  door_->bind(at, std::move(make_room));
  scope_.spawn(serve());
}

RealMeetingStore::~RealMeetingStore() {
  scope_.cancel();
  door_->close();
}

bool RealMeetingStore::close_place(std::optional<ConnectionPlaces::Id> place) {
  const auto found = place ? strangers_.find(*place) : strangers_.end();
  if (found == strangers_.end()) return false;
  found->second->close();
  strangers_.erase(found);
  return true;
}

Task<void> RealMeetingStore::serve() {
  while (true) {
    std::shared_ptr<ServerWire> wire = co_await door_->accept();
    const ConnectionPlaces::Arrival arrival = places_.arrive(wire->peer(), runtime_.now());
    close_place(arrival.evicted);
    if (!arrival.place) {
      wire->close();
      continue;
    }
    strangers_[*arrival.place] = wire;
    scope_.spawn(converse(std::move(wire), *arrival.place));
  }
}

// Leaves the place in any case. False: no token, or too many have shown it.
Task<bool> RealMeetingStore::take_hello(std::shared_ptr<ServerWire> wire, ConnectionPlaces::Id place) {
  struct Left {
    RealMeetingStore& store;
    const ConnectionPlaces::Id place;
    ~Left() {
      store.places_.leave(place);
      store.strangers_.erase(place);
    }
  } left{*this, place};
  const std::optional<std::string> hello = co_await read_line(*wire, kHelloBytesMax, runtime_.now() + kHelloMax);
  if (!hello || !is_hello(*hello, token_)) co_return false;
  places_.remember(wire->peer().key);
  co_return connections_ < kConnectionsMax;
}

Task<void> RealMeetingStore::converse(std::shared_ptr<ServerWire> wire, ConnectionPlaces::Id place) {
  struct Closed {
    ServerWire& wire;
    ~Closed() { wire.close(); }
  } closed{*wire};
  const bool welcome = co_await take_hello(wire, place);
  if (!welcome) co_return;
  struct Counted {
    int& count;
    explicit Counted(int& c) : count(++c) {}
    ~Counted() { --count; }
  } counted(connections_);
  bool taken = co_await wire->write("{}\n", kStallMax);
  while (taken) {
    std::optional<std::string> line = co_await read_line(*wire, kLineBytesMax, Instant::max());
    if (!line) co_return;
    std::string reply = co_await answer(std::move(*line));
    taken = co_await wire->write(std::move(reply), kStallMax);
  }
}

Task<void> RealMeetingStore::beside(std::function<void()> work) {
  if (!bulk_) bulk_ = std::make_unique<BulkWork>(runtime_);
  return bulk_->run(std::move(work));
}

void RealMeetingStore::wake(const std::string& key) {
  const auto found = awaited_.find(key);
  if (found != awaited_.end()) found->second.is_set.notify();
}

Task<void> RealMeetingStore::wait_for_key(std::string key, Instant deadline) {
  struct Waiter {
    std::map<std::string, Awaited>& all;
    const std::map<std::string, Awaited>::iterator mine;
    ~Waiter() {
      if (--mine->second.waiters == 0) all.erase(mine);
    }
  };
  const Waiter waiter{awaited_, awaited_.try_emplace(key, runtime_).first};
  ++waiter.mine->second.waiters;
  co_await waiter.mine->second.is_set.wait_until(deadline);
}

Task<Gate::Pass> RealMeetingStore::take_turn() {
  Task<Gate::Pass> entering = gate_.enter();
  Gate::Pass pass = co_await std::move(entering);
  co_await turns_.step();
  co_return std::move(pass);
}

// Thousands may wait, each for thousands of keys: each key is looked for once, and all of them again at the end, for
// one may have been deleted.
Task<std::string> RealMeetingStore::answer_get(std::vector<std::string> keys, Duration most) {
  const Instant deadline = runtime_.now() + std::min(most, kWaitMax);
  size_t at = 0;
  while (true) {
    {
      Task<Gate::Pass> entering = take_turn();
      const Gate::Pass turn = co_await std::move(entering);
      while (at < keys.size() && table_.find(keys[at])) ++at;
      if (at == keys.size() && table_.missing(keys)) {
        at = 0;
        continue;
      }
    }
    if (at == keys.size()) break;
    if (runtime_.now() >= deadline) co_return text_of(Json{{"missing", keys[at]}});
    Task<void> waiting = wait_for_key(keys[at], deadline);
    co_await std::move(waiting);
  }
  Task<std::string> writing = write_values(std::move(keys));
  co_return co_await std::move(writing);
}

// All are there, unless one is deleted in this moment.
Task<std::string> RealMeetingStore::write_values(std::vector<std::string> keys) {
  const auto values = std::make_shared<std::vector<std::string>>();
  size_t bytes = 0;
  {
    Task<Gate::Pass> entering = take_turn();
    const Gate::Pass turn = co_await std::move(entering);
    if (const std::optional<std::string> missing = table_.missing(keys)) co_return text_of(Json{{"missing", *missing}});
    for (const std::string& key : keys) bytes += table_.find(key)->size();
    if (bytes > kReplyBytesMax) {
      co_return text_of(Json{{"error", fmt::format("these values have {} bytes: ask for less at once", bytes)}});
    }
    for (const std::string& key : keys) values->push_back(*table_.find(key));
    if (bytes <= kBesideBytes) co_return values_text(*values);
  }
  const auto text = std::make_shared<std::string>();
  std::function<void()> work = [values, text] { *text = values_text(*values); };
  Task<void> writing = beside(std::move(work));
  co_await std::move(writing);
  co_return std::move(*text);
}

Task<std::string> RealMeetingStore::answer(std::string line) {
  const auto request = std::make_shared<Request>();
  if (line.size() <= kBesideBytes) {
    Task<Gate::Pass> entering = take_turn();
    const Gate::Pass turn = co_await std::move(entering);
    *request = read_request(line);
  } else {
    std::function<void()> work = [request, line = std::move(line)] { *request = read_request(line); };
    Task<void> reading = beside(std::move(work));
    co_await std::move(reading);
  }
  Json reply = Json::object();
  if (!request->problem.empty()) {
    reply["error"] = request->problem;
  } else if (request->op == "get") {
    Task<std::string> getting = answer_get(std::move(request->keys), request->wait);
    co_return co_await std::move(getting);
  } else if (request->op == "delete") {
    reply["deleted"] = table_.remove_prefix(request->prefix);
  } else {
    try {
      if (request->op == "set") table_.set(request->key, std::move(request->value));
      if (request->op == "add") reply["sum"] = table_.add(request->key, request->amount);
      wake(request->key);
    } catch (const Error& error) {
      reply["error"] = error.message;
    }
  }
  co_return text_of(reply);
}

}  // namespace rubato::os
