#include "rest/caller.h"

#include <fmt/format.h>

#include <charconv>

#include "rest/http_date.h"

namespace rubato::rest {
namespace {

// Retry-After in seconds; its other form, a date, no cloud's API sends.
Duration retry_after_of(const HttpResponse& response) {
  int wait_s = 0;
  const std::string text = header_of(response, "retry-after");
  std::from_chars(text.data(), text.data() + text.size(), wait_s);
  return std::chrono::seconds(std::max(0, wait_s));
}

}  // namespace

std::string header_of(const HttpResponse& response, const std::string& name) {
  const auto found = response.headers.find(name);
  return found == response.headers.end() ? "" : found->second;
}

WallTime Caller::cloud_now() const {
  return world_.clock.wall() + std::chrono::duration_cast<std::chrono::microseconds>(clock_offset_);
}

void Caller::correct_clock(const HttpResponse& response) {
  const auto theirs = parse_http_date(header_of(response, "date"));
  if (theirs) clock_offset_ = *theirs - world_.clock.wall();
}

Task<Caller::Try> Caller::attempt(Target target, Exchange& exchange, Duration timeout) {
  Try out;
  HttpRequest request = co_await exchange.prepare(cloud_now());
  request.proxy = std::move(target.proxy);
  try {
    const Instant deadline = world_.clock.now() + timeout;
    out.response =
        co_await world_.network.call(std::move(target.endpoint), std::move(target.tls), std::move(request), deadline);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kUnavailable) throw;  // a bad certificate file gets no better
    out.failure = error;
  }
  if (out.response) out.verdict = exchange.judge(*out.response);
  co_return out;
}

Task<HttpResponse> Caller::call(Target target, Exchange& exchange, std::optional<Duration> timeout) {
  int paid = 0;
  bool skew_corrected = false, credentials_renewed = false;
  for (int tries = 1;; ++tries) {
    const Instant turn = pace_.next(world_.clock.now());
    co_await Sleep(world_.clock.loop(), turn);
    Task<Try> started = attempt(target, exchange, timeout.value_or(rules_.attempt_timeout));
    Try done = co_await std::move(started);
    if (done.response && done.verdict == Verdict::kDone) {
      pace_.succeeded();
      bucket_.give_back(paid > 0 ? paid : 1);
      co_return std::move(*done.response);
    }
    if (done.verdict == Verdict::kSkewed) {
      if (skew_corrected) co_return std::move(*done.response);
      skew_corrected = true;
      correct_clock(*done.response);
      continue;
    }
    if (done.verdict == Verdict::kExpired) {
      if (credentials_renewed) co_return std::move(*done.response);
      credentials_renewed = true;
      exchange.forget_credentials();
      continue;
    }
    if (done.verdict == Verdict::kThrottled) pace_.throttled(world_.clock.now());
    const int cost = done.failure ? RetryBucket::kTimeoutCost : RetryBucket::kRetryCost;
    if (tries >= rules_.attempts_max || !bucket_.take(cost)) {
      if (done.response) co_return std::move(*done.response);
      if (tries > 1) done.failure->message += fmt::format(" (tried {} times)", tries);
      throw *done.failure;
    }
    paid += cost;
    const Duration asked = done.response ? retry_after_of(*done.response) : Duration{};
    const Instant again = world_.clock.now() + backoff(rules_, tries, asked, world_.random);
    co_await Sleep(world_.clock.loop(), again);
  }
}

}  // namespace rubato::rest
