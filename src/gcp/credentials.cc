#include "gcp/credentials.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "core/timestamp.h"
#include "rest/http_date.h"
#include "rest/json.h"
#include "rest/proxy.h"
#include "rest/rs256.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::text_at;

// google-auth's: the metadata server gives the same token until four minutes before it ends.
constexpr auto kRenewBefore = std::chrono::seconds(225);
constexpr auto kRenewPause = std::chrono::seconds(30);  // after one that has failed
constexpr auto kTokenLife = std::chrono::hours(1);  // Google takes no more
constexpr auto kSkewMax = std::chrono::minutes(4);
constexpr std::string_view kScope = "https://www.googleapis.com/auth/cloud-platform";
constexpr std::string_view kLogin = "run: gcloud auth application-default login";

// One request for a token.
class TokenExchange final : public rest::Exchange {
 public:
  using Body = std::function<std::string(WallTime)>;
  TokenExchange(const rest::Url& url, std::map<std::string, std::string> headers, Body body)
      : url_(url), headers_(std::move(headers)), body_(std::move(body)) {}

  Task<HttpRequest> prepare(WallTime now) override {
    HttpRequest request;
    request.method = "POST";
    request.target = url_.path.empty() ? "/" : url_.path;
    request.headers = headers_;
    request.headers["host"] = url_.host();
    request.body = body_(now);
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
  const std::map<std::string, std::string> headers_;
  const Body body_;
  WallTime asked_at_{};
};

std::string required(const json& document, const char* key, const std::string& origin) {
  std::string text = text_at(document, key);
  if (text.empty()) {
    throw Error(ErrorCode::kAuth, fmt::format("these credentials lack \"{}\"", key), origin,
                "download the key again, or " + std::string(kLogin));
  }
  return text;
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
  std::string hint(kLogin);
  if (reason == "invalid_grant" && more.find("JWT") != std::string::npos) {
    hint = "the key was deleted, or is another account's: gcloud iam service-accounts keys create makes a new one";
  } else if (reason == "PERMISSION_DENIED") {
    hint = "give yourself roles/iam.serviceAccountTokenCreator on the account that is impersonated";
  }
  const bool later = response.status >= 500 || response.status == 429;
  return Error(later ? ErrorCode::kUnavailable : ErrorCode::kAuth,
               fmt::format("Google gives no token: {}{}{}", reason, more.empty() ? "" : ": ", more), origin,
               later ? "try again later" : hint);
}

struct Bought {
  std::string token;
  std::optional<WallTime> expires;
};

Task<Bought> buy(rest::Caller& caller, std::string url_text, std::map<std::string, std::string> headers,
                 TokenExchange::Body body, std::string origin, const Environment& env) {
  const rest::Url url = rest::parse_url(url_text, origin);
  TokenExchange exchange(url, std::move(headers), std::move(body));
  rest::Target target = rest::target_of(url, env);
  const HttpResponse response = co_await caller.call(std::move(target), exchange);
  if (response.status >= 400) throw refusal(response, origin);
  const json document = rest::read_json(response.body, "the token of " + origin);
  Bought out;
  out.token = text_at(document, "access_token");
  if (out.token.empty()) out.token = text_at(document, "accessToken");  // of an impersonation
  if (out.token.empty()) {
    throw Error(ErrorCode::kAuth, "Google answered without a token", origin, std::string(kLogin));
  }
  if (const auto seconds = document.find("expires_in"); seconds != document.end() && seconds->is_number()) {
    out.expires = caller.world().clock.wall() + std::chrono::seconds(seconds->get<int64_t>());
  }
  if (const std::string at = text_at(document, "expireTime"); !at.empty()) out.expires = parse_time(at);
  co_return out;
}

std::map<std::string, std::string> form_headers() { return {{"content-type", "application/x-www-form-urlencoded"}}; }

AccessToken token_of(Bought bought, std::string origin, std::string account) {
  AccessToken out;
  out.text = std::move(bought.token);
  out.expires = bought.expires;
  out.origin = std::move(origin);
  out.account = std::move(account);
  return out;
}

}  // namespace

std::string sign_assertion(const Assertion& assertion, WallTime now) {
  const auto seconds = [](WallTime at) {
    return std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch()).count();
  };
  json header = {{"alg", "RS256"}, {"typ", "JWT"}};
  if (!assertion.key_id.empty()) header["kid"] = assertion.key_id;
  const json claims = {{"iss", assertion.account},
                       {"scope", kScope},
                       {"aud", assertion.audience},
                       {"iat", seconds(now)},
                       {"exp", seconds(now + kTokenLife)}};
  const std::string text = rest::base64_url(header.dump()) + "." + rest::base64_url(claims.dump());
  return text + "." + rest::base64_url(rest::sign_rs256(assertion.private_key, text));
}

