// A seeded random source (xoshiro256**): the same seed gives the same sequence on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace rubato {

class Random {
 public:
  explicit Random(uint64_t seed);

  uint64_t next();
  uint64_t below(uint64_t bound);  // uniform in [0, bound); bound > 0
  double unit();                   // uniform in [0, 1)
  bool chance(double p) { return unit() < p; }
  Random fork() { return Random(next()); }  // an independent stream
  std::string hex(size_t digits);

 private:
  std::array<uint64_t, 4> state_;
};

}  // namespace rubato
