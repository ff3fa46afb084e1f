#include "rest/retry.h"

#include <algorithm>

namespace rubato::rest {

Duration backoff(const CallRules& rules, int attempt, Duration retry_after, Random& random) {
  Duration most = rules.backoff_first;
  for (int i = 1; i < attempt && most < rules.backoff_max; ++i) most *= 2;
  most = std::min(most, rules.backoff_max);
  const Duration drawn(static_cast<Duration::rep>(static_cast<double>(most.count()) * random.unit()));
  return std::max(drawn, std::min(retry_after, rules.backoff_max));
}

bool RetryBucket::take(int cost) {
  if (tokens_ < cost) return false;
  tokens_ -= cost;
  return true;
}

void RetryBucket::give_back(int tokens) { tokens_ = std::min(kCapacity, tokens_ + tokens); }

Instant Pace::next(Instant now) {
  const Instant at = std::max(now, free_at_);
  free_at_ = at + gap_;
  return at;
}

void Pace::throttled(Instant now) {
  gap_ = std::clamp(gap_ * 2, kGapFirst, kGapMax);
  free_at_ = std::max(free_at_, now + gap_);
}

void Pace::succeeded() {
  gap_ -= gap_ / 10;
  if (gap_ < 1ms) gap_ = Duration{};
}

}  // namespace rubato::rest