CredentialChain::CredentialChain(World& world, Settings settings)
    : world_(world),
      settings_(std::move(settings)),
      caller_(world, rest::CallRules()),
      metadata_(world, settings_.env) {}

Task<AccessToken> CredentialChain::get(WallTime now) {
  const auto valid_for = [&](WallTime until) { return found_ && (!found_->expires || *found_->expires > until); };
  if (valid_for(now + kRenewBefore) || (valid_for(now) && now < renew_after_)) co_return *found_;
  try {
    AccessToken fresh = co_await find();
    found_ = std::move(fresh);
  } catch (const Error&) {
    if (!valid_for(now)) throw;
    renew_after_ = now + kRenewPause;
  }
  co_return *found_;
}

json CredentialChain::read_file(const std::string& path, const std::string& origin) {
  const auto text = world_.files.read(path);
  if (!text) {
    throw Error(ErrorCode::kAuth, fmt::format("the credentials '{}' cannot be read", path), origin,
                "check the path and its mode");
  }
  json document = rest::parse_bounded(*text);
  if (!document.is_object()) {
    throw Error(ErrorCode::kAuth, "these credentials are no JSON document", path, std::string(kLogin));
  }
  return document;
}

std::string CredentialChain::usual_file() const {
  return gcloud_folder(settings_.env) + "/application_default_credentials.json";
}

bool CredentialChain::are_named() const {
  return settings_.given || !variable(settings_.env, "GOOGLE_APPLICATION_CREDENTIALS").empty() ||
         world_.files.exists(usual_file());
}

Task<AccessToken> CredentialChain::find() {
  if (settings_.given && settings_.given->type == "credentials_token") co_return given_token();
  if (settings_.given) {
    json document = rest::parse_bounded(settings_.given->text);
    Task<AccessToken> given = from_document(std::move(document), "provider.gcp_credentials");
    co_return co_await std::move(given);
  }
  const std::string named = variable(settings_.env, "GOOGLE_APPLICATION_CREDENTIALS");
  const std::string usual = usual_file();
  if (!named.empty() || world_.files.exists(usual)) {
    const std::string path = named.empty() ? usual : named;
    const std::string origin = named.empty() ? path : fmt::format("GOOGLE_APPLICATION_CREDENTIALS ({})", path);
    json document = read_file(path, origin);
    Task<AccessToken> from = from_document(std::move(document), origin);
    co_return co_await std::move(from);
  }
  std::optional<AccessToken> machine = co_await from_machine();
  if (machine) co_return std::move(*machine);
  throw Error(ErrorCode::kAuth, "no Google credentials were found",
              fmt::format("GOOGLE_APPLICATION_CREDENTIALS, {}, the metadata server", usual),
              "run: gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key's file");
}

// As Ray writes it: {"token": ...}; or the bare token. It cannot be renewed.
AccessToken CredentialChain::given_token() const {
  const json document = rest::parse_bounded(settings_.given->text);
  Bought given;
  given.token = document.is_object() ? text_at(document, "token") : trim(settings_.given->text);
  if (given.token.empty()) given.token = text_at(document, "access_token");
  if (given.token.empty()) {
    throw Error(ErrorCode::kAuth, "provider.gcp_credentials has no token", settings_.given->where,
                "write credentials: TOKEN, or take gcp_credentials out");
  }
  return token_of(std::move(given), "provider.gcp_credentials", "");
}

Task<AccessToken> CredentialChain::from_document(json document, std::string origin) {
  const std::string type = text_at(document, "type");
  if (type == "service_account") {
    Task<AccessToken> made = from_service_account(document, std::move(origin));
    co_return co_await std::move(made);
  }
  if (type == "authorized_user") {
    Task<AccessToken> made = from_refresh_token(document, std::move(origin));
    co_return co_await std::move(made);
  }
  if (type == "impersonated_service_account") {
    Task<AccessToken> made = from_impersonation(document, std::move(origin));
    co_return co_await std::move(made);
  }
  throw Error(ErrorCode::kAuth,
              fmt::format("credentials of the type '{}' are not supported", type.empty() ? "(none)" : type), origin,
              "use a service account's key, or " + std::string(kLogin));
}

