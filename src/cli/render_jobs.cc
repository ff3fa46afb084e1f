#include "cli/render_jobs.h"

#include <fmt/format.h>

#include "cli/document.h"
#include "cli/render_events.h"
#include "core/error.h"
#include "core/text.h"
#include "model/resources.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

std::string since(const std::optional<WallTime>& from, WallTime to) { return from ? age_text(to - *from) : "-"; }

std::string ran_for(const json& job, const Look& look) {
  return since(time_in(job, "started"), time_in(job, "ended").value_or(look.now));
}

std::string per_worker(const json& spec) {
  try {
    return describe(resources_from_json(object_in(spec, "per_worker")));
  } catch (const Error&) {
    return "?";  // from a newer head, perhaps
  }
}

// "queued #2": the second in the queue.
std::string phase_text(const json& job) {
  const int64_t place = int_in(job, "queue_place");
  return text_in(job, "phase") + (place > 0 ? fmt::format(" #{}", place) : "");
}

std::string ranks(const json& member) {
  const int64_t first = int_in(member, "rank_first");
  const int64_t count = int_in(member, "workers");
  if (count <= 0) return "-";
  return count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
}

std::string fact(std::string_view name, const std::string& value, const Look& look) {
  if (value.empty()) return "";
  return fmt::format("  {}  {}\n", paint(pad(name, 9), Hue::kDim, look.colour), value);
}

std::string program_words(const json& spec) {
  std::vector<std::string> words;
  const std::string kind = raw_in(spec, "kind");
  if (kind == "script" || kind == "run-path") words = {"python"};
  if (kind == "module") words = {"python", "-m"};
  words.push_back(clean(raw_in(spec, "program")));
  for (const json& arg : list_in(spec, "args")) {
    if (arg.is_string()) words.push_back(clean(arg.get<std::string>()));
  }
  return shell_join(words);
}

// "failed: rank 1 died" after the phase "failed" says it twice.
std::string without_phase(std::string why, const std::string& phase) {
  if (why == phase) return "";
  if (const auto rest = strip_prefix(why, phase + ": ")) return std::string(*rest);
  return why;
}

std::string facts(const json& job, const Look& look) {
  const json& spec = object_in(job, "spec");
  const auto ago = [&](const char* key) {
    const auto time = time_in(job, key);
    return time ? age_text(look.now - *time) + " ago" : std::string();
  };
  std::string out;
  out += fact("why", text_in(job, "reason"), look);
  out += fact("queue", queue_text(object_in(job, "queue")), look);
  out += fact("program", program_words(spec), look);
  out += fact("workers", fmt::format("{}, each {}", workers_text(job), per_worker(spec)), look);
  const std::string owner = text_in(job, "owner");
  out += fact("submitted", ago("submitted") + (owner.empty() ? "" : " by " + owner), look);
  out += fact("started", ago("started"), look);
  out += fact("ended", ago("ended"), look);
  out += fact("ran", job.contains("started") ? ran_for(job, look) : "", look);
  out += fact("restarts",
              fmt::format("{} of {}, generation {}", int_in(job, "restarts_used"), int_in(job, "max_restarts"),
                          int_in(job, "generation")),
              look);
  if (int_in(job, "priority") != 0) out += fact("priority", fmt::format("{}", int_in(job, "priority")), look);
  out += fact("package", text_in(spec, "package").substr(0, 12), look);
  out += fact("master", text_in(job, "master"), look);
  out += fact("exit", without_phase(text_in(job, "exit"), text_in(job, "phase")), look);
  if (const json& missing = object_in(job, "missing_lines"); int_in(missing, "lines") > 0) {
    out += fact("log",
                fmt::format("{} lines ({}) are missing: a disk was full; `rubato logs` says where",
                            int_in(missing, "lines"), format_bytes(int_in(missing, "bytes"))),
                look);
  }
  if (int_in(job, "output_bytes") > 0) out += fact("output", format_bytes(int_in(job, "output_bytes")), look);
  return out;
}

std::string failure_text(const json& failure, const Look& look) {
  const int64_t signal = int_in(failure, "signal");
  const std::string how =
      signal != 0 ? fmt::format("signal {}", signal) : fmt::format("exit code {}", int_in(failure, "exit_code"));
  std::string out =
      fmt::format("  rank {} on {} (generation {}): {}\n", int_in(failure, "rank"), text_in(failure, "host"),
                  int_in(failure, "generation"), paint(how, Hue::kRed, look.colour));
  if (const std::string message = text_in(failure, "message"); !message.empty()) out += "    " + message + "\n";
  const std::string traceback = raw_in(failure, "traceback");
  for (const std::string_view line : split(traceback, '\n')) {
    if (!trim(line).empty()) out += "    " + clean(line) + "\n";
  }
  return out;
}

std::string section(std::string_view heading, const std::string& body, const Look& look) {
  if (body.empty()) return "";
  return "\n" + paint(heading, Hue::kBold, look.colour) + "\n" + body;
}

}  // namespace

std::string workers_text(const json& job) {
  const int64_t least = int_in(job, "workers_min"), most = int_in(job, "workers_max");
  const std::string range = least == most ? fmt::format("{}", most) : fmt::format("{}:{}", least, most);
  return fmt::format("{}/{}", int_in(job, "workers"), range);
}

