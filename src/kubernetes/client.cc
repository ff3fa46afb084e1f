#include "kubernetes/client.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/json_bounds.h"
#include "core/text.h"

namespace rubato::kubernetes {

using nlohmann::json;

namespace {

constexpr Duration kFirstLineMax = 24h;  // of a log that is followed
// A page of pods has hundreds of objects with hundreds of values each.
constexpr JsonBounds kDocumentBounds{64, 100'000, 4'000'000};

// A message that was cut may end within a character.
std::string text_of(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

rest::CallRules call_rules() {
  rest::CallRules rules;
  rules.attempts_max = 4;
  rules.attempt_timeout = 30s;
  rules.backoff_first = 250ms;
  rules.backoff_max = 5s;
  return rules;
}

std::string name_in_errors(const Resource& resource, const ObjectName& object, std::string_view subresource = {}) {
  std::string out = to_lower(resource.kind) + " " + to_string(object);
  if (!subresource.empty()) out += fmt::format(" ({})", subresource);
  return out;
}

ErrorCode code_of(int status, const std::string& reason, const std::string& message) {
  if (status == 404) return ErrorCode::kNotFound;
  if (status == 409) return ErrorCode::kConflict;
  if (status == 422 || status == 400) return ErrorCode::kUsage;
  // The quota's admission plugin has no reason of its own.
  if (status == 403 && reason == "Forbidden" && message.find("exceeded quota") != std::string::npos)
    return ErrorCode::kQuota;
  if (status == 401 || status == 403) return ErrorCode::kAuth;
  return ErrorCode::kUnavailable;
}

std::string hint_of(int status, ErrorCode code, const std::string& message) {
  // Pod Security's admission plugin has no reason of its own either, and no permission helps.
  if (status == 403 && message.find("violates PodSecurity") != std::string::npos)
    return "write the securityContext that the message asks for into the pod, or label the namespace otherwise";
  if (status == 500 && message.find("webhook") != std::string::npos)
    return "the webhook that the message names does not answer: do its pods run?";
  if (code == ErrorCode::kQuota) return "raise the namespace's ResourceQuota, or ask for less";
  if (status == 401) return "the credentials are not accepted: log in again (kubectl get nodes shows the same)";
  if (status == 403) return "ask for the permission: kubectl auth can-i says what you have";
  if (status == 404) return "is it there, in this namespace? For a custom resource: is its CRD installed?";
  return "";
}

}  // namespace

std::string text_in(const json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t int_in(const json& object, const char* key, int64_t absent) {
  if (!object.is_object()) return absent;
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : absent;
}

bool bool_in(const json& object, const char* key, bool absent) {
  if (!object.is_object()) return absent;
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : absent;
}

const json& object_in(const json& object, const char* key) {
  static const json empty = json::object();
  if (!object.is_object()) return empty;
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : empty;
}

const json& list_in(const json& object, const char* key) {
  static const json empty = json::array();
  if (!object.is_object()) return empty;
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : empty;
}

std::string to_string(const ObjectName& name) {
  return name.namespace_name.empty() ? name.name : name.namespace_name + "/" + name.name;
}

uint64_t version_number(std::string_view text) {
  uint64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

std::string path_of(const Resource& resource, const ObjectName& object, std::string_view subresource) {
  std::string out = resource.group.empty() ? "/api/" + resource.version : "/apis/" + api_version(resource);
  if (resource.namespaced && !object.namespace_name.empty())
    out += "/namespaces/" + rest::percent_encode(object.namespace_name);
  out += "/" + resource.plural;
  if (!object.name.empty()) out += "/" + rest::percent_encode(object.name);
  if (!subresource.empty()) out += fmt::format("/{}", subresource);
  return out;
}

Request log_request(const ObjectName& pod, const std::string& container, bool follow) {
  Request out;
  out.path = path_of(pods(), pod, "log");
  if (!container.empty()) out.query.emplace_back("container", container);
  if (!follow) return out;
  out.query.emplace_back("follow", "true");
  out.timeout = kFirstLineMax;
  return out;
}

json read_document(const std::string& body, const std::string& what) {
  json document =
      beyond_bounds(body, kDocumentBounds) ? json(json::value_t::discarded) : json::parse(body, nullptr, false);
  if (!document.is_object())
    throw Error(ErrorCode::kUnavailable, fmt::format("{}: the answer is no JSON object, or too large", what), "",
                "is a proxy or another server in between?");
  return document;
}

rest::CloudError read_refusal(const HttpResponse& response, const std::string& what) {
  const json document =
      beyond_bounds(response.body, kDocumentBounds) ? json() : json::parse(response.body, nullptr, false);
  const std::string reason = text_in(document, "reason");
  std::string message = text_in(document, "message");
  if (message.empty()) message = fmt::format("HTTP status {}", response.status);
  const ErrorCode code = code_of(response.status, reason, message);
  rest::CloudError error(code, fmt::format("{}: {}", what, message), "", hint_of(response.status, code, message));
  error.status = response.status;
  // Servers name it by their words alone.
  const bool webhook = reason == "InternalError" && message.find("failed calling") != std::string::npos &&
                       message.find("webhook") != std::string::npos;
  error.reason = webhook ? kWebhookFailed : reason;
  return error;
}

// One call: each try carries the credentials of its time.
class ApiExchange final : public rest::Exchange {
 public:
  ApiExchange(Client& client, const Request& request, const Login& login)
      : client_(client), request_(request), login_(login) {}

  Task<HttpRequest> prepare(WallTime) override {
    if (request_.method != "GET" && client_.may_write_ && !client_.may_write_())
      throw Error(ErrorCode::kUnavailable, "nothing is written: another one leads now, or may");
    Task<Login> fetched = client_.access_->login();
    login_ = co_await std::move(fetched);
    HttpRequest out;
    out.method = request_.method;
    std::string base = client_.access_->server().path;
    while (base.ends_with('/')) base.pop_back();
    out.target = base + request_.path;
    if (!request_.query.empty()) out.target += "?" + rest::encode_query(request_.query);
    out.headers["accept"] = "application/json";
    client_.access_->introduce(login_, out);
    if (!request_.content_type.empty()) out.headers["content-type"] = request_.content_type;
    out.body = request_.body;
    co_return out;
  }

  rest::Verdict judge(const HttpResponse& response) override {
    if (response.status == 429) return rest::Verdict::kThrottled;
    if (response.status == 401) return rest::Verdict::kExpired;
    if (response.status >= 500) return rest::Verdict::kRetry;
    return rest::Verdict::kDone;
  }

  void forget_credentials() override { client_.access_->forget(); }

 private:
  Client& client_;
  const Request& request_;
  Login login_;
};

Client::Client(World& world, std::unique_ptr<Access> access, RateTerms rate)
    : world_(world), access_(std::move(access)), caller_(world, call_rules()), rate_(rate) {}
Client::~Client() = default;

Task<HttpResponse> Client::call(Request request, std::string what, int foreseen) {
  const Instant turn = rate_.next(world_.clock.now());
  co_await Sleep(world_.clock.loop(), turn);
  Task<Login> fetched = access_->login();
  const Login login = co_await std::move(fetched);
  ApiExchange exchange(*this, request, login);
  rest::Target target;
  target.endpoint = access_->server().endpoint;
  target.tls = login.tls;
  target.proxy = access_->proxy();
  HttpResponse response = co_await caller_.call(std::move(target), exchange, request.timeout);
  if (response.status >= 400 && response.status != foreseen) throw read_refusal(response, what);
  co_return response;
}

Task<json> Client::document(Request request, std::string what) {
  const HttpResponse response = co_await call(std::move(request), what);
  co_return read_document(response.body, what);
}

Task<json> Client::get(Resource resource, ObjectName object) {
  Request request;
  request.path = path_of(resource, object);
  co_return co_await document(std::move(request), "get " + name_in_errors(resource, object));
}

Task<std::optional<json>> Client::find(Resource resource, ObjectName object) {
  Request request;
  request.path = path_of(resource, object);
  const std::string what = "get " + name_in_errors(resource, object);
  const HttpResponse response = co_await call(std::move(request), what, 404);
  if (response.status == 404) co_return std::nullopt;
  co_return read_document(response.body, what);
}

Task<json> Client::create(Resource resource, std::string namespace_name, json document_in) {
  const ObjectName object{namespace_name, text_in(object_in(document_in, "metadata"), "name")};
  const ObjectName collection{namespace_name, ""};
  Request request;
  request.method = "POST";
  request.path = path_of(resource, collection);
  request.query.emplace_back("fieldManager", kFieldManager);
  request.content_type = "application/json";
  request.body = text_of(document_in);
  co_return co_await document(std::move(request), "create " + name_in_errors(resource, object));
}

Task<json> Client::apply(Resource resource, ObjectName object, json document_in) {
  Request request;
  request.method = "PATCH";
  request.path = path_of(resource, object);
  request.query.emplace_back("fieldManager", kFieldManager);
  request.query.emplace_back("force", "true");
  request.content_type = "application/apply-patch+yaml";  // JSON is YAML
  request.body = text_of(document_in);
  co_return co_await document(std::move(request), "apply " + name_in_errors(resource, object));
}

Task<json> Client::merge_patch(Resource resource, ObjectName object, std::string subresource, json document_in,
                               std::string manager) {
  Request request;
  request.method = "PATCH";
  request.path = path_of(resource, object, subresource);
  request.query.emplace_back("fieldManager", manager);
  request.content_type = "application/merge-patch+json";
  request.body = text_of(document_in);
  co_return co_await document(std::move(request), "patch " + name_in_errors(resource, object, subresource));
}

Task<json> Client::replace(Resource resource, ObjectName object, json document_in) {
  Request request;
  request.method = "PUT";
  request.path = path_of(resource, object);
  request.query.emplace_back("fieldManager", kFieldManager);
  request.content_type = "application/json";
  request.body = text_of(document_in);
  co_return co_await document(std::move(request), "update " + name_in_errors(resource, object));
}

Task<bool> Client::remove(Resource resource, ObjectName object, std::string uid) {
  Request request;
  request.method = "DELETE";
  request.path = path_of(resource, object);
  request.content_type = "application/json";
  json options = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", "Background"}};
  if (!uid.empty()) options["preconditions"] = {{"uid", uid}};
  request.body = options.dump();
  try {
    co_await call(std::move(request), "delete " + name_in_errors(resource, object));
  } catch (const rest::CloudError& error) {
    const bool another = error.status == 409 && !uid.empty();
    if (error.status != 404 && !another) throw;
    co_return false;
  }
  co_return true;
}

Task<ListPage> Client::list(Resource resource, std::string namespace_name, std::string label_selector, int limit,
                            std::string next) {
  const ObjectName collection{namespace_name, ""};
  Request request;
  request.path = path_of(resource, collection);
  if (!label_selector.empty()) request.query.emplace_back("labelSelector", label_selector);
  request.query.emplace_back("limit", std::to_string(limit));
  if (!next.empty()) request.query.emplace_back("continue", next);
  HttpResponse response = co_await call(std::move(request), "list " + resource.plural);
  ListPage page;
  page.body = std::move(response.body);
  co_return page;
}

Task<HttpResponse> Client::stream_text(Request request, Channel<std::string>& chunks) {
  Task<Login> fetched = access_->login();
  const Login login = co_await std::move(fetched);
  ApiExchange exchange(*this, request, login);
  HttpRequest wire = co_await exchange.prepare(world_.clock.wall());
  wire.proxy = access_->proxy();
  const Instant header_by = world_.clock.now() + request.timeout.value_or(30s);
  Endpoint endpoint = access_->server().endpoint;
  HttpResponse response =
      co_await world_.network.stream(std::move(endpoint), login.tls, std::move(wire), header_by, chunks);
  if (response.status == 401) access_->forget();
  co_return response;
}

Task<HttpResponse> Client::read_text(Request request) {
  const std::string what = "get " + request.path;
  co_return co_await call(std::move(request), what);
}

Task<HttpResponse> Client::watch(WatchStart start, Channel<std::string>& chunks) {
  const ObjectName collection{start.namespace_name, ""};
  Request request;
  request.path = path_of(start.resource, collection);
  request.query = {{"watch", "1"}, {"allowWatchBookmarks", "true"}};
  request.query.emplace_back("resourceVersion", start.resource_version);
  request.query.emplace_back("timeoutSeconds", std::to_string(start.timeout_s));
  if (!start.label_selector.empty()) request.query.emplace_back("labelSelector", start.label_selector);
  // A server that has nothing to send may wait for long before it sends even the header.
  request.timeout = std::chrono::seconds(start.timeout_s) + 30s;
  co_return co_await stream_text(std::move(request), chunks);
}

}  // namespace rubato::kubernetes
