#include "rest/md5.h"

#include <bit>
#include <cstring>

namespace rubato::rest {
namespace {

// floor(2^32 * abs(sin(i + 1))), as the RFC gives them.
constexpr std::array<uint32_t, 64> kSines = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
constexpr std::array<int, 16> kTurns = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

}  // namespace

void Md5::compress(const unsigned char* block) {
  std::array<uint32_t, 16> words;
  for (size_t i = 0; i < 16; ++i) {
    words[i] = uint32_t{block[4 * i]} | uint32_t{block[4 * i + 1]} << 8 | uint32_t{block[4 * i + 2]} << 16 |
               uint32_t{block[4 * i + 3]} << 24;
  }
  auto [a, b, c, d] = state_;
#pragma GCC unroll 64
  for (size_t i = 0; i < 64; ++i) {
    uint32_t mixed = 0;
    size_t word = 0;
    switch (i / 16) {
      case 0: mixed = d ^ (b & (c ^ d)), word = i; break;
      case 1: mixed = c ^ (d & (b ^ c)), word = (5 * i + 1) % 16; break;
      case 2: mixed = b ^ c ^ d, word = (3 * i + 5) % 16; break;
      default: mixed = c ^ (b | ~d), word = 7 * i % 16; break;
    }
    const uint32_t sum = a + mixed + kSines[i] + words[word];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kTurns[i / 16 * 4 + i % 4]);
  }
  state_[0] += a;
  state_[1] += b;
  state_[2] += c;
  state_[3] += d;
}

void Md5::update(std::string_view bytes) {
  const size_t held = size_ % block_.size();
  size_ += bytes.size();
  if (held > 0) {
    const size_t taken = std::min(bytes.size(), block_.size() - held);
    std::memcpy(block_.data() + held, bytes.data(), taken);
    bytes.remove_prefix(taken);
    if (held + taken < block_.size()) return;
    compress(block_.data());
  }
  for (; bytes.size() >= block_.size(); bytes.remove_prefix(block_.size())) {
    compress(reinterpret_cast<const unsigned char*>(bytes.data()));
  }
  if (!bytes.empty()) std::memcpy(block_.data(), bytes.data(), bytes.size());
}

std::string Md5::digest() const {
  Md5 last = *this;
  std::string tail(1, '\x80');
  tail.append((119 - size_ % 64) % 64, '\0');  // so that the length ends a block
  for (int shift = 0; shift < 64; shift += 8) tail += static_cast<char>((size_ * 8) >> shift);
  last.update(tail);
  std::string out;
  for (const uint32_t word : last.state_) {
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(word >> shift);
  }
  return out;
}

std::string Md5::hex() const { return hex_of(digest()); }

std::string hex_of(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

}  // namespace rubato::rest
