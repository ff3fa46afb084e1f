#include "aws/client.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/json_bounds.h"
#include "core/sha256.h"
#include "core/text.h"

namespace rubato::aws {

std::string partition_of(std::string_view region) {
  if (region.starts_with("cn-")) return "aws-cn";
  if (region.starts_with("us-gov-")) return "aws-us-gov";
  return "aws";
}

std::string default_host(const Service& service, std::string_view region) {
  const std::string_view domain = region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  if (service.global && partition_of(region) == "aws") return fmt::format("{}.{}", service.prefix, domain);
  return fmt::format("{}.{}.{}", service.prefix, region, domain);
}

// One call: signs each try as of its time, with the credentials of that time.
class SignedExchange final : public rest::Exchange {
 public:
  SignedExchange(Client& client, const Service& service, const RestCall& call, const rest::Url& url)
      : client_(client),
        service_(service),
        call_(call),
        url_(url),
        scope_(client.scope_of(service)),
        hash_(call.payload_hash.empty() ? sha256_hex(call.body) : call.payload_hash) {}

  Task<HttpRequest> prepare(WallTime now) override {
    const FoundCredentials found = co_await client_.credentials_->get(now);
    const std::string timestamp = amz_timestamp(now);
    HttpRequest request;
    request.method = call_.method;
    request.target = wire_path(path());
    if (!call_.query.empty()) request.target += "?" + rest::encode_query(call_.query);
    request.headers = call_.headers;
    request.headers["host"] = url_.host();
    request.body = call_.read_body ? call_.read_body() : call_.body;
    if (!found.credentials.access_key.empty()) sign(request, found.credentials, timestamp);
    signed_at_ = now;
    co_return request;
  }

  rest::Verdict judge(const HttpResponse& response) override {
    const bool failed = response.status >= 400 || (call_.fails_with_200 && is_error_document(response.body));
    if (!failed) return rest::Verdict::kDone;
    return judge_fault(response, read_fault(response), signed_at_);
  }

  void forget_credentials() override { client_.credentials_->forget(); }

  bool refused(const HttpResponse& response) const {
    return response.status >= 400 || (call_.fails_with_200 && is_error_document(response.body));
  }
  std::string path() const {
    std::string base = rest::percent_decode(url_.path);
    while (base.ends_with('/')) base.pop_back();
    return base + call_.path;
  }

 private:
  static bool is_error_document(const std::string& body) {
    const rest::XmlResult parsed = rest::parse_xml(body);
    return parsed.problem.empty() && parsed.root.name == "Error";
  }

  void sign(HttpRequest& request, const Credentials& credentials, const std::string& timestamp) {
    request.headers["x-amz-date"] = timestamp;
    if (!credentials.session_token.empty()) request.headers["x-amz-security-token"] = credentials.session_token;
    if (scope_.is_s3()) request.headers["x-amz-content-sha256"] = hash_;
    SignedParts parts;
    parts.method = call_.method;
    parts.path = path();
    parts.query = call_.query;
    parts.headers.assign(request.headers.begin(), request.headers.end());
    parts.payload_hash = hash_;
    Signer& signer = client_.signers_[std::string(service_.name)];
    request.headers["authorization"] = signer.authorization(parts, scope_, credentials, timestamp);
  }

