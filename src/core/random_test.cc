#include "core/random.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace rubato {
namespace {

RC_GTEST_PROP(Random, TheSameSeedGivesTheSameSequence, (uint64_t seed)) {
  Random a(seed), b(seed);
  for (int i = 0; i < 100; ++i) RC_ASSERT(a.next() == b.next());
}

TEST(Random, IsTheSameOnEveryMachine) {
  Random random(0);
  // xoshiro256** seeded by splitmix64 from 0, as in the authors' reference code.
  EXPECT_EQ(random.next(), 0x99ec5f36cb75f2b4ULL);
  EXPECT_EQ(random.next(), 0xbf6e1f784956452aULL);
}

TEST(Random, NeighbouringSeedsDiffer) {
  std::set<uint64_t> firsts;
  for (uint64_t seed = 0; seed < 1000; ++seed) firsts.insert(Random(seed).next());
  EXPECT_EQ(firsts.size(), 1000u);
}

RC_GTEST_PROP(Random, BelowStaysBelow, (uint64_t seed)) {
  Random random(seed);
  const auto bound = *rc::gen::suchThat(rc::gen::arbitrary<uint64_t>(), [](uint64_t n) { return n > 0; });
  for (int i = 0; i < 20; ++i) RC_ASSERT(random.below(bound) < bound);
  RC_ASSERT(random.below(1) == 0u);
}

TEST(Random, BelowReachesEveryValueAboutEquallyOften) {
  Random random(7);
  int counts[10] = {};
  for (int i = 0; i < 10'000; ++i) ++counts[random.below(10)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

RC_GTEST_PROP(Random, UnitIsInTheHalfOpenInterval, (uint64_t seed)) {
  Random random(seed);
  for (int i = 0; i < 100; ++i) {
    const double unit = random.unit();
    RC_ASSERT(unit >= 0.0 && unit < 1.0);
  }
}

TEST(Random, ChanceOfZeroAndOneAreCertain) {
  Random random(1);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(random.chance(0));
    EXPECT_TRUE(random.chance(1));
  }
}

TEST(Random, AForkIsAStreamOfItsOwn) {
  Random random(1);
  Random fork = random.fork();
  const uint64_t from_fork = fork.next();
  Random again(1);
  again.fork();
  EXPECT_NE(from_fork, again.next());
}

TEST(Random, HexHasTheAskedLength) {
  Random random(1);
  const std::string text = random.hex(33);
  EXPECT_EQ(text.size(), 33u);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(random.hex(0), "");
}

TEST(RandomDeathTest, BelowZeroIsABug) { EXPECT_DEATH(Random(1).below(0), "CHECK"); }

}  // namespace
}  // namespace rubato
