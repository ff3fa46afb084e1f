#include "cli/job_commands.h"

#include <fmt/format.h>

#include "cli/document.h"
#include "cli/logs.h"
#include "cli/render_jobs.h"
#include "cli/session.h"
#include "cli/times.h"
#include "cli/values.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

std::string job_path(const std::string& reference) { return "jobs/" + url_part(reference); }

std::string named(const json& job) { return fmt::format("{} ({})", text_in(job, "name"), text_in(job, "id")); }

LogQuery log_query(const ParsedCommand& parsed, const Shell& shell) {
  LogQuery query;
  query.follow = parsed.has("follow");
  query.json = parsed.has("json");
  query.look = {.prefix = !parsed.has("no-prefix"), .colour = shell.colour};
  if (const Given* given = parsed.find("rank")) query.rank = int_value(*given, 0, 1'000'000);
  if (const Given* given = parsed.find("since")) query.since = past_value(*given, shell.now());
  if (const Given* given = parsed.find("tail")) query.tail = int_value(*given, 0, 10'000'000);
  return query;
}

int node_log(const ParsedCommand& parsed, const Shell& shell) {
  const Session session = open_session(parsed, shell);
  const auto print = [&](std::string_view piece) { shell.out(piece); };
  session.api->stream("nodes/" + url_part(parsed.value("node")) + "/log", print);
  return 0;
}

}  // namespace

int jobs_command(const ParsedCommand& parsed, const Shell& shell) {
  const Session session = open_session(parsed, shell);
  const json reply = get(*session.api, parsed.has("all") ? "jobs?all=1" : "jobs");
  shell.out(parsed.has("json") ? json_text(reply) : jobs_text(list_in(reply, "jobs"), look_of(shell)));
  return 0;
}

int job_show_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string reference = require_word(parsed, 0, "the job", "rubato job show ID");
  const Session session = open_session(parsed, shell);
  const json job = get(*session.api, job_path(reference));
  shell.out(parsed.has("json") ? json_text(job) : job_text(job, look_of(shell)));
  return 0;
}

int logs_command(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.has("node")) return node_log(parsed, shell);
  const std::string reference = require_word(parsed, 0, "the job", "rubato logs ID [-f]");
  LogQuery query = log_query(parsed, shell);
  const Session session = open_session(parsed, shell);
  // The name of a job may mean another one later.
  query.job = raw_in(get(*session.api, job_path(reference)), "id");
  if (query.follow) session.api->hold_interrupts();
  if (print_logs(*session.api, shell, query) == StreamEnd::kEnded) return 0;
  shell.err("\ndetached; the job goes on\n" + next_commands(query.job, session.cluster_flag));
  return kInterruptedExit;
}

int stop_command(const ParsedCommand& parsed, const Shell& shell) {
  require_word(parsed, 0, "the job", "rubato stop ID...");
  const Session session = open_session(parsed, shell);
  json stopped = json::array();
  int code = 0;
  for (const std::string& reference : parsed.positionals) {
    try {
      stopped.push_back(post(*session.api, job_path(reference) + "/stop"));
    } catch (const Error& error) {
      shell.err(render(error));
      code = std::max(code, exit_code(error));
      continue;
    }
    const json& job = stopped.back();
    shell.err(fmt::format("{} {}\n", named(job), has_ended(job) ? "has ended" : "is stopping"));
  }
  if (parsed.has("wait")) {
    session.api->hold_interrupts();
    for (json& job : stopped) {
      const auto ended = wait_for_end(*session.api, raw_in(job, "id"));
      if (!ended) return kInterruptedExit;
      job = *ended;
      shell.err(end_text(job, {}));
    }
  }
  if (parsed.has("json")) shell.out(json_text(json{{"jobs", stopped}}));
  return code;
}

int rerun_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string reference = require_word(parsed, 0, "the job", "rubato rerun ID");
  const Session session = open_session(parsed, shell);
  const json job = post(*session.api, job_path(reference) + "/rerun");
  shell.out(parsed.has("json") ? json_text(job) : raw_in(job, "id") + "\n");
  shell.err(fmt::format("submitted {} again\n", named(job)) + next_commands(raw_in(job, "id"), session.cluster_flag));
  return 0;
}

}  // namespace rubato::cli
