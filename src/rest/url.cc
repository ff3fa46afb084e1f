#include "rest/url.h"

#include <array>

#include "core/error.h"
#include "core/text.h"

namespace rubato::rest {
namespace {

constexpr bool is_unreserved(unsigned char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

constexpr auto kUnreserved = [] {
  std::array<bool, 256> table{};
  for (size_t c = 0; c < table.size(); ++c) table[c] = is_unreserved(static_cast<unsigned char>(c));
  return table;
}();

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

void append_encoded(std::string& out, std::string_view text, Slash slash) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (kUnreserved[byte] || (c == '/' && slash == Slash::kKept)) {
      out += c;
    } else {
      out += '%';
      out += "0123456789ABCDEF"[byte >> 4];
      out += "0123456789ABCDEF"[byte & 15];
    }
  }
}

}  // namespace

std::string percent_encode(std::string_view text, Slash slash) {
  std::string out;
  out.reserve(text.size() + 16);
  append_encoded(out, text, slash);
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit_of(text[i + 1]) >= 0 && digit_of(text[i + 2]) >= 0) {
      out += static_cast<char>(digit_of(text[i + 1]) * 16 + digit_of(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string encode_query(const Query& query) {
  std::string out;
  for (const auto& [name, value] : query) {
    if (!out.empty()) out += '&';
    append_encoded(out, name, Slash::kEncoded);
    out += '=';
    append_encoded(out, value, Slash::kEncoded);
  }
  return out;
}

std::string Url::host() const {
  if (endpoint.port == (https ? 443 : 80)) {
    const bool v6 = endpoint.host.find(':') != std::string::npos;
    return v6 ? "[" + endpoint.host + "]" : endpoint.host;
  }
  return to_string(endpoint);
}

Url parse_url(std::string_view text, std::string_view origin) {
  const auto bad = [&](std::string_view why) {
    return Error(ErrorCode::kUsage, std::string(origin) + ": '" + std::string(text) + "' " + std::string(why),
                 std::string(origin), "write it as http://HOST[:PORT] or https://HOST[:PORT]");
  };
  Url url;
  std::string_view rest;
  if (const auto plain = strip_prefix(text, "http://")) {
    url.https = false;
    rest = *plain;
  } else if (const auto secure = strip_prefix(text, "https://")) {
    rest = *secure;
  } else {
    throw bad("is no HTTP address");
  }
  if (text.find_first_of(std::string_view(" \r\n\t\0", 5)) != std::string_view::npos) throw bad("has blanks in it");
  rest = rest.substr(0, rest.find('#'));
  if (const size_t query = rest.find('?'); query != std::string_view::npos) {
    url.query = rest.substr(query + 1);
    rest = rest.substr(0, query);
  }
  if (const size_t path = rest.find('/'); path != std::string_view::npos) {
    url.path = rest.substr(path);
    rest = rest.substr(0, path);
  }
  if (const size_t user = rest.rfind('@'); user != std::string_view::npos) {
    url.user = percent_decode(rest.substr(0, user));
    rest = rest.substr(user + 1);
  }
  if (rest.empty()) throw bad("names no host");
  try {
    url.endpoint = parse_endpoint(rest, url.https ? 443 : 80);
  } catch (const Error& error) {
    throw bad("has a bad host or port: " + error.message);
  }
  if (url.endpoint.host.empty()) throw bad("names no host");
  return url;
}

}  // namespace rubato::rest