  Client& client_;
  const Service& service_;
  const RestCall& call_;
  const rest::Url& url_;
  const SigningScope scope_;
  const std::string hash_;
  WallTime signed_at_{};
};

Client::Client(World& world, ClientConfig config, std::shared_ptr<CredentialSource> credentials)
    : world_(world), config_(std::move(config)), credentials_(std::move(credentials)) {}
Client::~Client() = default;

bool Client::has_own_endpoint(const Service& service) const {
  return config_.endpoints.contains(std::string(service.name));
}

rest::Caller& Client::caller(const Service& service) {
  auto& caller = callers_[std::string(service.name)];
  if (!caller) caller = std::make_unique<rest::Caller>(world_, config_.rules);
  return *caller;
}

SigningScope Client::scope_of(const Service& service) const {
  SigningScope scope;
  scope.service = service.prefix;
  scope.region = config_.region.text;
  if (service.global && partition_of(scope.region) == "aws") scope.region = "us-east-1";
  return scope;
}

rest::Url Client::url_of(const Service& service, const RestCall& call) const {
  const auto own = config_.endpoints.find(std::string(service.name));
  if (own != config_.endpoints.end()) return rest::parse_url(own->second.text, own->second.origin);
  rest::Url url;
  url.endpoint.host = (call.host_prefix.empty() ? "" : call.host_prefix + ".") + default_host(service, region());
  url.endpoint.port = 443;
  return url;
}

Task<HttpResponse> Client::rest(Service service, RestCall call, int foreseen) {
  const rest::Url url = url_of(service, call);
  SignedExchange exchange(*this, service, call, url);
  rest::Target target;
  target.endpoint = url.endpoint;
  target.tls.use_tls = url.https;
  target.tls.ca = config_.ca_bundle;
  HttpResponse response = co_await caller(service).call(std::move(target), exchange, call.timeout);
  if (exchange.refused(response) && response.status != foreseen) {
    CallName name{std::string(service.prefix), call.operation, url.host()};
    rest::CloudError error = make_error(name, read_fault(response), response.status);
    // S3 tells where a bucket really is.
    const auto bucket_region = response.headers.find("x-amz-bucket-region");
    if (bucket_region != response.headers.end() && bucket_region->second != region()) {
      error.hint = fmt::format("the bucket is in {}: use --region {}", bucket_region->second, bucket_region->second);
    }
    throw error;
  }
  co_return response;
}

Task<rest::XmlNode> Client::query(Service service, std::string action, Params params) {
  RestCall call;
  call.operation = action;
  call.method = "POST";
  call.headers["content-type"] = "application/x-www-form-urlencoded; charset=utf-8";
  params.insert(params.begin(), {{"Action", action}, {"Version", std::string(service.version)}});
  call.body = rest::encode_query(params);
  const HttpResponse response = co_await rest(service, std::move(call));
  rest::XmlResult parsed = rest::parse_xml(response.body);
  if (!parsed.problem.empty()) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{} {}: the answer is not XML: {}", service.prefix, action, parsed.problem),
                default_host(service, region()), "is a proxy or another server in between?");
  }
  co_return std::move(parsed.root);
}

Task<nlohmann::json> Client::json(Service service, std::string operation, std::string body) {
  RestCall call;
  call.operation = operation;
  call.method = "POST";
  call.headers["content-type"] = "application/x-amz-json-1.1";
  call.headers["x-amz-target"] = fmt::format("{}.{}", service.target, operation);
  call.body = std::move(body);
  const HttpResponse response = co_await rest(service, std::move(call));
  co_return read_json(response.body, fmt::format("{} {}", service.prefix, operation));
}

Task<std::string> Client::presign(Service service, RestCall call, Duration valid_for) {
  const rest::Url url = url_of(service, call);
  const WallTime now = caller(service).cloud_now();
  const FoundCredentials found = co_await credentials_->get(now);
  const SignedExchange exchange(*this, service, call, url);
  SignedParts parts;
  parts.method = call.method;
  parts.path = exchange.path();
  parts.query = call.query;
  parts.headers.emplace_back("host", url.host());
  const rest::Query query =
      signers_[std::string(service.name)].presign(parts, scope_of(service), found.credentials, now, valid_for);
  co_return fmt::format("{}://{}{}?{}", url.https ? "https" : "http", url.host(), wire_path(parts.path),
                        rest::encode_query(query));
}

nlohmann::json read_json(const std::string& body, std::string_view what) {
  if (body.empty()) return nlohmann::json::object();
  auto document = beyond_bounds(body, JsonBounds()) ? nlohmann::json(nlohmann::json::value_t::discarded)
                                                    : nlohmann::json::parse(body, nullptr, false);
  if (document.is_discarded()) {
    throw Error(ErrorCode::kUnavailable, fmt::format("{}: the answer is not JSON, or too large", what), "",
                "is a proxy or another server in between?");
  }
  return document;
}

}  // namespace rubato::aws
