// CRC-32C (Castagnoli, RFC 3720): the checksum that Cloud Storage keeps of every object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rubato::rest {

class Crc32c {
 public:
  void update(std::string_view bytes);
  uint32_t value() const { return ~state_; }
  std::string base64() const;  // of its four bytes, the highest first: as Google writes it

 private:
  uint32_t state_ = 0xffffffff;
};

}  // namespace rubato::rest
