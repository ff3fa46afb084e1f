#include "core/hash.h"

#include <gtest/gtest.h>

namespace rubato {
namespace {

uint64_t hash_of(std::string_view a, std::string_view b) {
  RunningHash hash;
  hash.add(a);
  hash.add(b);
  return hash.value();
}

TEST(RunningHash, TheSameSequenceGivesTheSameHash) { EXPECT_EQ(hash_of("x", "y"), hash_of("x", "y")); }

TEST(RunningHash, OrderAndBoundariesCount) {
  EXPECT_NE(hash_of("x", "y"), hash_of("y", "x"));
  EXPECT_NE(hash_of("ab", "c"), hash_of("a", "bc"));
  EXPECT_NE(hash_of("", "a"), hash_of("a", ""));
}

TEST(RunningHash, IsTheSameOnEveryMachine) {
  static_assert(RunningHash().value() == 0xcbf29ce484222325ULL);
  RunningHash hash;
  hash.add(uint64_t{0x0102030405060708});
  // FNV-1a of the bytes 08 07 06 05 04 03 02 01.
  EXPECT_EQ(hash.value(), 0x0c6d4496e17859d5ULL);
}

}  // namespace
}  // namespace rubato
