#include "rest/hmac.h"

#include <algorithm>

namespace rubato::rest {
namespace {

constexpr int value_of_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

}  // namespace

std::string digest_bytes(std::string_view hex) {
  std::string out(hex.size() / 2, '\0');
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<char>(value_of_digit(hex[2 * i]) << 4 | value_of_digit(hex[2 * i + 1]));
  }
  return out;
}

HmacKey::HmacKey(std::string_view key) {
  constexpr size_t kBlock = 64;
  const std::string shortened = key.size() > kBlock ? digest_bytes(sha256_hex(key)) : std::string(key);
  std::array<char, kBlock> inner, outer;
  for (size_t i = 0; i < kBlock; ++i) {
    const char byte = i < shortened.size() ? shortened[i] : '\0';
    inner[i] = static_cast<char>(byte ^ 0x36);
    outer[i] = static_cast<char>(byte ^ 0x5c);
  }
  inner_.update({inner.data(), kBlock});
  outer_.update({outer.data(), kBlock});
}

std::string HmacKey::sign_hex(std::string_view text) const {
  Sha256 inner = inner_;
  inner.update(text);
  Sha256 outer = outer_;
  outer.update(digest_bytes(inner.hex()));
  return outer.hex();
}

std::string HmacKey::sign(std::string_view text) const { return digest_bytes(sign_hex(text)); }

}  // namespace rubato::rest
