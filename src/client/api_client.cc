#include "client/api_client.h"

#include <fmt/format.h>

#include <csignal>

#include "client/head_end.h"
#include "client/remote_place.h"
#include "client/supervision.h"
#include "core/scope.h"
#include "core/text.h"
#include "os/daemons.h"
#include "os/files.h"
#include "os/network.h"
#include "os/secret.h"
#include "os/signals.h"
#include "terminal/document.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kApiRoot = "/api/v1/";
constexpr Duration kAskAgainAfter = 100ms;
constexpr Duration kTellAfter = 1s;
constexpr Duration kHeaderLimit = 20s;
// A head that is busy says when to come again; for so long in all it is believed.
constexpr Duration kBusyPatience = 30s;
constexpr Duration kComeAgainMax = 5s;
constexpr Duration kRestartPatience = 5s;
constexpr size_t kErrorBytesMax = 64 << 10;

struct HeadAddress {
  Endpoint endpoint;
  TlsFiles tls;
};

HeadAddress read_address(const ClusterPlace& place) {
  const std::optional<std::string> text = os::RealFiles().read(place.head_file());
  if (!text)
    throw no_cluster(fmt::format("'{0}' is down; start it with: rubato up --cluster {0}", place.name));
  const json document = json::parse(*text, nullptr, false);
  const json api = document.is_object() ? document.value("api", json::object()) : json::object();
  const bool told = api.is_object() && api.contains("port") && api["port"].is_number_integer();
  const int port = told ? api["port"].get<int>() : 0;
  if (port <= 0 || port > 65535) {
    throw Error(ErrorCode::kFailed, "this file does not tell where the head listens", place.head_file(),
                "restart the head with: rubato up");
  }
  HeadAddress out;
  // Whoever else crowds the port is passed by.
  const std::string file = api.value("socket", std::string());
  if (!file.empty() && os::RealFiles().exists(place.head_folder() + "/" + file)) {
    out.endpoint = Endpoint{place.head_folder() + "/" + file, 0};
    return out;
  }
  out.endpoint = Endpoint{api.value("host", std::string("127.0.0.1")), static_cast<uint16_t>(port)};
  out.tls.use_tls = api.value("tls", false);
  if (out.tls.use_tls) out.tls.ca = place.folder + "/ca.pem";
  return out;
}

// When the server asks to come again: it has begun nothing then. nullopt: it does not.
std::optional<Duration> come_again_after(const HttpResponse& response) {
  const auto hint = response.headers.find("retry-after");
  if ((response.status != 429 && response.status != 503) || hint == response.headers.end()) return std::nullopt;
  const std::optional<int> told = parse_int(hint->second);
  return told && *told >= 0 ? std::chrono::seconds(*told) : Duration(1s);
}

// The way to a head on another machine: a socket here that ssh leads to the head's port there.
class Tunnel {
 public:
  Tunnel(const ClusterPlace& place, RemoteHead head, RemoteMaker make)
      : place_(place), head_(std::move(head)), make_(std::move(make)) {}

  HeadAddress address() {
    const std::string socket = tunnel_socket(files_, place_);
    if (!files_.exists(socket)) open();
    HeadAddress out;
    out.endpoint = Endpoint{socket, 0};
    out.tls.use_tls = head_.api_tls;
    if (out.tls.use_tls) out.tls.ca = place_.folder + "/ca.pem";
    return out;
  }

  // After a call that got no answer: makes the way anew, to where the head listens now. False when that was done
  // already: the head itself is not there.
  bool mend() {
    if (std::exchange(mended_, true)) return false;
    ask_for_port();
    open();
    return true;
  }

  void worked() { mended_ = false; }
  const HostAddress& host() const { return head_.host; }

 private:
  void open() {
    if (head_.api_port == 0) ask_for_port();
    remote().forward(target(), tunnel_socket(files_, place_), head_.api_port);
  }

