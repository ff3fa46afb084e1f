#include "agent/file_timer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/scope.h"

namespace rubato::agent {

namespace {

constexpr size_t kTimersMax = 100'000;
// The wall clock may be set while we wait: ask it again this often.
constexpr Duration kLookAgain = 100ms;

double seconds(WallTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

}  // namespace

void TimerTable::take(std::string_view line) {
  const nlohmann::json request = nlohmann::json::parse(line, nullptr, false);
  if (!request.is_object()) return;
  const auto number = [&](const char* key) { return request.contains(key) && request[key].is_number(); };
  if (!number("pid") || !number("expiration_time") || !number("signal")) return;
  if (!request.contains("scope_id") || !request["scope_id"].is_string()) return;
  const auto key = std::pair(request["pid"].get<int>(), request["scope_id"].get<std::string>());
  const auto expires = request["expiration_time"].get<double>();
  if (expires < 0) {
    timers_.erase(key);
  } else if (timers_.contains(key) || timers_.size() < kTimersMax) {
    timers_[key] = {expires, request["signal"].get<int>()};
  }
}

std::vector<TimerTable::Expired> TimerTable::expire(WallTime now) {
  struct First {
    double expires = 0;
    Expired expired;
  };
  std::map<int, First> found;
  for (const auto& [key, timer] : timers_) {
    if (timer.expires > seconds(now)) continue;
    First& first = found[key.first];
    // The earliest one that names a signal says which.
    const bool better = first.expired.signal <= 0 ? timer.signal > 0 || first.expired.pid == 0
                                                  : timer.signal > 0 && timer.expires < first.expires;
    if (better) first = {timer.expires, {key.first, std::max(timer.signal, 0), key.second}};
  }
  std::erase_if(timers_, [&](const auto& entry) { return found.contains(entry.first.first); });
  std::vector<Expired> all;
  for (const auto& [pid, first] : found) all.push_back(first.expired);
  return all;
}

std::optional<WallTime> TimerTable::next() const {
  if (timers_.empty()) return std::nullopt;
  const auto first = std::ranges::min_element(timers_, {}, [](const auto& entry) { return entry.second.expires; });
  const auto since = std::chrono::duration<double>(std::min(first->second.expires, 1e11));
  return WallTime(std::chrono::duration_cast<std::chrono::microseconds>(since));
}

FileTimer::FileTimer(World& world, TimerHost& host, std::string path, OnExpired on_expired)
    : world_(world),
      host_(host),
      path_(std::move(path)),
      on_expired_(std::move(on_expired)),
      pipe_(host.make_pipe(path_)) {}

Task<void> FileTimer::run() {
  while (true) {
    std::optional<std::string> line;
    if (const std::optional<WallTime> due = table_.next()) {
      const Duration left = std::clamp<Duration>(*due - world_.clock.wall(), 0s, kLookAgain);
      const Instant deadline = world_.clock.now() + left;
      auto in_time = co_await with_deadline(world_.clock.loop(), deadline, pipe_->lines().pop());
      if (in_time) line = std::move(*in_time);
    } else {
      line = co_await pipe_->lines().pop();
    }
    if (line) table_.take(*line);
    for (const TimerTable::Expired& expired : table_.expire(world_.clock.wall())) {
      on_expired_(expired);
      if (expired.signal > 0) host_.signal(expired.pid, expired.signal);
    }
  }
}

}  // namespace rubato::agent
