// Caller: one call to a cloud's API, with its retries, on World.
//
// Each try is prepared anew (signatures carry the time), sent over Network::call, and judged. What may help is done
// once for the kind of answer it got: wait with jitter, slow down, correct the clock's error by the answer's Date,
// fetch new credentials. One Caller for each service and account: its bucket and its pace are shared by its calls.
#pragma once

#include <optional>
#include <string>

#include "rest/retry.h"
#include "world/world.h"

namespace rubato::rest {

enum class Verdict {
  kDone,       // success, or a refusal that no further try will change
  kRetry,      // the server failed; trying again may help
  kThrottled,  // we ask too much
  kSkewed,     // our clock is wrong
  kExpired,    // our credentials are no longer good
};

// One call: how it is made and how its answers are read. Lives as long as Caller::call runs.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // The request of one try, signed as of `now`, the cloud's time as far as it is known.
  virtual Task<HttpRequest> prepare(WallTime now) = 0;
  virtual Verdict judge(const HttpResponse& response) = 0;
  virtual void forget_credentials() {}
};

struct Target {
  Endpoint endpoint;
  TlsFiles tls;
  std::optional<HttpProxy> proxy;
};

// The value of an answer's header, by its lower-case name; empty when it is absent.
std::string header_of(const HttpResponse& response, const std::string& name);

class Caller {
 public:
  Caller(World& world, const CallRules& rules) : world_(world), rules_(rules) {}

  // The last answer, whatever its status. Throws kUnavailable when no try got any.
  // `timeout` replaces the rules' for one try.
  Task<HttpResponse> call(Target target, Exchange& exchange, std::optional<Duration> timeout = std::nullopt);

  // How far the cloud's clock is ahead of ours, as learned from its answers.
  Duration clock_offset() const { return clock_offset_; }
  WallTime cloud_now() const;
  const RetryBucket& bucket() const { return bucket_; }
  const Pace& pace() const { return pace_; }
  World& world() { return world_; }

 private:
  struct Try {
    std::optional<HttpResponse> response;
    std::optional<Error> failure;  // of the network
    Verdict verdict = Verdict::kRetry;
  };
  Task<Try> attempt(Target target, Exchange& exchange, Duration timeout);
  void correct_clock(const HttpResponse& response);

  World& world_;
  const CallRules rules_;
  RetryBucket bucket_;
  Pace pace_;
  Duration clock_offset_{};
};

}  // namespace rubato::rest