  void ask_for_port() {
    provider::Command command;
    command.script = "cat " + provider::quote_path(head_.folder + "/head/head.json");
    const provider::CommandResult result = remote().run(target(), std::move(command));
    const json document = json::parse(result.out, nullptr, false);
    const json api = document.is_object() ? document.value("api", json::object()) : json::object();
    const int64_t port = int_in(api, "port");
    if (!result.ok() || port <= 0 || port > 65535) {
      throw Error(ErrorCode::kUnavailable,
                  fmt::format("the head of '{}' on {} is not running", place_.name, head_.host.host), "",
                  "start it with: rubato up --cluster " + place_.name);
    }
    head_.api_port = static_cast<uint16_t>(port);
    head_.api_tls = api.value("tls", false);
    write_remote(files_, place_, head_);
  }

  provider::SshTarget target() { return target_of(files_, place_, head_); }
  Remote& remote() {
    if (!remote_) remote_ = make_();
    return *remote_;
  }

  const ClusterPlace place_;
  RemoteHead head_;
  const RemoteMaker make_;
  os::RealFiles files_;
  std::unique_ptr<Remote> remote_;
  bool mended_ = false;
};

class ApiClient final : public Api {
 public:
  ApiClient(ClusterPlace place, RemoteMaker remote)
      : place_(std::move(place)), make_remote_(std::move(remote)), network_(runtime_) {}

  json call(const ApiRequest& request) override {
    const Instant begin = runtime_.now();
    Instant give_up = begin + request.patience;
    bool told = !request.on_waiting;
    while (true) {
      try {
        return call_once(request);
      } catch (const Error& error) {
        const bool may_come = error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kNotFound;
        // A reply's own "not found" is an answer; only a missing head.json is worth waiting for.
        const bool answered = error.code == ErrorCode::kNotFound && error.cause != ErrorCause::kNoCluster;
        if (may_come && is_being_restarted(request)) give_up = std::max(give_up, begin + kRestartPatience);
        if (!may_come || answered || runtime_.now() >= give_up) throw;
        if (!told && runtime_.now() - begin >= kTellAfter) {
          told = true;
          request.on_waiting(error);
        }
      }
      if (!pause(kAskAgainAfter)) throw Error(ErrorCode::kFailed, "interrupted while waiting for the head");
    }
  }

  StreamEnd stream(const std::string& target, const std::function<void(std::string_view)>& sink) override {
    const Instant give_up = runtime_.now() + kBusyPatience;
    while (!interrupted_) {
      HttpResponse response;
      std::string error_text;
      const std::function<Task<int>()> once = [&] {
        return stream_until(request_for({.target = target}), sink, response, error_text);
      };
      const int end = run(once);
      if (interrupted_ || end == kStopped) break;
      if (response.status / 100 == 2) return StreamEnd::kEnded;
      // The sink was given nothing of a refusal.
      if (!wait_while_busy(response, give_up) && !interrupted_)
        throw error_from_reply(response.status, error_text, to_string(address_.endpoint));
    }
    return StreamEnd::kInterrupted;
  }

  void hold_interrupts() override {
    if (!signals_) signals_ = std::make_unique<os::Signals>(runtime_, std::vector<int>{SIGINT, SIGTERM});
  }

  bool pause(Duration length) override {
    if (interrupted_) return false;
    if (runtime_.run(pause_until(runtime_.now() + length)) == kStopped) interrupted_ = true;
    return !interrupted_;
  }

 private:
  static constexpr int kStopped = 1;

  // A head that was killed is back in a moment: a question waits for it. Whoever asks whether it is there does not.
  bool is_being_restarted(const ApiRequest& request) const {
    return request.method == "GET" && !request.target.starts_with("//") && has_supervisor();
  }

  bool has_supervisor() const {
    return !tunnel_ && os::RealDaemons().running(supervisor_folder(place_.folder)).has_value();
  }

  HttpRequest request_for(const ApiRequest& wanted) {
    address_ = find_address();
    HttpRequest request;
    request.method = wanted.method;
    const bool absolute = wanted.target.starts_with("//");
    request.target = absolute ? wanted.target.substr(1) : std::string(kApiRoot) + wanted.target;
    request.headers["authorization"] = "Bearer " + os::read_secret(place_.token_file());
    request.headers["accept"] = "*/*";
    if (!wanted.body.empty()) request.headers["content-type"] = wanted.type;
    request.body = wanted.body;
    return request;
  }

