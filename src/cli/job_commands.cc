#include "cli/job_commands.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/cluster_documents.h"
#include "client/logs.h"
#include "client/session.h"
#include "terminal/document.h"
#include "terminal/render_jobs.h"
#include "terminal/times.h"
#include "terminal/values.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

std::string job_path(const std::string& reference) { return "jobs/" + url_part(reference); }

std::string named(const api::Job& job) { return fmt::format("{} ({})", job.name, job.id); }

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

// Ranks count from 0: a job of at most four workers never has a rank 4.
void check_rank(const LogQuery& query, const api::Job& job) {
  const int64_t most = job.workers_max;
  if (!query.rank || most == 0 || *query.rank < most) return;
  throw Error(ErrorCode::kNotFound, fmt::format("{} has no rank {}", named(job), *query.rank), "",
              most == 1 ? "its only rank is 0" : fmt::format("its ranks are 0 to {}", most - 1));
}

// An empty answer is told from a lost one.
std::string nothing_printed(const LogQuery& query, const api::Job& job) {
  const std::string who = query.rank ? fmt::format("rank {} of {}", *query.rank, named(job)) : named(job);
  const bool filtered = query.since || (query.tail && *query.tail == 0);
  return fmt::format("note: {} has printed nothing{}{}\n", who, has_ended(job) ? "" : " yet",
                     filtered ? " that these flags let through" : "");
}

bool is_node(const Session& session, const std::string& name) {
  if (session.past) return false;
  const auto reply = read_document<api::Nodes>(get(*session.api, "nodes"));
  return std::ranges::any_of(reply.nodes, [&](const api::Node& one) { return one.id == name; });
}

api::Job job_with_log(const Session& session, const std::string& reference) {
  try {
    return read_document<api::Job>(get(*session.api, job_path(reference)));
  } catch (const Error& error) {
    if (error.code != ErrorCode::kNotFound || !is_node(session, reference)) throw;
  }
  throw Error(ErrorCode::kNotFound, fmt::format("'{}' is a node, not a job", reference), "",
              fmt::format("the log of its set-up: rubato logs --node {}", reference));
}

int node_log(const ParsedCommand& parsed, const Shell& shell) {
  const Session session = open_reading_session(parsed, shell);
  const auto print = [&](std::string_view piece) { shell.out(piece); };
  session.api->stream("nodes/" + url_part(parsed.value("node")) + "/log", print);
  return 0;
}

}  // namespace

int jobs_command(const ParsedCommand& parsed, const Shell& shell) {
  const Session session = open_reading_session(parsed, shell);
  // Of a cluster that is down, nothing else is left.
  const json reply = get(*session.api, parsed.has("all") || session.past ? "jobs?all=1" : "jobs");
  if (parsed.has("json")) {
    shell.out(json_text(reply));
    return 0;
  }
  const std::vector<api::JobSummary> jobs = read_document<api::Jobs>(reply).jobs;
  (jobs.empty() ? shell.err : shell.out)(jobs_text(jobs, style_of(shell)));
  return 0;
}

int job_show_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string reference = require_word(parsed, 0, "the job", "rubato job show ID");
  const Session session = open_reading_session(parsed, shell);
  const json job = get(*session.api, job_path(reference));
  shell.out(parsed.has("json") ? json_text(job) : job_text(read_document<api::JobDetail>(job), style_of(shell)));
  return 0;
}

int logs_command(const ParsedCommand& parsed, const Shell& shell) {
  if (parsed.has("node")) return node_log(parsed, shell);
  const std::string reference = require_word(parsed, 0, "the job", "rubato logs ID [-f]");
  LogQuery query = log_query(parsed, shell);
  const Session session = open_reading_session(parsed, shell);
  const api::Job job = job_with_log(session, reference);
  // The name of a job may mean another one later.
  query.job = job.id;
  check_rank(query, job);
  if (query.follow) return follow_job(session, shell, query);
  bool any = false;
  Shell watched = shell;
  watched.out = [&](std::string_view text) {
    any = true;
    shell.out(text);
  };
  print_logs(*session.api, watched, query);
  if (!any) shell.err(nothing_printed(query, job));
  return 0;
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
    const auto job = read_document<api::Job>(stopped.back());
    shell.err(fmt::format("{} {}\n", named(job), has_ended(job) ? "has ended" : "is stopping"));
  }
  if (parsed.has("wait")) {
    session.api->hold_interrupts();
    for (json& job : stopped) {
      const auto ended = wait_for_end(*session.api, raw_in(job, "id"));
      if (!ended) return kInterruptedExit;
      job = *ended;
      shell.err(end_text(read_document<api::Job>(job), {}));
    }
  }
  if (parsed.has("json")) shell.out(json_text(json{{"jobs", stopped}}));
  return code;
}

int rerun_command(const ParsedCommand& parsed, const Shell& shell) {
  const std::string reference = require_word(parsed, 0, "the job", "rubato rerun ID");
  const Session session = open_session(parsed, shell);
  const json reply = post(*session.api, job_path(reference) + "/rerun");
  const auto job = read_document<api::Job>(reply);
  shell.out(parsed.has("json") ? json_text(reply) : job.id + "\n");
  shell.err(fmt::format("submitted {} again\n", named(job)) + next_commands(job.id, session.cluster_flag));
  return 0;
}

}  // namespace rubato::cli
