// RateLimit: how many requests a second a client makes, whatever it has to do. Pure.
//
// A full bucket lets `burst` requests go at once; after that they are spaced by 1 / per_s. The server's own limits stay
// the last word (429), but a fault of ours must not take them from everybody else.
#pragma once

#include "core/time.h"

namespace rubato::kubernetes {

struct RateTerms {
  int per_s = 50;
  int burst = 100;
};

class RateLimit {
 public:
  explicit RateLimit(RateTerms terms) : gap_(Duration(std::chrono::seconds(1)) / terms.per_s), burst_(terms.burst) {}

  // When the next request may go; it counts as sent then.
  Instant next(Instant now) {
    // The bucket is full when its line of spaced requests lies a whole burst behind.
    line_ = std::max(line_, now - gap_ * (burst_ - 1));
    const Instant turn = std::max(line_, now);
    line_ += gap_;
    return turn;
  }

 private:
  const Duration gap_;
  const int burst_;
  Instant line_{};
};

}  // namespace rubato::kubernetes
