#include "rest/crc32c.h"

#include <array>

#include "rest/base64.h"

namespace rubato::rest {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

// Eight tables: eight bytes at a time.
constexpr std::array<std::array<uint32_t, 256>, 8> kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    tables[0][i] = value;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t k = 1; k < 8; ++k) tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
  }
  return tables;
}();

uint32_t byte_at(const char* at, size_t index) { return static_cast<unsigned char>(at[index]); }

}  // namespace

void Crc32c::update(std::string_view bytes) {
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint32_t crc = state_;
  for (; left >= 8; left -= 8, at += 8) {
    crc ^= byte_at(at, 0) | byte_at(at, 1) << 8 | byte_at(at, 2) << 16 | byte_at(at, 3) << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][(crc >> 8) & 0xff] ^ kTables[5][(crc >> 16) & 0xff] ^
          kTables[4][crc >> 24] ^ kTables[3][byte_at(at, 4)] ^ kTables[2][byte_at(at, 5)] ^
          kTables[1][byte_at(at, 6)] ^ kTables[0][byte_at(at, 7)];
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ byte_at(at, 0)) & 0xff];
  state_ = crc;
}

std::string Crc32c::base64() const {
  const uint32_t crc = value();
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(crc >> shift & 0xff);
  return rest::base64(bytes);
}

}  // namespace rubato::rest
