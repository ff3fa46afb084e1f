#include "aws/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "core/text.h"
#include "rest/proxy.h"

namespace rubato::aws {

namespace {

// AWS's clouds of their own. From the endpoints of botocore, and AWS's page of partitions.
struct Partition {
  std::string_view regions, name, domain;
  std::string_view iam_host, global_region;  // of services that have one endpoint for all regions: what IAM has
};
constexpr std::array<Partition, 8> kPartitions{{
    {"cn-", "aws-cn", "amazonaws.com.cn", "iam.cn-north-1.amazonaws.com.cn", "cn-north-1"},
    {"us-gov-", "aws-us-gov", "amazonaws.com", "iam.us-gov.amazonaws.com", "us-gov-west-1"},
    {"us-isob-", "aws-iso-b", "sc2s.sgov.gov", "iam.us-isob-east-1.sc2s.sgov.gov", "us-isob-east-1"},
    {"us-isof-", "aws-iso-f", "csp.hci.ic.gov", "iam.us-isof-south-1.csp.hci.ic.gov", "us-isof-south-1"},
    {"us-iso-", "aws-iso", "c2s.ic.gov", "iam.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"},
    {"eu-isoe-", "aws-iso-e", "cloud.adc-e.uk", "iam.eu-isoe-west-1.cloud.adc-e.uk", "eu-isoe-west-1"},
    {"eusc-", "aws-eusc", "amazonaws.eu", "iam.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1"},
    {"", "aws", "amazonaws.com", "iam.amazonaws.com", "us-east-1"},  // the last: any other
}};

const Partition& partition_with(std::string_view region) {
  return *std::ranges::find_if(kPartitions, [&](const Partition& one) { return region.starts_with(one.regions); });
}

constexpr const char* kUseFips = "AWS_USE_FIPS_ENDPOINT";
constexpr const char* kUseDualStack = "AWS_USE_DUALSTACK_ENDPOINT";
bool is_set(const Environment& env, const char* name) { return to_lower(rest::variable(env, name)) == "true"; }

// Of one API with IPv6; empty: the partition has none.
std::string_view dual_stack_domain(const Partition& partition) {
  if (partition.name == "aws" || partition.name == "aws-us-gov") return "api.aws";
  return partition.name == "aws-cn" ? "api.amazonwebservices.com.cn" : "";
}

// AWS's hosts where FIPS 140 or IPv6 is asked for, which differ as the endpoints of botocore say.
std::string host_for(const Service& service, std::string_view region, const Environment& env) {
  const bool fips = is_set(env, kUseFips), dual = is_set(env, kUseDualStack);
  const std::string usual = default_host(service, region);
  if ((!fips && !dual) || service.name == kSso.name) return usual;
  const Partition& partition = partition_with(region);
  if (service.global) return fips && partition.name == "aws" ? "iam-fips.amazonaws.com" : usual;
  // In GovCloud most hosts without IPv6 are FIPS's own.
  const bool is_gov = partition.name == "aws-us-gov";
  const bool named_fips = dual || !is_gov || service.name == kS3.name || service.name == kEfs.name;
  const std::string prefix = fmt::format("{}{}", service.prefix, fips && named_fips ? "-fips" : "");
  if (!dual) return fmt::format("{}.{}.{}", prefix, region, partition.domain);
  if (service.name == kS3.name) return fmt::format("{}.dualstack.{}.{}", prefix, region, partition.domain);
  const std::string_view domain = dual_stack_domain(partition);
  if (domain.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("{} has no hosts with IPv6", partition.name), kUseDualStack,
                "take the variable away, or use_dualstack_endpoint of the profile");
  }
  return fmt::format("{}.{}.{}", prefix, region, domain);
}

}  // namespace

std::string partition_of(std::string_view region) { return std::string(partition_with(region).name); }

std::map<std::string, std::string> endpoint_variables(const ClientConfig& config) {
  std::map<std::string, std::string> out;
  for (const auto& [service, endpoint] : config.endpoints) out[endpoint_variable(service)] = endpoint.text;
  for (const char* name : {kUseFips, kUseDualStack}) {
    if (is_set(config.env, name)) out[name] = "true";
  }
  return out;
}