bool has_ended(const json& job) {
  const std::string phase = raw_in(job, "phase");
  return phase == "succeeded" || phase == "failed" || phase == "stopped";
}

Table jobs_table(const json& jobs, const Look& look) {
  Table table({"ID", "NAME", "OWNER", "PRIO", "PHASE", "WORKERS", "RESTARTS", "AGE", "RAN", "WHY"});
  for (const json& job : jobs) {
    const std::string phase = text_in(job, "phase");
    const std::string owner = text_in(job, "owner");
    table.add({{text_in(job, "id"), Hue::kCyan},
               {text_in(job, "name")},
               {owner.empty() ? "-" : owner},
               {fmt::format("{}", int_in(job, "priority"))},
               {phase_text(job), phase_hue(phase)},
               {workers_text(job)},
               {fmt::format("{}/{}", int_in(job, "restarts_used"), int_in(job, "max_restarts"))},
               {since(time_in(job, "submitted"), look.now)},
               {ran_for(job, look)},
               {text_in(job, "reason")}});
  }
  return table;
}

std::string jobs_text(const json& jobs, const Look& look) {
  const Table table = jobs_table(jobs, look);
  return table.empty() ? "no jobs here; submit one with: rubato submit train.py (ended ones: rubato jobs --all)\n"
                       : table.text(look);
}

std::string job_text(const json& job, const Look& look) {
  const std::string phase = text_in(job, "phase");
  std::string out =
      fmt::format("{} {}  {}\n", paint(text_in(job, "name"), Hue::kBold, look.colour),
                  paint(text_in(job, "id"), Hue::kCyan, look.colour), paint(phase, phase_hue(phase), look.colour));
  out += facts(job, look);
  Table members({"NODE", "RANKS", "WORKERS", "STATE"});
  for (const json& member : list_in(job, "members")) {
    members.add({{text_in(member, "node")},
                 {ranks(member)},
                 {fmt::format("{}", int_in(member, "workers"))},
                 {text_in(member, "state"), phase_hue(text_in(member, "state"))}});
  }
  out += section("Members", members.empty() ? "" : members.text(look), look);
  Table outputs({"NODE", "OUTPUT", "SIZE", ""});
  for (const json& output : list_in(job, "outputs")) {
    const std::string state = text_in(output, "state");
    const bool kept = state == "kept";
    outputs.add({{text_in(output, "node")},
                 {state, kept                 ? Hue::kGreen
                         : state == "missing" ? Hue::kRed
                                              : Hue::kYellow},
                 {kept ? format_bytes(int_in(output, "bytes")) : ""},
                 {text_in(output, "reason")}});
  }
  out += section("Outputs of other machines", outputs.empty() ? "" : outputs.text(look), look);
  std::string failures;
  for (const json& failure : list_in(job, "failures")) failures += failure_text(failure, look);
  out += section("Failures", failures, look);
  return out + section("Events", recent_events(list_in(job, "events"), look), look);
}

std::vector<std::string> outputs_in(const json& job, const std::string& state) {
  std::vector<std::string> nodes;
  for (const json& output : list_in(job, "outputs")) {
    if (raw_in(output, "state") == state) nodes.push_back(text_in(output, "node"));
  }
  return nodes;
}

std::string missing_outputs_text(const json& job) {
  std::string text;
  for (const json& output : list_in(job, "outputs")) {
    if (raw_in(output, "state") != "missing") continue;
    const std::string reason = text_in(output, "reason");
    text += fmt::format("warning: what {} wrote on node {} is missing{}\n", text_in(job, "name"),
                        text_in(output, "node"), reason.empty() ? "" : ": " + reason);
  }
  return text;
}

std::string never_fits_text(const nlohmann::json& job) {
  std::string text;
  const nlohmann::json reasons = object_in(job, "never_fits");
  for (const nlohmann::json& obstacle : list_in(reasons, "against")) {
    const std::string where = text_in(obstacle, "where");
    text += fmt::format("warning: it cannot start: {}{}\n", text_in(obstacle, "text"),
                        where.empty() ? "" : fmt::format("  ({})", where));
  }
  for (const nlohmann::json& change : list_in(reasons, "changes"))
    text += fmt::format("  fix {}\n", text_in(change, "text"));
  return text;
}

std::string next_commands(const std::string& id, const std::string& cluster_flag) {
  return fmt::format(
      "  rubato logs {0} -f{1}     its output\n"
      "  rubato job show {0}{1}    what it does\n"
      "  rubato why {0}{1}         why it waits\n"
      "  rubato stop {0}{1}        end it\n",
      id, cluster_flag);
}

std::string end_text(const json& job, const Look& look) {
  const std::string phase = text_in(job, "phase");
  std::string why = text_in(job, "exit");
  if (why.empty()) why = text_in(job, "reason");
  why = without_phase(why, phase);
  std::string out = fmt::format("{} ({}) {}{}\n", text_in(job, "name"), text_in(job, "id"),
                                paint(phase, phase_hue(phase), look.colour), why.empty() ? "" : ": " + why);
  if (phase != "failed") return out;
  // The last generation's failures end the job; the others are in `job show`.
  const json& failures = list_in(job, "failures");
  return failures.empty() ? out : out + failure_text(failures.back(), look);
}

}  // namespace rubato::cli
