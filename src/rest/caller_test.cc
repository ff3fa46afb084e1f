#include "rest/caller.h"

#include <gtest/gtest.h>

#include "rest/rest_testing.h"
#include "rest/http_date.h"

namespace rubato::rest {
namespace {

// Judges by status: 5xx again, 429 throttled, 403 skewed, 401 expired.
class PlainExchange final : public Exchange {
 public:
  Task<HttpRequest> prepare(WallTime now) override {
    times.push_back(now);
    HttpRequest request;
    request.target = "/";
    co_return request;
  }
  Verdict judge(const HttpResponse& response) override {
    if (response.status >= 500) return Verdict::kRetry;
    if (response.status == 429) return Verdict::kThrottled;
    if (response.status == 403) return Verdict::kSkewed;
    if (response.status == 401) return Verdict::kExpired;
    return Verdict::kDone;
  }
  void forget_credentials() override { ++forgotten; }

  std::vector<WallTime> times;
  int forgotten = 0;
};

struct Played {
  HttpResponse response;
  std::vector<SentRequest> sent;
  std::vector<WallTime> times;
  int forgotten = 0;
  Duration offset{};
};

// The answers one after the other; 0 is a connection that fails, the last one stays.
Played play(std::vector<int> statuses, std::map<std::string, std::string> headers = {}) {
  ScriptedWorld scripted;
  Played out;
  size_t next = 0;
  scripted.network.answer = [&](const SentRequest&) {
    const int status = statuses[std::min(next++, statuses.size() - 1)];
    if (status == 0) throw Error(ErrorCode::kUnavailable, "connection refused");
    return http_answer(status, "", headers);
  };
  scripted.run([&](World& world) -> Task<void> {
    return [](World& in, Played& result) -> Task<void> {
      Caller caller(in, CallRules());
      PlainExchange exchange;
      Target target;
      target.endpoint.host = "cloud";
      std::exception_ptr failed;
      try {
        result.response = co_await caller.call(target, exchange);
      } catch (const Error&) {
        failed = std::current_exception();
      }
      result.times = exchange.times;
      result.forgotten = exchange.forgotten;
      result.offset = caller.clock_offset();
      if (failed) std::rethrow_exception(failed);
    }(world, out);
  });
  out.sent = scripted.network.sent;
  return out;
}

TEST(Caller, TriesAgainAfterFailuresOfServerAndNetwork) {
  const Played played = play({500, 0, 503, 200});
  EXPECT_EQ(played.response.status, 200);
  EXPECT_EQ(played.sent.size(), 4u);
  EXPECT_LT(played.times.front(), played.times.back()) << "it waited in between";
}

TEST(Caller, EndsAfterTheLastAttempt) {
  EXPECT_EQ(play({500}).sent.size(), static_cast<size_t>(CallRules().attempts_max));
  EXPECT_EQ(play({500}).response.status, 500) << "the last answer is what the caller gets";
  try {
    play({0});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    EXPECT_NE(error.message.find("tried 5 times"), std::string::npos) << error.message;
  }
}

TEST(Caller, DoesNotRepeatARefusal) { EXPECT_EQ(play({404}).sent.size(), 1u); }

TEST(Caller, CorrectsItsClockByTheServersOnce) {
  const Played played = play({403, 200}, {{"date", "Sun, 06 Nov 1994 08:49:37 GMT"}});
  EXPECT_EQ(played.response.status, 200);
  ASSERT_EQ(played.times.size(), 2u);
  EXPECT_LT(std::chrono::abs(played.times[1] - *parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT")), 2s);
  EXPECT_EQ(play({403}, {{"date", "Sun, 06 Nov 1994 08:49:37 GMT"}}).sent.size(), 2u);
}

TEST(Caller, FetchesNewCredentialsOnce) {
  EXPECT_EQ(play({401, 200}).forgotten, 1);
  EXPECT_EQ(play({401}).sent.size(), 2u);
}

TEST(Caller, WaitsAsLongAsTheServerAsks) {
  const Played played = play({503, 200}, {{"retry-after", "7"}});
  ASSERT_EQ(played.times.size(), 2u);
  EXPECT_GT(played.times[1] - played.times[0], 6900ms) << "by a clock that is a little slow";
}

TEST(Backoff, IsDrawnBelowALimitThatDoubles) {
  Random random(1);
  const CallRules rules;
  Duration longest{};
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LE(backoff(rules, 1, Duration{}, random), rules.backoff_first);
    EXPECT_LE(backoff(rules, 3, Duration{}, random), 4 * rules.backoff_first);
    longest = std::max(longest, backoff(rules, 30, Duration{}, random));
  }
  EXPECT_LE(longest, rules.backoff_max);
  EXPECT_GT(longest, rules.backoff_max / 2) << "jitter is over the whole range";
}

TEST(RetryBucket, StopsRetriesWhenAllFails) {
  RetryBucket bucket;
  int taken = 0;
  while (bucket.take(RetryBucket::kRetryCost)) ++taken;
  EXPECT_EQ(taken, 100);
  bucket.give_back(1000);
  EXPECT_EQ(bucket.tokens(), RetryBucket::kCapacity);
}

TEST(Pace, SlowsDownWhenThrottledAndRecovers) {
  Pace pace;
  const Instant now{};
  EXPECT_EQ(pace.next(now), now);
  EXPECT_EQ(pace.next(now), now) << "no limit until one is felt";
  pace.throttled(now);
  pace.throttled(now);
  const Instant first = pace.next(now);
  EXPECT_EQ(pace.next(now) - first, 100ms);
  for (int i = 0; i < 100; ++i) pace.succeeded();
  EXPECT_EQ(pace.gap(), Duration{});
}

}  // namespace
}  // namespace rubato::rest