std::string default_host(const Service& service, std::string_view region) {
  const Partition& partition = partition_with(region);
  if (service.global) return std::string(partition.iam_host);
  return fmt::format("{}.{}.{}", service.prefix, region, partition.domain);
}

namespace {

constexpr int kRedirect = 300;  // from here on an answer is no success

// Where S3 says that a bucket is, in an answer that refuses; empty: it does not say.
std::string region_told(const HttpResponse& response) {
  std::string region = rest::header_of(response, "x-amz-bucket-region");
  if (!region.empty() || response.body.empty()) return region;
  const rest::XmlResult parsed = rest::parse_xml(response.body);  // AuthorizationHeaderMalformed
  return parsed.problem.empty() ? std::string(parsed.root.text_at("Region")) : "";
}

}  // namespace

// One call: signs each try as of its time, with the credentials of that time.
class SignedExchange final : public rest::Exchange {
 public:
  SignedExchange(Client& client, const Service& service, const RestCall& call, const rest::Url& url)
      : client_(client),
        service_(service),
        call_(call),
        url_(url),
        scope_(client.scope_of(service, call)),
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
    if (!refused(response)) return rest::Verdict::kDone;
    return judge_fault(response, read_fault(response), signed_at_);
  }

  void forget_credentials() override { client_.credentials_->forget(); }

  bool refused(const HttpResponse& response) const {
    return response.status >= kRedirect || (call_.fails_with_200 && is_error_document(response.body));
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

std::string Client::region_for(const RestCall& call) const {
  const auto known = bucket_regions_.find(call.bucket);
  return known == bucket_regions_.end() ? region() : known->second;
}

SigningScope Client::scope_of(const Service& service, const RestCall& call) const {
  SigningScope scope;
  scope.service = service.prefix;
  scope.region = region_for(call);
  if (service.global) scope.region = partition_with(scope.region).global_region;
  return scope;
}

rest::Url Client::url_of(const Service& service, const RestCall& call) const {
  const auto own = config_.endpoints.find(std::string(service.name));
  if (own != config_.endpoints.end()) return rest::parse_url(own->second.text, own->second.origin);
  rest::Url url;
  url.endpoint.host = host_for(service, region_for(call), config_.env);
  if (!call.host_prefix.empty()) url.endpoint.host = call.host_prefix + "." + url.endpoint.host;
  url.endpoint.port = 443;
  return url;
}

Task<Client::Sent> Client::send(Service service, const RestCall& call) {
  const rest::Url url = url_of(service, call);
  SignedExchange exchange(*this, service, call, url);
  rest::Target target = rest::target_of(url, config_.env);
  target.tls.ca = config_.ca_bundle;
  Sent out;
  out.response = co_await caller(service).call(std::move(target), exchange, call.timeout);
  out.refused = exchange.refused(out.response);
  out.host = url.host();
  co_return out;
}

Task<HttpResponse> Client::rest(Service service, RestCall call, int foreseen) {
  Sent sent = co_await send(service, call);
  if (sent.refused && !call.bucket.empty()) {
    const std::string told = region_told(sent.response);
    if (!told.empty() && told != region_for(call)) {
      bucket_regions_[call.bucket] = told;
      sent = co_await send(service, call);
    }
  }
  if (!sent.refused || sent.response.status == foreseen) co_return std::move(sent.response);
  CallName name{std::string(service.prefix), call.operation, sent.host};
  rest::CloudError error = make_error(name, read_fault(sent.response), sent.response.status);
  if (error.hint.empty() && sent.response.status < 400) {
    error.hint = "the server sends us elsewhere: are the region and the endpoint right, or is a proxy in between?";
  }
  throw error;
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
      signers_[std::string(service.name)].presign(parts, scope_of(service, call), found.credentials, now, valid_for);
  co_return fmt::format("{}://{}{}?{}", url.https ? "https" : "http", url.host(), wire_path(parts.path),
                        rest::encode_query(query));
}

}  // namespace rubato::aws
