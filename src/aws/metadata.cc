#include "aws/metadata.h"

#include "core/text.h"

namespace rubato::aws {
namespace {

constexpr Duration kMetadataTimeout = 1s;  // botocore's; on an instance it answers within milliseconds
constexpr int kMetadataTries = 2;
constexpr Duration kAbsentFor = 30s;

rest::Url metadata_url(const Environment& env) {
  const std::string named = variable(env, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (!named.empty()) return rest::parse_url(named, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
  const bool v6 = to_lower(variable(env, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE")) == "ipv6";
  return rest::parse_url(v6 ? "http://[fd00:ec2::254]" : "http://169.254.169.254", "metadata service");
}

}  // namespace

Metadata::Metadata(World& world, const Environment& env)
    : world_(world),
      disabled_(to_lower(variable(env, "AWS_EC2_METADATA_DISABLED")) == "true"),
      url_(metadata_url(env)) {}

Task<HttpResponse> Metadata::ask(std::string method, std::string path, std::map<std::string, std::string> headers) {
  HttpRequest request;
  request.method = std::move(method);
  std::string base = url_.path;
  while (base.ends_with('/')) base.pop_back();
  request.target = base + path;
  request.headers = std::move(headers);
  TlsFiles tls;
  tls.use_tls = url_.https;
  const Instant deadline = world_.clock.now() + kMetadataTimeout;
  co_return co_await world_.network.call(url_.endpoint, std::move(tls), std::move(request), deadline);
}

Task<bool> Metadata::renew_token() {
  for (int tries = 0; tries < kMetadataTries; ++tries) {
    try {
      std::map<std::string, std::string> headers;
      headers["x-aws-ec2-metadata-token-ttl-seconds"] = "21600";
      const HttpResponse response = co_await ask("PUT", "/latest/api/token", std::move(headers));
      if (response.status != 200) break;
      token_ = std::string(trim(response.body));
      has_answered_ = true;
      co_return true;
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable) throw;
    }
  }
  co_return false;
}

Task<std::optional<std::string>> Metadata::get(std::string path) {
  if (absent_ && world_.clock.now() >= ask_again_at_) absent_ = false;
  if (disabled_ || absent_) co_return std::nullopt;
  for (int tries = 0; tries < kMetadataTries; ++tries) {
    if (token_.empty()) {
      const bool renewed = co_await renew_token();
      if (!renewed) {
        absent_ = !has_answered_;
        ask_again_at_ = world_.clock.now() + kAbsentFor;
        co_return std::nullopt;
      }
    }
    std::map<std::string, std::string> headers;
    headers["x-aws-ec2-metadata-token"] = token_;
    HttpResponse response;
    try {
      response = co_await ask("GET", path, std::move(headers));
    } catch (const Error& error) {
      if (error.code != ErrorCode::kUnavailable) throw;
      continue;
    }
    if (response.status == 200) co_return std::move(response.body);
    if (response.status != 401) break;
    token_.clear();
  }
  co_return std::nullopt;
}

}  // namespace rubato::aws
