#include "gcp/credentials.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "gcp/federation.h"
#include "gcp/token_server.h"
#include "rest/json.h"
#include "rest/rs256.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::text_at;

// google-auth's: the metadata server gives the same token until four minutes before it ends.
constexpr auto kRenewBefore = std::chrono::seconds(225);
constexpr auto kRenewPause = std::chrono::seconds(30);  // after one that has failed
constexpr auto kTokenLife = std::chrono::hours(1);  // Google takes no more

AccessToken token_of(BoughtToken bought, std::string origin, std::string account) {
  AccessToken out;
  out.text = std::move(bought.text);
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
  BoughtToken given;
  given.text = document.is_object() ? text_at(document, "token") : trim(settings_.given->text);
  if (given.text.empty()) given.text = text_at(document, "access_token");
  if (given.text.empty()) {
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
  if (type == "external_account") {
    Task<AccessToken> made = from_federation(document, std::move(origin));
    co_return co_await std::move(made);
  }
  if (type == "external_account_authorized_user") {
    Task<AccessToken> made = from_workforce_login(document, std::move(origin));
    co_return co_await std::move(made);
  }
  throw Error(ErrorCode::kAuth,
              fmt::format("credentials of the type '{}' are not supported", type.empty() ? "(none)" : type), origin,
              "use a service account's key, or " + std::string(kLogin));
}

Task<AccessToken> CredentialChain::from_service_account(const json& document, std::string origin) {
  Assertion assertion;
  assertion.account = required_text(document, "client_email", origin);
  assertion.private_key = required_text(document, "private_key", origin);
  assertion.key_id = text_at(document, "private_key_id");
  std::string token_uri = text_at(document, "token_uri");
  assertion.audience = token_uri.empty() ? std::string(kOauth.host) + "/token" : token_uri;
  if (token_uri.empty()) {
    const rest::Url url = endpoint_of(settings_, read_configuration(world_.files, settings_.env), kOauth);
    token_uri = fmt::format("{}://{}{}/token", url.https ? "https" : "http", url.host(), url.path);
  }
  const std::string account = assertion.account;
  TokenOrder::Body body = [assertion](WallTime now) {
    rest::Query form;
    form.emplace_back("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
    form.emplace_back("assertion", sign_assertion(assertion, now));
    return rest::encode_query(form);
  };
  TokenOrder order{std::move(token_uri), form_headers(), std::move(body), origin};
  Task<BoughtToken> buying = buy_token(caller_, std::move(order), settings_.env);
  BoughtToken bought = co_await std::move(buying);
  co_return token_of(std::move(bought), origin, account);
}

Task<AccessToken> CredentialChain::from_refresh_token(const json& document, std::string origin) {
  rest::Query form;
  form.emplace_back("grant_type", "refresh_token");
  for (const char* key : {"client_id", "client_secret", "refresh_token"}) {
    form.emplace_back(key, required_text(document, key, origin));
  }
  std::string token_uri = text_at(document, "token_uri");
  if (token_uri.empty()) {
    const rest::Url url = endpoint_of(settings_, read_configuration(world_.files, settings_.env), kOauth);
    token_uri = fmt::format("{}://{}{}/token", url.https ? "https" : "http", url.host(), url.path);
  }
  const std::string text = rest::encode_query(form);
  TokenOrder::Body body = [text](WallTime) { return text; };
  TokenOrder order{std::move(token_uri), form_headers(), std::move(body), origin};
  Task<BoughtToken> buying = buy_token(caller_, std::move(order), settings_.env);
  BoughtToken bought = co_await std::move(buying);
  AccessToken out = token_of(std::move(bought), origin, text_at(document, "account"));
  out.quota_project = text_at(document, "quota_project_id");
  co_return out;
}

Task<AccessToken> CredentialChain::from_impersonation(const json& document, std::string origin) {
  const std::string url = required_text(document, "service_account_impersonation_url", origin);
  const auto source = document.find("source_credentials");
  if (source == document.end() || text_at(*source, "type") == "impersonated_service_account") {
    throw Error(ErrorCode::kAuth, "these credentials name nobody who impersonates", origin, std::string(kLogin));
  }
  json with = *source;
  Task<AccessToken> first = from_document(std::move(with), origin);
  AccessToken caller = co_await std::move(first);
  const json delegates = document.value("delegates", json());
  Task<AccessToken> as_account = impersonate(url, std::move(caller), delegates, kTokenLife);
  co_return co_await std::move(as_account);
}

Task<AccessToken> CredentialChain::impersonate(std::string url, AccessToken caller, json delegates,
                                               std::chrono::seconds life) {
  std::map<std::string, std::string> headers{{"content-type", "application/json"},
                                             {"authorization", "Bearer " + caller.text}};
  json asked = {{"scope", {kScope}}, {"lifetime", fmt::format("{}s", life.count())}};
  if (!delegates.is_null()) asked["delegates"] = std::move(delegates);
  const std::string text = asked.dump();
  TokenOrder::Body body = [text](WallTime) { return text; };
  TokenOrder order{url, std::move(headers), std::move(body), caller.origin};
  Task<BoughtToken> buying = buy_token(caller_, std::move(order), settings_.env);
  BoughtToken bought = co_await std::move(buying);
  // ".../serviceAccounts/NAME@PROJECT.iam.gserviceaccount.com:generateAccessToken"
  std::string account = url.substr(url.rfind('/') + 1);
  account = account.substr(0, account.find(':'));
  co_return token_of(std::move(bought), caller.origin, account);
}

// Somebody else's token, given for Google's own: workload and workforce identity federation.
Task<AccessToken> CredentialChain::from_federation(const json& document, std::string origin) {
  Federation federation = read_federation(document, origin);
  Task<std::string> subject = read_subject_token(world_, caller_, federation.source, origin, settings_.env);
  const std::string token = co_await std::move(subject);
  TokenOrder order = exchange_order(federation, token, origin);
  Task<BoughtToken> buying = buy_token(caller_, std::move(order), settings_.env);
  BoughtToken bought = co_await std::move(buying);
  AccessToken out = token_of(std::move(bought), origin, "");
  if (!federation.impersonation_url.empty()) {
    Task<AccessToken> as_account =
        impersonate(federation.impersonation_url, std::move(out), json(), federation.impersonation_life);
    out = co_await std::move(as_account);
  }
  out.quota_project = federation.quota_project;
  co_return out;
}

// Of `gcloud auth application-default login` with a workforce pool.
Task<AccessToken> CredentialChain::from_workforce_login(const json& document, std::string origin) {
  rest::Query form;
  form.emplace_back("grant_type", "refresh_token");
  form.emplace_back("refresh_token", required_text(document, "refresh_token", origin));
  auto headers = form_headers();
  headers["authorization"] = basic_authorization(required_text(document, "client_id", origin),
                                                 required_text(document, "client_secret", origin));
  const std::string text = rest::encode_query(form);
  TokenOrder::Body body = [text](WallTime) { return text; };
  TokenOrder order{required_text(document, "token_url", origin), std::move(headers), std::move(body), origin};
  Task<BoughtToken> buying = buy_token(caller_, std::move(order), settings_.env);
  BoughtToken bought = co_await std::move(buying);
  AccessToken out = token_of(std::move(bought), origin, "");
  out.quota_project = text_at(document, "quota_project_id");
  co_return out;
}

Task<std::optional<AccessToken>> CredentialChain::from_machine() {
  const auto text = co_await metadata_.get("instance/service-accounts/default/token");
  if (!text) co_return std::nullopt;
  const json document = rest::parse_bounded(*text);
  AccessToken out;
  out.text = text_at(document, "access_token");
  if (out.text.empty()) co_return std::nullopt;
  out.expires = end_of_token(document, world_.clock.wall());
  out.origin = "the machine's service account";
  const auto email = co_await metadata_.get("instance/service-accounts/default/email");
  out.account = trim(email.value_or(""));
  co_return out;
}

}  // namespace rubato::gcp
