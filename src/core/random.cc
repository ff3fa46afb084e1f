#include "core/random.h"

#include <bit>

#include "core/error.h"

namespace rubato {

Random::Random(uint64_t seed) {
  // splitmix64, as the authors of xoshiro advise for seeding.
  for (uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15ULL;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    word = z ^ (z >> 31);
  }
}

uint64_t Random::next() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

uint64_t Random::below(uint64_t bound) {
  CHECK(bound > 0);
  return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
}

double Random::unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

std::string Random::hex(size_t digits) {
  std::string out;
  while (out.size() < digits) out += "0123456789abcdef"[below(16)];
  return out;
}

}  // namespace rubato
