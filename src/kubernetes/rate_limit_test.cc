#include "kubernetes/rate_limit.h"

#include <gtest/gtest.h>

namespace rubato::kubernetes {
namespace {

TEST(RateLimit, ABurstGoesAtOnceAndTheRestIsSpaced) {
  RateTerms terms;
  terms.per_s = 10;
  terms.burst = 3;
  RateLimit limit(terms);
  const Instant start = Instant{} + 1h;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.next(start), start);
  EXPECT_EQ(limit.next(start), start + 100ms);
  EXPECT_EQ(limit.next(start), start + 200ms);
  // A long rest fills it again, no further than to its burst.
  const Instant later = start + 1h;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.next(later), later);
  EXPECT_EQ(limit.next(later), later + 100ms);
}

}  // namespace
}  // namespace rubato::kubernetes