  json call_once(const ApiRequest& wanted) {
    const Instant give_up = runtime_.now() + kBusyPatience;
    HttpResponse response;
    const std::function<Task<int>()> once = [&] {
      return exchange(request_for(wanted), runtime_.now() + wanted.limit, response);
    };
    do run(once);
    while (wait_while_busy(response, give_up));
    if (response.status / 100 != 2) {
      throw error_from_reply(response.status, response.body, to_string(address_.endpoint));
    }
    if (trim(response.body).empty()) return json::object();
    json document = json::parse(response.body, nullptr, false);
    if (document.is_discarded()) {
      throw Error(ErrorCode::kFailed, "the head's answer is not JSON", to_string(address_.endpoint),
                  "is another program listening there? restart the head with: rubato up");
    }
    return document;
  }

  // A refusal with a hint was not begun at all, so that asking again does nothing twice. True: it was waited as told.
  bool wait_while_busy(const HttpResponse& response, Instant give_up) {
    const std::optional<Duration> told = come_again_after(response);
    if (!told) return false;
    // Those who were refused together do not come again together.
    const auto spread = static_cast<double>(runtime_.now().time_since_epoch().count() / 1000 % 1000) / 1000;
    const Duration wait = seconds(to_seconds(std::min(*told, kComeAgainMax)) * (0.5 + spread));
    return runtime_.now() + wait < give_up && pause(wait);
  }

  HeadAddress find_address() {
    if (!tunnel_ && make_remote_) {
      os::RealFiles files;
      if (auto head = read_remote(files, place_)) tunnel_ = std::make_unique<Tunnel>(place_, *head, make_remote_);
    }
    return tunnel_ ? tunnel_->address() : read_address(place_);
  }

  // Runs a task, and says it in the words of a cluster when the head cannot be reached.
  int run(const std::function<Task<int>()>& once) {
    try {
      const int end = runtime_.run(once());
      if (tunnel_) tunnel_->worked();
      return end;
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable) throw;
      if (tunnel_ && is_cut(error)) {
        // The socket is left from an ssh that is gone, or leads to a port where nobody listens any more.
        if (tunnel_->mend()) return run(once);
        throw gone_there();
      }
      throw explained(error);
    }
  }

  static bool is_cut(const Error& error) {
    return error.cause == ErrorCause::kRefused || error.cause == ErrorCause::kCut;
  }

  Error gone_there() const {
    Error error(ErrorCode::kUnavailable,
                fmt::format("the head of '{}' on {} is not running (its agents and workers may be)", place_.name,
                            tunnel_->host().host),
                "", "its supervisor starts it again; if not, restart it with: rubato up --cluster " + place_.name);
    return because(ErrorCause::kDeadHead, std::move(error));
  }

  Error explained(const Error& error) const {
    const bool dead = error.cause == ErrorCause::kRefused;
    if (!dead)
      return Error(error.code, fmt::format("the head of '{}' does not answer: {}", place_.name, error.message),
                   error.where, tunnel_ ? error.hint : "look at " + place_.head_folder() + "/daemon.log");
    os::RealFiles files;
    if (const auto end = read_head_end(files, place_.folder)) {
      return Error(
          ErrorCode::kUnavailable,
          fmt::format("the head of '{}' has ended (its agents and workers may go on): {}", place_.name, end->message),
          place_.head_folder() + "/daemon.log", end->hint);
    }
    if (has_supervisor()) {
      return Error(ErrorCode::kUnavailable,
                   fmt::format("the head of '{}' is not running (its agents and workers may be)", place_.name),
                   place_.head_folder() + "/daemon.log", "its supervisor starts it again: ask again in a moment");
    }
    return Error(ErrorCode::kUnavailable,
                 fmt::format("the head of '{}' is not running (its agents and workers may be)", place_.name), "",
                 "restart it with: rubato up" + (place_.name == "local" ? "" : " --cluster " + place_.name));
  }

  Task<int> exchange(HttpRequest request, Instant deadline, HttpResponse& response) {
    Endpoint endpoint = address_.endpoint;
    TlsFiles tls = address_.tls;
    response = co_await network_.call(std::move(endpoint), std::move(tls), std::move(request), deadline);
    co_return 0;
  }

  Task<int> pause_until(Instant until) {
    if (!signals_) {
      co_await Sleep(runtime_, until);
      co_return 0;
    }
    const std::optional<int> signal = co_await signals_->channel().pop_until(until);
    co_return signal ? kStopped : 0;
  }

  Task<int> wait_for_signal() {
    co_await signals_->channel().pop();
    interrupted_ = true;
    co_return kStopped;
  }

  Task<void> receive(HttpRequest request, Channel<std::string>& chunks, HttpResponse& out) {
    Endpoint endpoint = address_.endpoint;
    TlsFiles tls = address_.tls;
    const Instant header_deadline = runtime_.now() + kHeaderLimit;
    out = co_await network_.stream(std::move(endpoint), std::move(tls), std::move(request), header_deadline, chunks);
    chunks.close();
  }

  // The status comes with the end of the stream only, so that an error's document passes through the sink, too: those
  // who parse lines know it by its key. What an Error is made of is kept here.
  Task<int> relay(HttpRequest request, const std::function<void(std::string_view)>& sink, HttpResponse& response,
                  std::string& error_text) {
    Channel<std::string> chunks(runtime_);
    Scope scope(runtime_);
    Task<void> receiving = receive(std::move(request), chunks, response);
    scope.spawn(std::move(receiving));
    Task<void> reading = read(chunks, sink, error_text);
    scope.spawn(std::move(reading));
    co_await scope.join();
    co_return 0;
  }

  Task<void> read(Channel<std::string>& chunks, const std::function<void(std::string_view)>& sink,
                  std::string& error_text) {
    bool first = true;
    bool is_error = false;
    while (std::optional<std::string> chunk = co_await chunks.pop()) {
      if (std::exchange(first, false)) is_error = chunk->starts_with("{\"error\"");
      if (!is_error) {
        sink(*chunk);
      } else if (error_text.size() < kErrorBytesMax) {
        error_text += *chunk;
      }
    }
  }

  Task<int> stream_until(HttpRequest request, const std::function<void(std::string_view)>& sink, HttpResponse& response,
                         std::string& error_text) {
    Task<int> relaying = relay(std::move(request), sink, response, error_text);
    if (!signals_) co_return co_await std::move(relaying);
    Task<int> stopping = wait_for_signal();
    const auto end = co_await race(runtime_, std::move(relaying), std::move(stopping));
    co_return end.index() == 0 ? 0 : kStopped;
  }

  const ClusterPlace place_;
  const RemoteMaker make_remote_;
  std::unique_ptr<Tunnel> tunnel_;  // null: the head is on this machine
  os::Runtime runtime_;
  os::RealNetwork network_;
  std::unique_ptr<os::Signals> signals_;
  HeadAddress address_;
  bool interrupted_ = false;
};

