#include "cli/status_commands.h"

#include <fmt/format.h>

#include "cli/kubernetes_command.h"
#include "cli/scale_commands.h"
#include "client/lines.h"
#include "client/session.h"
#include "terminal/document.h"
#include "terminal/render_cluster.h"
#include "terminal/render_events.h"
#include "terminal/times.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

constexpr int kEventsShown = 50;

// One event to standard output; returns its offset.
int64_t print_event(const json& event, bool as_json, const Shell& shell) {
  if (as_json) {
    shell.out(event.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  } else {
    shell.out(event_line(read_document<api::Event>(event), style_of(shell)));
  }
  return int_in(event, "offset");
}

// Events after `after` as they come, across restarts of the head.
void follow_events(Api& api, int64_t after, bool as_json, const Shell& shell) {
  Duration waited = 0s;
  while (true) {
    bool any = false;
    SseReader events([&](std::string_view data) {
      const json event = json::parse(data, nullptr, false);
      if (!event.is_object()) return;
      after = std::max(after, print_event(event, as_json, shell));
      any = true;
    });
    try {
      const StreamEnd end = api.stream(fmt::format("events?after={}&follow=1", after),
                                       [&](std::string_view piece) { events.feed(piece); });
      if (end == StreamEnd::kInterrupted) return;
    } catch (const Error& error) {
      if (any) waited = 0s;
      if (error.code != ErrorCode::kUnavailable || waited >= kHeadPatience) throw;
      if (waited == 0s) shell.err(fmt::format("note: {}; waiting for it\n", error.message));
    }
    waited += 1s;
    if (!api.pause(1s)) return;
  }
}

// The time of a state of the past, for its ages.
WallTime time_of(const api::Status& status, WallTime fallback) {
  WallTime latest{};
  for (const api::Event& event : status.events) latest = std::max(latest, event.time);
  return latest == WallTime{} ? fallback : latest;
}

}  // namespace

int status_command(const ParsedCommand& parsed, const Shell& shell) {
  const Session session = open_named_session(parsed, shell);
  const json status = get(*session.api, "status");
  shell.out(parsed.has("json") ? json_text(status) : status_text(read_document<api::Status>(status), style_of(shell)));
  return 0;
}

int events_command(const ParsedCommand& parsed, const Shell& shell) {
  int limit = kEventsShown;
  if (const Given* given = parsed.find("limit")) limit = int_value(*given, 0, 100'000);
  const Session session = open_reading_session(parsed, shell);
  const json reply = get(*session.api, fmt::format("events?limit={}", limit));
  int64_t last = 0;
  for (const json& event : list_in(reply, "events")) {
    last = std::max(last, print_event(event, parsed.has("json"), shell));
  }
  if (!parsed.has("follow") || session.past) return 0;
  session.api->hold_interrupts();
  follow_events(*session.api, last, parsed.has("json"), shell);
  return kInterruptedExit;
}

json ask_why(Api& api, const std::string& subject) {
  for (const char* kind : {"jobs", "nodes"}) {
    try {
      return get(api, fmt::format("{}/{}/why", kind, url_part(subject)));
    } catch (const Error& error) {
      if (error.code != ErrorCode::kNotFound || error.cause == ErrorCause::kNoCluster) throw;
    }
  }
  throw Error(ErrorCode::kNotFound, fmt::format("no job and no node is called '{}'", subject), "",
              "see rubato jobs --all, or rubato status");
}

int why_command(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.has("last")) return why_last_command(parsed, shell);
  if (parsed.has("kubernetes")) return why_kubernetes_command(parsed, shell);
  for (const char* flag : {"namespace", "context", "kubeconfig"}) {
    if (parsed.has(flag))
      throw Error(ErrorCode::kUsage, fmt::format("--{} is for jobs on Kubernetes", flag), "", "add --kubernetes");
  }
  const std::string subject = require_word(parsed, 0, "the job or node", "rubato why JOB|NODE");
  const Session session = open_reading_session(parsed, shell);
  const json why = ask_why(*session.api, subject);
  shell.out(parsed.has("json") ? json_text(why) : why_text(read_document<api::Why>(why), style_of(shell)));
  return 0;
}

int replay_command(const ParsedCommand& parsed, const Shell& shell) {
  const Given* until = parsed.find("until");
  const Given* offset = parsed.find("offset");
  if (until != nullptr && offset != nullptr) {
    throw Error(ErrorCode::kUsage, "--until and --offset exclude each other", "", "drop one of the two");
  }
  std::string target = "replay";
  std::optional<WallTime> time;
  if (until != nullptr) {
    time = past_value(*until, shell.now());
    target += "?until=" + url_part(format_time(*time));
  }
  if (offset != nullptr) target += fmt::format("?offset={}", int_value(*offset, 0, 2'000'000'000));
  const Session session = open_reading_session(parsed, shell);
  const json reply = get(*session.api, target);
  const auto status = read_document<api::Status>(reply);
  Style look = style_of(shell);
  look.now = time.value_or(time_of(status, look.now));
  shell.out(parsed.has("json") ? json_text(reply) : status_text(status, look));
  return 0;
}

}  // namespace rubato::cli
