#include "world/network.h"

#include <charconv>

#include "core/error.h"

namespace rubato {

std::string to_string(const Endpoint& endpoint) {
  if (endpoint.host.starts_with('/')) return endpoint.host;
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

namespace {
[[noreturn]] void bad_endpoint(std::string_view text, const std::string& why) {
  throw Error(ErrorCode::kUsage, "'" + std::string(text) + "' is not a host:port: " + why, "",
              "write HOST:PORT, for example 10.0.0.1:29400 or [::1]:29400");
}
}  // namespace

Endpoint parse_endpoint(std::string_view text, uint16_t default_port) {
  std::string_view host = text, port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) bad_endpoint(text, "the bracket is not closed");
    host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && !rest.starts_with(':')) bad_endpoint(text, "after the bracket comes a colon");
    if (!rest.empty()) port = rest.substr(1);
  } else if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    if (text.find(':', colon + 1) != std::string_view::npos) bad_endpoint(text, "an IPv6 address needs brackets");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (port.empty()) bad_endpoint(text, "the port is missing");
  }
  if (host.empty()) bad_endpoint(text, "the host is missing");
  Endpoint endpoint{std::string(host), default_port};
  if (!port.empty()) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
    if (error != std::errc{} || end != port.data() + port.size()) bad_endpoint(text, "the port is not 0 to 65535");
  }
  return endpoint;
}

}  // namespace rubato
