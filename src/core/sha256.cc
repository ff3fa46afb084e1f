#include "core/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rubato {

namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compress_block(std::array<uint32_t, 8>& state, const unsigned char* block) {
  std::array<uint32_t, 64> words;
  for (size_t i = 0; i < 16; ++i) {
    words[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 |
               uint32_t{block[4 * i + 3]};
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = words[i - 15], b = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + words[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                           kRoundConstants[i] + words[i];
    const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<uint32_t, 8> after = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += after[i];
}

#if defined(__x86_64__)
// The same by the processor's own instructions, six times as fast: what is uploaded is hashed on the loop's thread.
// They keep the state as two words of four: A, B, E, F and C, D, G, H.
[[gnu::target("sha,sse4.1")]] void compress_with_sha_ni(std::array<uint32_t, 8>& state, const unsigned char* blocks,
                                                        size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const auto load = [](const void* from) __attribute__((target("sha,sse4.1"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  };
  const __m128i cdab = _mm_shuffle_epi32(load(state.data()), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(load(state.data() + 4), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i words[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) words[i] = _mm_shuffle_epi8(load(blocks + 16 * i), big_endian);
#pragma GCC unroll 16
    for (int round = 0; round < 16; ++round) {
      const __m128i now = words[round % 4];
      const __m128i with_constants = _mm_add_epi32(now, load(&kRoundConstants[4 * round]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, with_constants);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(with_constants, 0x0e));
      if (round >= 12) continue;
      const __m128i last = words[(round + 3) % 4];
      const __m128i seven_before = _mm_alignr_epi8(last, words[(round + 2) % 4], 4);
      const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(now, words[(round + 1) % 4]), seven_before);
      words[round % 4] = _mm_sha256msg2_epu32(sum, last);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

// All whole blocks, by whatever this processor has.
void compress_blocks(std::array<uint32_t, 8>& state, const unsigned char* blocks, size_t count) {
#if defined(__x86_64__)
  static const bool has_sha_ni = [] {
    unsigned a = 7, b = 0, c = 0, d = 0;  // __builtin_cpu_supports of g++ 12 does not know "sha"
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return (b >> 29 & 1) != 0 && __builtin_cpu_supports("sse4.1");
  }();
  if (has_sha_ni) return compress_with_sha_ni(state, blocks, count);
#endif
  for (; count > 0; --count, blocks += 64) compress_block(state, blocks);
}

}  // namespace

void Sha256::compress(const unsigned char* block) { compress_blocks(state_, block, 1); }

void Sha256::update(std::string_view bytes) {
  const size_t held = size_ % block_.size();
  size_ += bytes.size();
  if (held > 0) {
    const size_t taken = std::min(bytes.size(), block_.size() - held);
    std::memcpy(block_.data() + held, bytes.data(), taken);
    bytes.remove_prefix(taken);
    if (held + taken < block_.size()) return;
    compress(block_.data());
  }
  const size_t whole = bytes.size() / block_.size();
  compress_blocks(state_, reinterpret_cast<const unsigned char*>(bytes.data()), whole);
  bytes.remove_prefix(whole * block_.size());
  if (!bytes.empty()) std::memcpy(block_.data(), bytes.data(), bytes.size());
}

std::string Sha256::hex() const {
  Sha256 last = *this;
  std::array<char, 72> tail{'\x80'};  // so that the length ends a block
  const size_t zeros = (119 - size_ % 64) % 64;
  for (size_t i = 0; i < 8; ++i) tail[1 + zeros + i] = static_cast<char>((size_ * 8) >> (56 - 8 * i));
  last.update(std::string_view(tail.data(), zeros + 9));
  std::string digits;
  digits.reserve(64);
  for (const uint32_t word : last.state_) {
    for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(word >> shift) & 15];
  }
  return digits;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

bool is_sha256_hex(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace rubato
