#include "gcp/token_server.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/timestamp.h"
#include "rest/base64.h"
#include "rest/http_date.h"
#include "rest/json.h"
#include "rest/proxy.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::text_at;

constexpr auto kSkewMax = std::chrono::minutes(4);

// One request for a token.
class TokenExchange final : public rest::Exchange {
 public:
  TokenExchange(const rest::Url& url, const TokenOrder& order) : url_(url), order_(order) {}

  Task<HttpRequest> prepare(WallTime now) override {
    HttpRequest request;
    request.method = "POST";
    request.target = url_.path.empty() ? "/" : url_.path;
    if (!url_.query.empty()) request.target += "?" + url_.query;
    request.headers = order_.headers;
    request.headers["host"] = url_.host();
    request.body = order_.body(now);
    asked_at_ = now;
    co_return request;
  }

  rest::Verdict judge(const HttpResponse& response) override {
    if (response.status < 400) return rest::Verdict::kDone;
    if (response.status == 429) return rest::Verdict::kThrottled;
    if (response.status >= 500) return rest::Verdict::kRetry;
    // An assertion of another time is refused like a wrong one: only the clocks tell.
    const auto theirs = rest::parse_http_date(rest::header_of(response, "date"));
    const auto gap = theirs ? *theirs - asked_at_ : std::chrono::microseconds(0);
    const bool off = gap > kSkewMax || gap < -kSkewMax;
    return off ? rest::Verdict::kSkewed : rest::Verdict::kDone;
  }

 private:
  const rest::Url& url_;
  const TokenOrder& order_;
  WallTime asked_at_{};
};

std::string fix_of(const std::string& reason, const std::string& message) {
  if (reason == "invalid_grant" && message.find("JWT") != std::string::npos) {
    return "the key was deleted, or is another account's: gcloud iam service-accounts keys create makes a new one";
  }
  if (reason == "PERMISSION_DENIED") {
    return "give yourself roles/iam.serviceAccountTokenCreator on the account that is impersonated (federated ones: "
           "roles/iam.workloadIdentityUser)";
  }
  return std::string(kLogin);
}

// What Google said, without the secrets that were sent.
Error refusal(const HttpResponse& response, const std::string& origin) {
  const json document = rest::parse_bounded(response.body);
  std::string reason = text_at(document, "error"), more = text_at(document, "error_description");
  if (document.is_object() && document.contains("error") && document["error"].is_object()) {
    reason = text_at(document["error"], "status");
    more = text_at(document["error"], "message");
  }
  if (reason.empty()) reason = fmt::format("HTTP status {}", response.status);
  const bool later = response.status >= 500 || response.status == 429;
  return Error(later ? ErrorCode::kUnavailable : ErrorCode::kAuth,
               fmt::format("Google gives no token: {}{}{}", reason, more.empty() ? "" : ": ", more), origin,
               later ? "try again later" : fix_of(reason, more));
}

}  // namespace

Task<BoughtToken> buy_token(rest::Caller& caller, TokenOrder order, const rest::Environment& env) {
  const rest::Url url = rest::parse_url(order.url, order.origin);
  TokenExchange exchange(url, order);
  rest::Target target = rest::target_of(url, env);
  const HttpResponse response = co_await caller.call(std::move(target), exchange);
  if (response.status >= 400) throw refusal(response, order.origin);
  const json document = rest::read_json(response.body, "the token of " + order.origin);
  BoughtToken out;
  out.text = text_at(document, "access_token");
  if (out.text.empty()) out.text = text_at(document, "accessToken");  // of an impersonation
  if (out.text.empty()) {
    throw Error(ErrorCode::kAuth, "Google answered without a token", order.origin, std::string(kLogin));
  }
  out.expires = end_of_token(document, caller.world().clock.wall());
  if (const std::string at = text_at(document, "expireTime"); !at.empty()) out.expires = parse_time(at);
  co_return out;
}

std::optional<WallTime> end_of_token(const json& document, WallTime now) {
  const std::string text = text_at(document, "expires_in");  // other people's servers write it as a text
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool is_number = !text.empty() && error == std::errc() && end == text.data() + text.size();
  return is_number ? std::optional<WallTime>(now + std::chrono::seconds(seconds)) : std::nullopt;
}

std::map<std::string, std::string> form_headers() { return {{"content-type", "application/x-www-form-urlencoded"}}; }

std::string basic_authorization(const std::string& client, const std::string& secret) {
  return "Basic " + rest::base64(client + ":" + secret);
}

std::string required_text(const json& document, const char* key, const std::string& origin) {
  std::string text = text_at(document, key);
  if (text.empty()) {
    throw Error(ErrorCode::kAuth, fmt::format("these credentials lack \"{}\"", key), origin,
                "download the key again, or " + std::string(kLogin));
  }
  return text;
}

}  // namespace rubato::gcp
