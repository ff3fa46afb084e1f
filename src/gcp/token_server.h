// Tokens bought from a token server: one request, with its retries; refusals as errors with their fix.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/time.h"
#include "rest/caller.h"
#include "rest/environment.h"

namespace rubato::gcp {

inline constexpr std::string_view kScope = "https://www.googleapis.com/auth/cloud-platform";
inline constexpr std::string_view kLogin = "run: gcloud auth application-default login";

struct TokenOrder {
  using Body = std::function<std::string(WallTime)>;  // of a try at that time
  std::string url;
  std::map<std::string, std::string> headers;
  Body body;
  std::string origin;  // of the credentials, for people
};
struct BoughtToken {
  std::string text;
  std::optional<WallTime> expires;  // nullopt: not told
};
// Throws kAuth for a refusal, kUnavailable where another time may help; no message has what was sent.
Task<BoughtToken> buy_token(rest::Caller& caller, TokenOrder order, const rest::Environment& env);

// By "expires_in", in seconds.
std::optional<WallTime> end_of_token(const nlohmann::json& document, WallTime now);

std::map<std::string, std::string> form_headers();
std::string basic_authorization(const std::string& client, const std::string& secret);

// The text under a key of credentials. Throws kAuth when there is none.
std::string required_text(const nlohmann::json& document, const char* key, const std::string& origin);

}  // namespace rubato::gcp
