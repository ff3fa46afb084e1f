#include "client/logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/line_buffer.h"
#include "core/text.h"
#include "core/timestamp.h"
#include "terminal/document.h"
#include "terminal/log_printer.h"
#include "terminal/render_jobs.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr Duration kPollFirst = 100ms;
constexpr Duration kPollMost = 1s;
constexpr Duration kOutputWords = 500ms;

// Lines of nodes whose clocks differ, or that had no head for a while, come in another order than their times.
constexpr Duration kClocksDiffer = 60s;

// What was printed, so that a stream that begins again goes on there. Each agent numbers its lines of a job. Entries of
// a head that does not tell those numbers have times, but several may have the same.
class LogPosition {
 public:
  explicit LogPosition(bool only_tail) : only_tail_(only_tail) {}

  // Whether the entry is new. `line` is the entry as it came.
  bool take(const json& entry, std::string_view line) {
    const std::string agent = raw_in(entry, "agent");
    const int64_t sequence = int_in(entry, "sequence");
    if (agent.empty() || sequence <= 0) return take_by_time(entry, line);
    const std::string time = raw_in(entry, "time");
    Mark& mark = marks_[agent];
    if (has_resumed_ && sequence <= mark.sequence) return false;
    // Of an agent that had no line in the tail.
    if (has_resumed_ && only_tail_ && mark.sequence == 0 && time < first_) return false;
    if (first_.empty() || time < first_) first_ = time;
    mark = {sequence, int_in(entry, "generation"), time};
    return true;
  }

  void resume() {
    has_resumed_ = resuming_ = true;
    repeated_ = at_time_;
  }

  // From when on something may be new; empty: from the beginning. `since`: from when on anything is wanted.
  std::string begin(const std::optional<WallTime>& since) const {
    if (marks_.empty()) return time_;
    // Agents of older generations have said all, or say the rest late.
    int64_t newest = 0;
    for (const auto& [agent, mark] : marks_) newest = std::max(newest, mark.generation);
    std::optional<WallTime> first;
    for (const auto& [agent, mark] : marks_) {
      const std::optional<WallTime> last = mark.generation == newest ? parse_time(mark.time) : std::nullopt;
      if (last && (!first || *last < *first)) first = last;
    }
    if (!first) return "";
    WallTime from = *first - std::chrono::duration_cast<WallTime::duration>(kClocksDiffer);
    if (since) from = std::max(from, *since);
    return format_time(from);
  }

 private:
  struct Mark {
    int64_t sequence = 0;
    int64_t generation = 0;
    std::string time;
  };

  bool take_by_time(const json& entry, std::string_view line) {
    const std::string time = raw_in(entry, "time");
    if (resuming_) {
      if (time < time_) return false;
      if (time == time_) {
        const auto seen = repeated_.find(std::string(line));
        if (seen != repeated_.end()) {
          if (--seen->second == 0) repeated_.erase(seen);
          return false;
        }
      }
    }
    if (time != time_) {
      time_ = time;
      at_time_.clear();
      resuming_ = false;
    }
    ++at_time_[std::string(line)];
    return true;
  }

  const bool only_tail_;
  bool has_resumed_ = false;           // until then all that comes is new
  std::map<std::string, Mark> marks_;  // the last line of each agent
  std::string first_;                  // the oldest line's time
  std::string time_;  // RFC 3339 in UTC with a fixed number of digits: the order of the text is the order of time
  std::map<std::string, int> at_time_;
  std::map<std::string, int> repeated_;
  bool resuming_ = false;
};

std::string logs_target(const LogQuery& query, const LogPosition& position) {
  std::string out = fmt::format("jobs/{}/logs?follow={}", url_part(query.job), query.follow ? 1 : 0);
  if (query.rank) out += fmt::format("&rank={}", *query.rank);
  if (const std::string begin = position.begin(query.since); !begin.empty()) {
    out += "&since=" + url_part(begin);
  } else {
    if (query.since) out += "&since=" + url_part(format_time(*query.since));
    if (query.tail) out += fmt::format("&tail={}", *query.tail);
  }
  return out;
}

}  // namespace

StreamEnd print_logs(Api& api, const Shell& shell, const LogQuery& query) {
  LogPosition position(query.tail.has_value());
  LogPrinter printer(query.look);
  Duration waited = 0s;
  while (true) {
    bool any = false;
    std::string text;  // of one piece: a long log is written in few calls
    LineBuffer lines;
    const auto take = [&](std::string_view piece) {
      lines.add(piece);
      while (const std::optional<std::string> line = lines.next_text()) {
        if (line->empty()) continue;  // keeps the connection alive
        const json entry = json::parse(*line, nullptr, false);
        if (!entry.is_object() || !position.take(entry, *line)) continue;
        any = true;
        text += query.json ? *line + "\n" : printer.take(entry);
      }
      if (!text.empty()) shell.out(std::exchange(text, {}));
    };
    try {
      const StreamEnd end = api.stream(logs_target(query, position), take);
      if (const std::string rest = printer.flush(); !rest.empty()) shell.out(rest);
      return end;
    } catch (const Error& error) {
      if (any) waited = 0s;
      if (error.code != ErrorCode::kUnavailable || !query.follow || waited >= kHeadPatience) throw;
      if (waited == 0s) shell.err(fmt::format("note: {}; waiting for it\n", error.message));
    }
    waited += kPollMost;
    if (!api.pause(kPollMost)) return StreamEnd::kInterrupted;
    position.resume();
  }
}

int follow_job(const Session& session, const Shell& shell, const LogQuery& query) {
  session.api->hold_interrupts();
  StreamEnd end = StreamEnd::kEnded;
  if (query.follow) end = print_logs(*session.api, shell, query);
  std::optional<json> job;
  if (end == StreamEnd::kEnded) job = wait_for_end(*session.api, query.job);
  if (job && !session.past) job = wait_for_outputs(*session.api, shell, std::move(*job));
  if (!job) {
    shell.err("\ndetached; the job goes on\n" + next_commands(query.job, session.cluster_flag));
    return kInterruptedExit;
  }
  const auto ended = read_document<api::Job>(*job);
  shell.err(missing_outputs_text(ended) + end_text(ended, {}));
  return ended.phase == "succeeded" ? 0 : 1;
}

std::optional<json> wait_for_end(Api& api, const std::string& job) {
  Duration between = kPollFirst;
  while (true) {
    ApiRequest request;
    request.target = "jobs/" + url_part(job);
    request.patience = kHeadPatience;
    json detail = api.call(request);
    if (has_ended(read_document<api::Job>(detail))) return detail;
    if (!api.pause(between)) return std::nullopt;
    between = std::min(between * 2, kPollMost);
  }
}

std::optional<json> wait_for_outputs(Api& api, const Shell& shell, json job) {
  Duration between = kPollFirst;
  std::vector<std::string> told;
  for (auto read = read_document<api::Job>(job); has_ended(read); read = read_document<api::Job>(job)) {
    std::vector<std::string> held = outputs_in(read, "held");
    if (held.empty()) break;
    // Most of the time it is a moment, and not worth a word.
    if (between > kOutputWords && held != told) {
      shell.err(fmt::format("waiting for the output of {}: it is on its way from there\n", join(held, ", ")));
      told = std::move(held);
    }
    if (!api.pause(between)) return std::nullopt;
    between = std::min(between * 2, kPollMost);
    ApiRequest request;
    request.target = "jobs/" + url_part(read.id);
    request.patience = kHeadPatience;
    job = api.call(request);
  }
  return job;
}

}  // namespace rubato::cli
