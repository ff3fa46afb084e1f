#include "gcp/client.h"

#include <fmt/format.h>

#include "rest/json.h"
#include "rest/proxy.h"

namespace rubato::gcp {

using nlohmann::json;

constexpr int kAttemptsMax = 8;  // Google's own clients go on for minutes

// One call: each try has the token of its time.
class BearerExchange final : public rest::Exchange {
 public:
  BearerExchange(Client& client, const Call& call, const rest::Url& url,
                 const std::map<std::string, std::string>& headers, const std::string& body)
      : client_(client), call_(call), url_(url), headers_(headers), body_(body) {}

  Task<HttpRequest> prepare(WallTime now) override {
    AccessToken token;
    const bool named = client_.credentials_->are_named();
    bool anonymous = is_emulated(client_.settings_.env, call_.service) && !named;
    if (!anonymous) {
      try {
        token = co_await client_.credentials_->get(now);
      } catch (const Error& error) {
        // Another server, on the same machine or network, may ask nobody who they are.
        anonymous = !named && !url_.https && client_.is_elsewhere(call_.service);
        if (!anonymous) throw;
        no_credentials_ = error;
      }
    }
    HttpRequest request;
    request.method = call_.method;
    request.target = url_.path + call_.path;
    if (!call_.query.empty()) request.target += "?" + rest::encode_query(call_.query);
    request.headers = headers_;
    request.headers["host"] = url_.host();
    if (!anonymous) request.headers["authorization"] = "Bearer " + token.text;
    if (!token.quota_project.empty()) request.headers["x-goog-user-project"] = token.quota_project;
    request.body = body_;
    co_return request;
  }

  rest::Verdict judge(const HttpResponse& response) override {
    if (response.status < 400) return rest::Verdict::kDone;
    return judge_fault(response, read_fault(response));
  }

  void forget_credentials() override { client_.credentials_->forget(); }

  // Why none were sent; nullopt: some were, or none are needed.
  const std::optional<Error>& no_credentials() const { return no_credentials_; }

 private:
  std::optional<Error> no_credentials_;
  Client& client_;
  const Call& call_;
  const rest::Url& url_;
  const std::map<std::string, std::string>& headers_;
  const std::string& body_;
};

Client::Client(World& world, std::string project, Settings settings, std::shared_ptr<CredentialSource> credentials)
    : world_(world),
      project_(std::move(project)),
      settings_(std::move(settings)),
      configuration_(read_configuration(world.files, settings_.env)),
      credentials_(std::move(credentials)) {}
Client::~Client() = default;

rest::Url Client::url_of(const Service& service) const { return endpoint_of(settings_, configuration_, service); }

bool Client::is_elsewhere(const Service& service) const {
  return url_of(service).endpoint.host != rest::parse_url(std::string(service.host), "").endpoint.host;
}

rest::Caller& Client::caller(const Service& service) {
  auto& caller = callers_[std::string(service.name)];
  if (!caller) {
    rest::CallRules rules;
    rules.attempts_max = kAttemptsMax;
    caller = std::make_unique<rest::Caller>(world_, rules);
  }
  return *caller;
}

Task<HttpResponse> Client::send(Call call, std::map<std::string, std::string> headers, std::string body) {
  const rest::Url url = url_of(call.service);
  BearerExchange exchange(*this, call, url, headers, body);
  rest::Target target = rest::target_of(url, settings_.env);
  HttpResponse response = co_await caller(call.service).call(std::move(target), exchange, call.timeout);
  if (response.status == 401 && exchange.no_credentials()) throw *exchange.no_credentials();
  // 308 is "go on" of an upload; where else a server sends us, our token does not go.
  std::string elsewhere = rest::header_of(response, "location");
  elsewhere.resize(std::min(elsewhere.size(), elsewhere.find('?')));  // a query may carry a token
  if (response.status >= 300 && response.status < 400 && response.status != 308 && !elsewhere.empty()) {
    throw Error(ErrorCode::kFailed,
                fmt::format("{} {}: the server says that this is at {}", call.service.name, call.operation, elsewhere),
                url.host(), "name that server as the endpoint");
  }
  if (response.status >= 400) {
    const CallName name{fmt::format("{} {}", call.service.name, call.operation), project_, url.host()};
    throw make_error(name, read_fault(response), response.status);
  }
  co_return response;
}

Task<json> Client::call(Call call) {
  const std::string what = fmt::format("{} {}", call.service.name, call.operation);
  const std::string where = url_of(call.service).host();
  std::map<std::string, std::string> headers;
  std::string body;
  if (!call.body.is_null()) {
    body = call.body.dump();
    headers["content-type"] = "application/json";
  }
  const HttpResponse response = co_await send(std::move(call), std::move(headers), std::move(body));
  json document = rest::read_json(response.body, what);
  if (document.is_null()) document = json::object();
  if (!document.is_object()) {
    throw Error(ErrorCode::kUnavailable, fmt::format("{}: the answer is no JSON object", what), where,
                "is a proxy or another server in between?");
  }
  co_return document;
}

std::unique_ptr<Client> open_client(World& world, std::string project, Settings settings) {
  auto chain = std::make_shared<CredentialChain>(world, settings);
  return std::make_unique<Client>(world, std::move(project), std::move(settings), std::move(chain));
}

}  // namespace rubato::gcp
