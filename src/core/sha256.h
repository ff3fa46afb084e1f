// Sha256: FIPS 180-4, for names of contents. For keys and certificates os/ has OpenSSL, which pure layers may not
// include.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rubato {

class Sha256 {
 public:
  void update(std::string_view bytes);
  // Of all bytes so far, 64 lowercase digits; more bytes may follow.
  std::string hex() const;

 private:
  void compress(const unsigned char* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};
  uint64_t size_ = 0;
};

std::string sha256_hex(std::string_view bytes);

// Whether the text has the form of a hash: 64 lowercase hexadecimal digits. For what becomes part of a path.
bool is_sha256_hex(std::string_view text);

}  // namespace rubato
