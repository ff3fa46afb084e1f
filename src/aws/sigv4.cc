#include "aws/sigv4.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/sha256.h"
#include "core/text.h"

namespace rubato::aws {
namespace {

using rest::HmacKey;
using rest::percent_encode;
using rest::Slash;

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

// Without empty parts and dots, as RFC 3986 removes them; S3's keys may hold both.
std::string normalised(std::string_view path) {
  std::vector<std::string_view> kept;
  for (const std::string_view part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!kept.empty()) kept.pop_back();
    } else {
      kept.push_back(part);
    }
  }
  std::string out = "/" + join(kept, "/");
  if (out.size() > 1 && path.ends_with('/')) out += '/';
  return out;
}

std::string canonical_path(std::string_view path, const SigningScope& scope) {
  if (path.empty()) return "/";
  if (scope.is_s3()) return percent_encode(path, Slash::kKept);
  const std::string once = percent_encode(normalised(path), Slash::kKept);
  return once.find('%') == std::string::npos ? once : percent_encode(once, Slash::kKept);
}

std::string canonical_query(const rest::Query& query) {
  if (query.empty()) return {};
  std::vector<std::pair<std::string, std::string>> encoded;
  encoded.reserve(query.size());
  for (const auto& [name, value] : query) encoded.emplace_back(percent_encode(name), percent_encode(value));
  std::ranges::sort(encoded);
  std::string out;
  for (const auto& [name, value] : encoded) {
    if (!out.empty()) out += '&';
    out.append(name).append("=").append(value);
  }
  return out;
}

// Trimmed, and runs of blanks as one; a value over several lines is one line.
void append_squeezed(std::string& out, std::string_view text) {
  bool blank = false, begun = false;
  for (const char c : text) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      blank = begun;
      continue;
    }
    if (blank) out += ' ';
    blank = false;
    begun = true;
    out += c;
  }
}

// Lower-case names in order, values of one name in the order of the request, with commas between.
Headers canonical_headers(const Headers& headers) {
  Headers sorted;
  sorted.reserve(headers.size());
  for (const auto& [name, value] : headers) {
    auto& entry = sorted.emplace_back(to_lower(name), std::string());
    append_squeezed(entry.second, value);
  }
  std::ranges::stable_sort(sorted, {}, &Headers::value_type::first);
  Headers out;
  for (auto& [name, value] : sorted) {
    if (!out.empty() && out.back().first == name) {
      out.back().second += "," + value;
    } else {
      out.emplace_back(std::move(name), std::move(value));
    }
  }
  return out;
}

std::string names_of(const Headers& canonical) {
  std::string out;
  for (const auto& [name, value] : canonical) {
    if (!out.empty()) out += ';';
    out += name;
  }
  return out;
}

std::string scope_text(std::string_view date, const SigningScope& scope) {
  return fmt::format("{}/{}/{}/aws4_request", date, scope.region, scope.service);
}

std::string canonical_text(const SignedParts& parts, const SigningScope& scope, const Headers& headers,
                           std::string_view names) {
  std::string out;
  out.reserve(512);
  out.append(parts.method).append("\n").append(canonical_path(parts.path, scope)).append("\n");
  out.append(canonical_query(parts.query)).append("\n");
  for (const auto& [name, value] : headers) out.append(name).append(":").append(value).append("\n");
  out.append("\n").append(names).append("\n").append(parts.payload_hash);
  return out;
}

}  // namespace

std::string amz_timestamp(WallTime now) {
  const auto days = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(days);
  const std::chrono::hh_mm_ss time(std::chrono::floor<std::chrono::seconds>(now - days));
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count());
}

std::string wire_path(std::string_view path) { return path.empty() ? "/" : percent_encode(path, Slash::kKept); }

std::string signed_header_names(const Headers& headers) { return names_of(canonical_headers(headers)); }

std::string canonical_request(const SignedParts& parts, const SigningScope& scope) {
  const Headers headers = canonical_headers(parts.headers);
  return canonical_text(parts, scope, headers, names_of(headers));
}

std::string string_to_sign(std::string_view canonical, std::string_view timestamp, const SigningScope& scope) {
  return fmt::format("{}\n{}\n{}\n{}", kAlgorithm, timestamp, scope_text(timestamp.substr(0, 8), scope),
                     sha256_hex(canonical));
}

const HmacKey& Signer::key_for(const SigningScope& scope, const Credentials& credentials, std::string_view date) {
  std::string wanted;
  wanted.append(credentials.secret_key).append(1, '\0').append(date).append(1, '\0').append(scope.region);
  wanted.append(1, '\0').append(scope.service);
  if (key_ && key_of_ == wanted) return *key_;
  const HmacKey of_secret("AWS4" + credentials.secret_key);
  const HmacKey of_date(of_secret.sign(date));
  const HmacKey of_region(of_date.sign(scope.region));
  const HmacKey of_service(of_region.sign(scope.service));
  key_.emplace(of_service.sign("aws4_request"));
  key_of_ = std::move(wanted);
  return *key_;
}

std::string Signer::authorization(const SignedParts& parts, const SigningScope& scope, const Credentials& credentials,
                                  std::string_view timestamp) {
  const Headers headers = canonical_headers(parts.headers);
  const std::string names = names_of(headers);
  const std::string text = string_to_sign(canonical_text(parts, scope, headers, names), timestamp, scope);
  const std::string_view date = timestamp.substr(0, 8);
  const std::string signature = key_for(scope, credentials, date).sign_hex(text);
  return fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm, credentials.access_key,
                     scope_text(date, scope), names, signature);
}

rest::Query Signer::presign(SignedParts parts, const SigningScope& scope, const Credentials& credentials,
                             WallTime now, Duration valid_for) {
  const std::string timestamp = amz_timestamp(now);
  const std::string_view date = std::string_view(timestamp).substr(0, 8);
  parts.query.emplace_back("X-Amz-Algorithm", kAlgorithm);
  parts.query.emplace_back("X-Amz-Credential", credentials.access_key + "/" + scope_text(date, scope));
  parts.query.emplace_back("X-Amz-Date", timestamp);
  parts.query.emplace_back("X-Amz-Expires", std::to_string(valid_for / 1s));
  if (!credentials.session_token.empty()) parts.query.emplace_back("X-Amz-Security-Token", credentials.session_token);
  parts.query.emplace_back("X-Amz-SignedHeaders", signed_header_names(parts.headers));
  if (scope.is_s3()) parts.payload_hash = kUnsignedPayload;
  const std::string text = string_to_sign(canonical_request(parts, scope), timestamp, scope);
  parts.query.emplace_back("X-Amz-Signature", key_for(scope, credentials, date).sign_hex(text));
  return std::move(parts.query);
}

}  // namespace rubato::aws
