// RunningHash: 64-bit FNV-1a over a sequence of values. The same sequence gives the same hash on every machine; it
// proves "same seed, same run" in simulation. Not for secrets, nor against people who look for collisions.
#pragma once

#include <cstdint>
#include <string_view>

namespace rubato {

class RunningHash {
 public:
  // The length goes in too, so that ("ab", "c") and ("a", "bc") differ.
  constexpr void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
  }

  // Byte by byte from the lowest, whatever the machine's byte order.
  constexpr void add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<unsigned char>(number >> shift));
  }

  constexpr uint64_t value() const { return state_; }

 private:
  constexpr void add_byte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3ULL; }

  uint64_t state_ = 0xcbf29ce484222325ULL;
};

}  // namespace rubato
