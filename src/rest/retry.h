// When a call to a cloud is tried again, and after how long. Pure; the rules are those of AWS's SDKs ("standard mode"),
// which Google's guidelines share: full jitter, and a token bucket that stops retries when most calls fail.
#pragma once

#include "core/random.h"
#include "core/time.h"

namespace rubato::rest {

struct CallRules {
  int attempts_max = 5;
  Duration attempt_timeout = 60s;  // of one try, from connecting to the last byte
  Duration backoff_first = 500ms;  // the most that is waited after the first try; doubles
  Duration backoff_max = 20s;
};

// Between nothing and backoff_first * 2^(attempt - 1), at most backoff_max; at least what the server asked for.
Duration backoff(const CallRules& rules, int attempt, Duration retry_after, Random& random);

// Tokens for retries: full at first, an ordinary retry costs 5, one after a time-out 10; a success gives back what its
// own retries cost, or 1. Empty: calls fail at their first error until some succeed.
class RetryBucket {
 public:
  static constexpr int kCapacity = 500;
  static constexpr int kRetryCost = 5;
  static constexpr int kTimeoutCost = 10;

  bool take(int cost);
  void give_back(int tokens);
  int tokens() const { return tokens_; }

 private:
  int tokens_ = kCapacity;
};

// How fast we may ask: as fast as we like until the cloud says that it is too much; then evenly spaced, each such
// answer doubling the distance and each success shortening it by a tenth.
class Pace {
 public:
  static constexpr Duration kGapFirst = 50ms;
  static constexpr Duration kGapMax = 5s;

  // When the next request may go; it counts as sent then.
  Instant next(Instant now);
  void throttled(Instant now);
  void succeeded();
  Duration gap() const { return gap_; }

 private:
  Duration gap_{};
  Instant free_at_{};
};

}  // namespace rubato::rest
