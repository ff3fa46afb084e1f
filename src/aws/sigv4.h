// SigV4: AWS's signatures, as its "Signature Version 4" reference describes them. Pure.
//
//   canonical request   method, path, sorted query, sorted headers, their names, hash of the body
//   string to sign      algorithm, time, scope (date/region/service/aws4_request), hash of the canonical request
//   signature           HMAC of it with a key that is derived from the secret, date, region and service
//
// S3 differs: its paths are encoded once and never normalised, and its requests name the body's hash in a header.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rest/hmac.h"
#include "rest/url.h"
#include "core/time.h"

namespace rubato::aws {

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;        // of temporary ones
  std::optional<WallTime> expires;  // when they were given for a time
};

struct SigningScope {
  std::string region;
  std::string service;
  bool is_s3() const { return service == "s3"; }
};

// In place of the body's hash, where the body is not signed (over TLS, and in presigned URLs).
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

using Headers = std::vector<std::pair<std::string, std::string>>;

struct SignedParts {
  std::string method = "GET";
  std::string path = "/";     // as meant, not encoded
  rest::Query query;         // as meant
  Headers headers;            // all that are signed, with Host and the x-amz- ones; any case, any order, doubles too
  std::string payload_hash;   // 64 digits, or kUnsignedPayload
};

// The pieces, for tests and for errors that show what was signed.
std::string canonical_request(const SignedParts& parts, const SigningScope& scope);
std::string signed_header_names(const Headers& headers);
std::string string_to_sign(std::string_view canonical, std::string_view timestamp, const SigningScope& scope);
std::string amz_timestamp(WallTime now);  // 20150830T123600Z

// "/a b" as it goes over the wire.
std::string wire_path(std::string_view path);

// Keeps the derived key, which is good for a day: the same secret, date, region and service need it once.
class Signer {
 public:
  // The value of the Authorization header. `timestamp` is the one in the x-amz-date header.
  std::string authorization(const SignedParts& parts, const SigningScope& scope, const Credentials& credentials,
                            std::string_view timestamp);

  // The query of a URL that works without further headers than Host for `valid_for` (a week at most).
  rest::Query presign(SignedParts parts, const SigningScope& scope, const Credentials& credentials, WallTime now,
                       Duration valid_for);

 private:
  const rest::HmacKey& key_for(const SigningScope& scope, const Credentials& credentials, std::string_view date);

  std::string key_of_;
  std::optional<rest::HmacKey> key_;
};

}  // namespace rubato::aws
