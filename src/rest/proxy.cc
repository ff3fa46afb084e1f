#include "rest/proxy.h"

#include <fmt/format.h>

#include <charconv>

#include "core/text.h"
#include "rest/base64.h"

namespace rubato::rest {
namespace {

constexpr uint16_t kProxyPort = 80;  // of a URL without one, as everywhere

std::optional<int> number_of(std::string_view text) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

// Of "10.1.2.3"; nullopt: it is none.
std::optional<uint32_t> v4_of(std::string_view text) {
  const auto parts = split(text, '.');
  if (parts.size() != 4) return std::nullopt;
  uint32_t out = 0;
  for (const std::string_view part : parts) {
    const std::optional<int> number = number_of(part);
    if (!number || *number < 0 || *number > 255) return std::nullopt;
    out = out << 8 | static_cast<uint32_t>(*number);
  }
  return out;
}

bool is_this_machine(const std::string& host) {
  if (host == "localhost" || host.ends_with(".localhost") || host == "::1" || host.starts_with('/')) return true;
  const std::optional<uint32_t> address = v4_of(host);
  return address && *address >> 24 == 127;
}

bool is_in_range(const std::string& host, std::string_view range, std::string_view length) {
  const std::optional<uint32_t> address = v4_of(host), first = v4_of(range);
  const std::optional<int> bits = number_of(length);
  if (!address || !first || !bits || *bits < 0 || *bits > 32) return false;
  return *bits == 0 || (*address ^ *first) >> (32 - *bits) == 0;
}

// One entry of no_proxy, in lower case.
bool excepts(std::string entry, const std::string& host, uint16_t port) {
  if (entry == "*") return true;
  if (const auto range = split_once(entry, '/')) return is_in_range(host, range->first, range->second);
  // "host:port", "[v6]:port"; an IPv6 address without brackets has several colons.
  const size_t colon = entry.rfind(':');
  const bool bracketed = entry.starts_with('[') && !entry.ends_with(']');
  if (colon != std::string::npos && (bracketed || entry.find(':') == colon)) {
    if (entry.substr(colon + 1) != std::to_string(port)) return false;
    entry.resize(colon);
  }
  if (entry.starts_with('[') && entry.ends_with(']')) entry = entry.substr(1, entry.size() - 2);
  if (entry.starts_with("*.")) entry.erase(0, 1);
  if (!entry.empty() && entry.front() == '.') entry.erase(0, 1);
  return !entry.empty() && (host == entry || host.ends_with("." + entry));
}

Sourced first_of(const Environment& env, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = variable(env, name); !value.empty()) return {std::move(value), name};
  }
  return {};
}

Error not_a_proxy(const Sourced& found, const std::string& why) {
  return Error(ErrorCode::kUsage, fmt::format("{}: {}", found.origin, why), "",
               "write http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT");
}

}  // namespace

HttpProxy read_proxy(const Sourced& found) {
  const std::string text = found.text.find("://") == std::string::npos ? "http://" + found.text : found.text;
  // Not parse_url's own error for other schemes: the text may hold a password.
  if (!to_lower(text).starts_with("http://")) throw not_a_proxy(found, "only proxies of http:// are supported");
  HttpProxy out;
  try {
    const Url url = parse_url(text, found.origin);
    out.endpoint = url.endpoint;
    if (out.endpoint.port == 0) out.endpoint.port = kProxyPort;
    if (!url.user.empty()) out.authorization = "Basic " + base64(url.user);
  } catch (const Error&) {
    throw not_a_proxy(found, "this is no URL of a proxy");
  }
  return out;
}

std::optional<HttpProxy> proxy_for(const Url& url, const Environment& env) {
  const Sourced found = url.https ? first_of(env, {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
                                  : first_of(env, {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"});
  if (found.text.empty()) return std::nullopt;
  const std::string host = to_lower(url.endpoint.host);
  if (is_this_machine(host)) return std::nullopt;
  const std::string excepted = to_lower(first_of(env, {"no_proxy", "NO_PROXY"}).text);
  for (const std::string_view entry : split(excepted, ',')) {
    if (excepts(std::string(trim(entry)), host, url.endpoint.port)) return std::nullopt;
  }
  return read_proxy(found);
}

Target target_of(const Url& url, const Environment& env) {
  Target out;
  out.endpoint = url.endpoint;
  out.tls.use_tls = url.https;
  out.proxy = proxy_for(url, env);
  return out;
}

}  // namespace rubato::rest