ErrorCode code_from(int status, std::string_view code) {
  if (code == "usage" || status == 400) return ErrorCode::kUsage;
  if (code == "not_found" || status == 404) return ErrorCode::kNotFound;
  if (code == "conflict" || status == 409) return ErrorCode::kConflict;
  if (code == "unavailable" || status == 503) return ErrorCode::kUnavailable;
  return ErrorCode::kFailed;
}

}  // namespace

std::unique_ptr<Api> open_api(const ClusterPlace& place, RemoteMaker remote) {
  return std::make_unique<ApiClient>(place, std::move(remote));
}

Error error_from_reply(int status, std::string_view body, const std::string& where) {
  const json document = json::parse(body, nullptr, false);
  const json error = document.is_object() ? document.value("error", json::object()) : json::object();
  const auto field = [&](const char* name) {
    const auto found = error.is_object() ? error.find(name) : error.end();
    return found != error.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (field("message").empty()) {
    return Error(code_from(status, ""), fmt::format("the head answered with status {}", status), where);
  }
  if (status == 401) {
    return Error(ErrorCode::kFailed, field("message"), where, "the token in the cluster's folder is not the head's");
  }
  return Error(code_from(status, field("code")), field("message"), field("where"), field("hint"));
}

std::string url_part(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

json get(Api& api, std::string target) {
  ApiRequest request;
  request.target = std::move(target);
  return api.call(request);
}

json post(Api& api, std::string target, const json& body) {
  ApiRequest request;
  request.method = "POST";
  request.target = std::move(target);
  request.body = body.dump();
  return api.call(request);
}

json remove(Api& api, std::string target) {
  ApiRequest request;
  request.method = "DELETE";
  request.target = std::move(target);
  return api.call(request);
}

}  // namespace rubato::cli
