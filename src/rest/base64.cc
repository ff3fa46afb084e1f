#include "rest/base64.h"

#include <cstdint>

namespace rubato::rest {
namespace {
constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}  // namespace

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < have ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= have ? kBase64Digits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::optional<std::string> unbase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t bits = 0;
    size_t padding = 0;
    for (size_t k = 0; k < 4; ++k) {
      const char c = text[i + k];
      if (c == '=' && i + 4 == text.size() && k >= 2) {
        ++padding;
        bits <<= 6;
        continue;
      }
      const size_t digit = kBase64Digits.find(c);
      if (digit == std::string_view::npos || padding > 0) return std::nullopt;
      bits = bits << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t k = 0; k + padding < 3; ++k) out += static_cast<char>(bits >> (16 - 8 * k));
  }
  return out;
}

}  // namespace rubato::rest
