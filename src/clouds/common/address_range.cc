#include "clouds/common/address_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/text.h"
#include "rest/proxy.h"
#include "rest/url.h"

namespace rubato::clouds {
namespace {

constexpr Duration kCheckIpTimeout = 10s;
constexpr std::string_view kCheckIp = "https://checkip.amazonaws.com";
// The second is older, and kept for those who have set it.
constexpr const char* kCheckIpVariables[] = {"RUBATO_CHECKIP", "AWS_ENDPOINT_URL_CHECKIP"};

bool is_number(std::string_view text, int most) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && text.size() <= 3 && error == std::errc() && end == text.data() + text.size() && value >= 0 &&
         value <= most;
}

bool is_v4(std::string_view text) {
  const auto parts = split(text, '.');
  return parts.size() == 4 && std::ranges::all_of(parts, [](std::string_view part) { return is_number(part, 255); });
}

// As clouds keep it: of "203.0.113.7/24" the network, 203.0.113.0/24.
std::string masked(std::string_view address, std::string_view length) {
  unsigned bits = 0;
  std::from_chars(length.data(), length.data() + length.size(), bits);
  uint32_t all = 0;
  for (const std::string_view part : split(address, '.')) {
    unsigned value = 0;
    std::from_chars(part.data(), part.data() + part.size(), value);
    all = all << 8 | value;
  }
  all &= bits == 0 ? 0 : ~uint32_t{0} << (32 - bits);
  return fmt::format("{}.{}.{}.{}/{}", all >> 24, all >> 16 & 255, all >> 8 & 255, all & 255, bits);
}

// The form alone: the cloud says the rest.
bool is_v6(std::string_view text) {
  const auto digit = [](char c) { return c == ':' || ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); };
  const std::string lower = to_lower(text);
  return std::ranges::count(lower, ':') >= 2 && lower.size() <= 39 && std::ranges::all_of(lower, digit);
}

std::optional<rest::Sourced> named_check_ip(const rest::Environment& env) {
  for (const char* name : kCheckIpVariables) {
    if (std::string named = rest::variable(env, name); !named.empty()) return rest::Sourced{std::move(named), name};
  }
  return std::nullopt;
}

enum class Reach { kPublic, kPrivate, kSameMachine };

// RFC 1918, 4193, 6598; loopback.
Reach reach_of(std::string_view address) {
  if (address == "::1" || address.starts_with("127.")) return Reach::kSameMachine;
  const std::string lower = to_lower(address);
  if (lower.starts_with("fd") || lower.starts_with("fc")) return is_v6(lower) ? Reach::kPrivate : Reach::kPublic;
  if (!is_v4(address)) return Reach::kPublic;
  const auto parts = split(address, '.');
  int second = 0;
  std::from_chars(parts[1].data(), parts[1].data() + parts[1].size(), second);
  const bool is_private = parts[0] == "10" || (parts[0] == "192" && second == 168) ||
                          (parts[0] == "172" && second >= 16 && second < 32) ||
                          (parts[0] == "100" && second >= 64 && second < 128);
  return is_private ? Reach::kPrivate : Reach::kPublic;
}

// Where machines of such a server see this one; empty: the server is a public one, or none.
Task<std::vector<std::string>> own_addresses(World& world, std::string server) {
  std::vector<std::string> out;
  if (server.empty()) co_return out;
  Reach reach = Reach::kPublic;
  const std::vector<std::string> found = co_await world.network.resolve(std::move(server));
  for (const std::string& one : found) reach = std::max(reach, reach_of(one));
  if (reach == Reach::kPublic) co_return out;
  if (reach == Reach::kSameMachine) out.emplace_back("127.0.0.1/32");
  for (const std::string& one : world.network.addresses()) {
    if (const auto cidr = normal_cidr(one); cidr && is_v4(one)) out.push_back(*cidr);
  }
  co_return out;
}

}  // namespace

std::optional<std::string> normal_cidr(std::string_view text) {
  const auto parts = split_once(text, '/');
  const std::string_view address = parts ? parts->first : text;
  const bool v6 = is_v6(address);
  if (!v6 && !is_v4(address)) return std::nullopt;
  if (!parts) return fmt::format("{}/{}", address, v6 ? 128 : 32);
  if (!is_number(parts->second, v6 ? 128 : 32)) return std::nullopt;
  return v6 ? std::string(text) : masked(address, parts->second);
}

void check_ranges(const Yaml& node, Findings& findings) {
  const std::vector<Yaml> items = node.is_sequence() ? node.items() : std::vector<Yaml>{node};
  for (const Yaml& one : items) {
    if (findings.blames(one)) continue;
    if (one.is_scalar() && normal_cidr(one.as_string())) continue;
    findings.error(one,
                   one.is_scalar() ? fmt::format("'{}' is no range of addresses", one.as_string())
                                   : "expected a range of addresses",
                   "write 203.0.113.7 or 203.0.113.0/24");
  }
}

Task<std::vector<std::string>> find_ssh_from(World& world, SshFrom asked) {
  if (!asked.given.empty()) co_return std::move(asked.given);
  const std::string fix = "add ssh_from: [ADDRESS/32] to provider: from there SSH to the head is allowed";
  const auto named_url = named_check_ip(asked.env);
  if (!named_url && !asked.internal_only) {
    std::vector<std::string> own = co_await own_addresses(world, asked.own_server);
    if (!own.empty()) co_return own;
  }
  if (asked.internal_only) {
    throw Error(ErrorCode::kUsage, "with use_internal_ips, from which addresses do you reach the head?",
                asked.provider_where, fix);
  }
  const rest::Sourced named = named_url.value_or(rest::Sourced{std::string(kCheckIp), "checkip"});
  const rest::Url url = rest::parse_url(named.text, named.origin);
  rest::Target target = rest::target_of(url, asked.env);
  HttpRequest request;
  request.target = url.path.empty() ? "/" : url.path;
  request.headers["host"] = url.host();
  request.proxy = std::move(target.proxy);
  std::string found;
  try {
    const Instant deadline = world.clock.now() + kCheckIpTimeout;
    const HttpResponse answer =
        co_await world.network.call(std::move(target.endpoint), std::move(target.tls), std::move(request), deadline);
    found = answer.status == 200 ? std::string(trim(answer.body)) : "";
  } catch (const Error&) {
    found.clear();  // told below, with the fix
  }
  const auto cidr = normal_cidr(found);
  if (!cidr || found.find('/') != std::string::npos) {
    throw Error(ErrorCode::kUsage, fmt::format("your public address cannot be found: {} does not tell it", named.text),
                asked.provider_where, fix);
  }
  co_return std::vector<std::string>{*cidr};
}

}  // namespace rubato::clouds
