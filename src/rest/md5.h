// Md5 (RFC 1321): not for secrets; S3 names contents by it (the ETag of what was put in one request, and of each part).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace rubato::rest {

class Md5 {
 public:
  void update(std::string_view bytes);
  // Of all bytes so far, 16 bytes; more may follow.
  std::string digest() const;
  std::string hex() const;

 private:
  void compress(const unsigned char* block);

  std::array<uint32_t, 4> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<unsigned char, 64> block_{};
  uint64_t size_ = 0;
};

std::string hex_of(std::string_view bytes);

}  // namespace rubato::rest
