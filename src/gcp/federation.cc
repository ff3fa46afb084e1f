#include "gcp/federation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "rest/json.h"
#include "rest/proxy.h"

namespace rubato::gcp {
namespace {

using nlohmann::json;
using rest::object_at;
using rest::text_at;

constexpr std::string_view kGrant = "urn:ietf:params:oauth:grant-type:token-exchange";
constexpr std::string_view kAccessTokenType = "urn:ietf:params:oauth:token-type:access_token";
constexpr std::string_view kOtherWays =
    "let a file or a URL hold the token (credential_source.file, .url), or use a service account's key";
constexpr int kLifeMin = 600, kLifeMax = 43200;  // Google's, of an impersonation

// GET of the subject's token.
class SubjectExchange final : public rest::Exchange {
 public:
  SubjectExchange(const rest::Url& url, const std::map<std::string, std::string>& headers)
      : url_(url), headers_(headers) {}

  Task<HttpRequest> prepare(WallTime) override {
    HttpRequest request;
    request.target = url_.path.empty() ? "/" : url_.path;
    if (!url_.query.empty()) request.target += "?" + url_.query;
    for (const auto& [name, value] : headers_) request.headers[to_lower(name)] = value;
    request.headers["host"] = url_.host();
    co_return request;
  }
  rest::Verdict judge(const HttpResponse& response) override {
    if (response.status == 429) return rest::Verdict::kThrottled;
    return response.status >= 500 ? rest::Verdict::kRetry : rest::Verdict::kDone;
  }

 private:
  const rest::Url& url_;
  const std::map<std::string, std::string>& headers_;
};

[[noreturn]] void refuse(const std::string& why, const std::string& origin) {
  throw Error(ErrorCode::kAuth, why, origin, std::string(kOtherWays));
}

SubjectSource read_source(const json& document, const std::string& origin) {
  const json given = document.value("credential_source", json());
  if (!given.is_object()) refuse("these credentials lack \"credential_source\"", origin);
  if (given.contains("executable")) {
    refuse("rubato runs no program of a credentials file (credential_source.executable)", origin);
  }
  if (given.contains("environment_id")) {
    refuse("federation with AWS's signatures (credential_source.environment_id) is not supported", origin);
  }
  if (given.contains("certificate")) {
    refuse("federation with certificates (credential_source.certificate) is not supported", origin);
  }
  SubjectSource out;
  out.file = text_at(given, "file");
  out.url = text_at(given, "url");
  if (out.file.empty() == out.url.empty()) refuse("credential_source has to name a file or a url", origin);
  const json headers = object_at(given, "headers");
  for (const auto& [name, value] : headers.items()) {
    if (value.is_string()) out.headers[name] = value.get<std::string>();
  }
  const json format = object_at(given, "format");
  const std::string type = text_at(format, "type");
  if (type == "json") {
    out.key = required_text(format, "subject_token_field_name", origin);
  } else if (!type.empty() && type != "text") {
    refuse(fmt::format("credential_source.format is '{}', neither text nor json", type), origin);
  }
  return out;
}

std::chrono::seconds life_of(const json& document) {
  const json given = object_at(document, "service_account_impersonation");
  const std::string text = text_at(given, "token_lifetime_seconds");
  int seconds = 3600;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::chrono::seconds(std::clamp(seconds, kLifeMin, kLifeMax));
}

}  // namespace

Federation read_federation(const json& document, const std::string& origin) {
  Federation out;
  out.source = read_source(document, origin);
  out.audience = required_text(document, "audience", origin);
  out.subject_type = required_text(document, "subject_token_type", origin);
  out.token_url = required_text(document, "token_url", origin);
  out.client_id = text_at(document, "client_id");
  out.client_secret = text_at(document, "client_secret");
  out.user_project = text_at(document, "workforce_pool_user_project");
  out.impersonation_url = text_at(document, "service_account_impersonation_url");
  out.impersonation_life = life_of(document);
  out.quota_project = text_at(document, "quota_project_id");
  return out;
}

Task<std::string> read_subject_token(World& world, rest::Caller& caller, SubjectSource source, std::string origin,
                                     const rest::Environment& env) {
  std::string text;
  const std::string from = source.file.empty() ? source.url : source.file;
  if (!source.file.empty()) {
    const std::optional<std::string> found = world.files.read(source.file);
    if (!found) {
      throw Error(ErrorCode::kAuth, fmt::format("the token '{}' cannot be read", source.file), origin,
                  "check credential_source.file and its mode");
    }
    text = *found;
  } else {
    const rest::Url url = rest::parse_url(source.url, origin);
    SubjectExchange exchange(url, source.headers);
    rest::Target target = rest::target_of(url, env);
    HttpResponse response = co_await caller.call(std::move(target), exchange);
    if (response.status != 200) {
      const bool later = response.status >= 500 || response.status == 429;
      throw Error(later ? ErrorCode::kUnavailable : ErrorCode::kAuth,
                  fmt::format("{} gives no token: HTTP status {}", url.host(), response.status), origin,
                  "check credential_source.url and its headers");
    }
    text = std::move(response.body);
  }
  std::string token(trim(text));
  if (!source.key.empty()) token = text_at(rest::parse_bounded(text), source.key.c_str());
  if (token.empty()) {
    throw Error(ErrorCode::kAuth,
                source.key.empty() ? "the subject's token is empty"
                                   : fmt::format("there is no token under \"{}\"", source.key),
                from, "check credential_source.format");
  }
  co_return token;
}

TokenOrder exchange_order(const Federation& federation, const std::string& subject_token, const std::string& origin) {
  rest::Query form;
  form.emplace_back("grant_type", kGrant);
  form.emplace_back("audience", federation.audience);
  form.emplace_back("scope", kScope);
  form.emplace_back("requested_token_type", kAccessTokenType);
  form.emplace_back("subject_token", subject_token);
  form.emplace_back("subject_token_type", federation.subject_type);
  TokenOrder out;
  out.headers = form_headers();
  if (!federation.client_id.empty()) {
    out.headers["authorization"] = basic_authorization(federation.client_id, federation.client_secret);
  } else if (!federation.user_project.empty()) {
    form.emplace_back("options", json{{"userProject", federation.user_project}}.dump());
  }
  out.url = federation.token_url;
  out.origin = origin;
  const std::string text = rest::encode_query(form);
  out.body = [text](WallTime) { return text; };
  return out;
}

}  // namespace rubato::gcp
