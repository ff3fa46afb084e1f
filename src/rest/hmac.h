// HMAC-SHA-256 (RFC 2104), with the key's part of the work done once.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/sha256.h"

namespace rubato::rest {

// The 32 bytes that a hash's 64 digits stand for.
std::string digest_bytes(std::string_view hex);

class HmacKey {
 public:
  explicit HmacKey(std::string_view key);
  std::string sign_hex(std::string_view text) const;  // 64 digits
  std::string sign(std::string_view text) const;      // 32 bytes

 private:
  Sha256 inner_, outer_;
};

}  // namespace rubato::rest
