// HttpRates: how many requests each peer may make, a token bucket for each. Pure: the time is given.
//
// Bounded in memory: at most kPeersMax buckets. A full bucket says no more than a missing one and is dropped first;
// when all are in use, further peers share one bucket, so that inventing addresses gains nothing.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "core/time.h"

namespace rubato::os {

class HttpRates {
 public:
  static constexpr size_t kPeersMax = 4096;

  HttpRates(double per_second, double burst) : per_second_(per_second), burst_(burst) {}

  // False: too many.
  bool take(const std::string& peer, Instant now) {
    auto found = buckets_.find(peer);
    if (found == buckets_.end()) {
      if (buckets_.size() >= kPeersMax) drop_full(now);
      found = buckets_.emplace(buckets_.size() < kPeersMax ? peer : kOthers, Bucket{burst_, now}).first;
    }
    Bucket& bucket = found->second;
    bucket.tokens = level(bucket, now);
    bucket.at = now;
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  }

  size_t peers() const { return buckets_.size(); }

 private:
  struct Bucket {
    double tokens;
    Instant at;
  };
  static constexpr const char* kOthers = "others";  // no address reads so

  double level(const Bucket& bucket, Instant now) const {
    const double waited = std::chrono::duration<double>(now - bucket.at).count();
    return std::min(burst_, bucket.tokens + waited * per_second_);
  }
  // At most once for each time that a bucket takes to fill: a full walk for each request would itself be an attack.
  void drop_full(Instant now) {
    if (now < next_drop_) return;
    next_drop_ = now + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(1 / per_second_));
    std::erase_if(buckets_, [&](const auto& entry) { return level(entry.second, now) >= burst_; });
  }

  const double per_second_, burst_;
  std::map<std::string, Bucket> buckets_;
  Instant next_drop_{};
};

}  // namespace rubato::os