Task<AccessToken> CredentialChain::from_service_account(const json& document, std::string origin) {
  Assertion assertion;
  assertion.account = required(document, "client_email", origin);
  assertion.private_key = required(document, "private_key", origin);
  assertion.key_id = text_at(document, "private_key_id");
  std::string token_uri = text_at(document, "token_uri");
  assertion.audience = token_uri.empty() ? std::string(kOauth.host) + "/token" : token_uri;
  if (token_uri.empty()) {
    const rest::Url url = endpoint_of(settings_, read_configuration(world_.files, settings_.env), kOauth);
    token_uri = fmt::format("{}://{}{}/token", url.https ? "https" : "http", url.host(), url.path);
  }
  const std::string account = assertion.account;
  TokenExchange::Body body = [assertion](WallTime now) {
    rest::Query form;
    form.emplace_back("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
    form.emplace_back("assertion", sign_assertion(assertion, now));
    return rest::encode_query(form);
  };
  Task<Bought> buying = buy(caller_, std::move(token_uri), form_headers(), std::move(body), origin, settings_.env);
  Bought bought = co_await std::move(buying);
  co_return token_of(std::move(bought), origin, account);
}

Task<AccessToken> CredentialChain::from_refresh_token(const json& document, std::string origin) {
  rest::Query form;
  form.emplace_back("grant_type", "refresh_token");
  for (const char* key : {"client_id", "client_secret", "refresh_token"}) {
    form.emplace_back(key, required(document, key, origin));
  }
  std::string token_uri = text_at(document, "token_uri");
  if (token_uri.empty()) {
    const rest::Url url = endpoint_of(settings_, read_configuration(world_.files, settings_.env), kOauth);
    token_uri = fmt::format("{}://{}{}/token", url.https ? "https" : "http", url.host(), url.path);
  }
  const std::string text = rest::encode_query(form);
  TokenExchange::Body body = [text](WallTime) { return text; };
  Task<Bought> buying = buy(caller_, std::move(token_uri), form_headers(), std::move(body), origin, settings_.env);
  Bought bought = co_await std::move(buying);
  AccessToken out = token_of(std::move(bought), origin, text_at(document, "account"));
  out.quota_project = text_at(document, "quota_project_id");
  co_return out;
}

Task<AccessToken> CredentialChain::from_impersonation(const json& document, std::string origin) {
  const std::string url = required(document, "service_account_impersonation_url", origin);
  const auto source = document.find("source_credentials");
  if (source == document.end() || text_at(*source, "type") == "impersonated_service_account") {
    throw Error(ErrorCode::kAuth, "these credentials name nobody who impersonates", origin, std::string(kLogin));
  }
  json with = *source;
  Task<AccessToken> first = from_document(std::move(with), origin);
  const AccessToken caller = co_await std::move(first);
  std::map<std::string, std::string> headers{{"content-type", "application/json"},
                                             {"authorization", "Bearer " + caller.text}};
  json asked = {{"scope", {kScope}}, {"lifetime", "3600s"}};
  if (document.contains("delegates")) asked["delegates"] = document["delegates"];
  const std::string text = asked.dump();
  TokenExchange::Body body = [text](WallTime) { return text; };
  Task<Bought> buying = buy(caller_, url, std::move(headers), std::move(body), origin, settings_.env);
  Bought bought = co_await std::move(buying);
  // ".../serviceAccounts/NAME@PROJECT.iam.gserviceaccount.com:generateAccessToken"
  std::string account = url.substr(url.rfind('/') + 1);
  account = account.substr(0, account.find(':'));
  co_return token_of(std::move(bought), origin, account);
}

Task<std::optional<AccessToken>> CredentialChain::from_machine() {
  const auto text = co_await metadata_.get("instance/service-accounts/default/token");
  if (!text) co_return std::nullopt;
  const json document = rest::parse_bounded(*text);
  AccessToken out;
  out.text = text_at(document, "access_token");
  if (out.text.empty()) co_return std::nullopt;
  if (const auto seconds = document.find("expires_in"); seconds != document.end() && seconds->is_number()) {
    out.expires = world_.clock.wall() + std::chrono::seconds(seconds->get<int64_t>());
  }
  out.origin = "the machine's service account";
  const auto email = co_await metadata_.get("instance/service-accounts/default/email");
  out.account = trim(email.value_or(""));
  co_return out;
}

}  // namespace rubato::gcp
