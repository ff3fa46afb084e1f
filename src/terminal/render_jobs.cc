#include "terminal/render_jobs.h"

#include <fmt/format.h>

#include "core/text.h"
#include "model/resources.h"
#include "model/worker_sizes.h"
#include "terminal/document.h"
#include "terminal/render_events.h"

namespace rubato::cli {
namespace {

using nlohmann::json;

std::string since(const std::optional<WallTime>& from, WallTime to) { return from ? age_text(to - *from) : "-"; }

std::string ran_for(const api::JobSummary& job, const Style& look) {
  return since(job.started, job.ended.value_or(look.now));
}

// "queued #2": the second in the queue.
std::string phase_text(const api::JobSummary& job) {
  return job.phase + (job.queue_place ? fmt::format(" #{}", *job.queue_place) : "");
}

std::string ranks(const api::Member& member) {
  if (!member.rank_first.value || member.workers <= 0) return "-";
  const int64_t first = *member.rank_first.value;
  return member.workers == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + member.workers - 1);
}

std::string fact(std::string_view name, const std::string& value, const Style& look) {
  if (value.empty()) return "";
  return fmt::format("  {}  {}\n", paint(pad(name, 9), Hue::kDim, look.colour), value);
}

std::string program_text(const json& spec) {
  std::vector<std::string> argv;
  const std::string kind = raw_in(spec, "kind");
  if (kind == "script" || kind == "run-path") argv = {"python"};
  if (kind == "module") argv = {"python", "-m"};
  argv.push_back(clean(raw_in(spec, "program")));
  for (const json& arg : list_in(spec, "args")) {
    if (arg.is_string()) argv.push_back(clean(arg.get<std::string>()));
  }
  return shell_join(argv);
}

// "failed: rank 1 died" after the phase "failed" says it twice.
std::string without_phase(std::string why, const std::string& phase) {
  if (why == phase) return "";
  if (const auto rest = strip_prefix(why, phase + ": ")) return std::string(*rest);
  return why;
}

std::string adaptive_text(const api::Adaptive& adaptive) {
  if (adaptive.reason.empty() || !adaptive.change_cost_s) return adaptive.reason;
  return fmt::format("{}; a change of size costs it {:.2g} s", adaptive.reason, *adaptive.change_cost_s);
}

std::string facts(const api::Job& job, const Style& look) {
  const json& spec = job.spec;
  const auto ago = [&](const std::optional<WallTime>& time) {
    return time ? age_text(look.now - *time) + " ago" : std::string();
  };
  std::string out;
  out += fact("why", job.reason, look);
  out += fact("queue", queue_text(job.queue.value_or(api::QueuePlace{})), look);
  out += fact("program", program_text(spec), look);
  const std::string each = describe(api::read_resources(object_in(spec, "per_worker")));
  out += fact("workers", fmt::format("{}, each {}", workers_text(job), each), look);
  if (job.moved) out += fact("moved", *job.moved, look);
  if (job.adaptive) out += fact("adaptive", adaptive_text(*job.adaptive), look);
  out += fact("submitted", ago(job.submitted) + (job.owner.empty() ? "" : " by " + job.owner), look);
  out += fact("started", ago(job.started), look);
  out += fact("ended", ago(job.ended), look);
  out += fact("ran", job.started ? ran_for(job, look) : "", look);
  out += fact("restarts", fmt::format("{} of {}, generation {}", job.restarts_used, job.max_restarts, job.generation),
              look);
  if (job.priority != 0) out += fact("priority", fmt::format("{}", job.priority), look);
  const double weight = number_in(spec, "weight"), within = number_in(spec, "deadline_s");
  if (weight > 0) out += fact("weight", fmt::format("{}", weight), look);
  if (within > 0 && job.submitted) {
    const auto until = std::chrono::duration_cast<std::chrono::microseconds>(seconds(within));
    out += fact("deadline", format_time(*job.submitted + until), look);
  }
  out += fact("package", text_in(spec, "package").substr(0, 12), look);
  out += fact("master", job.master.value_or(""), look);
  out += fact("exit", without_phase(job.exit.value_or(""), job.phase), look);
  if (job.missing_lines && job.missing_lines->lines > 0) {
    out += fact("log",
                fmt::format("{} lines ({}) are missing: a disk was full; `rubato logs` says where",
                            job.missing_lines->lines, format_bytes(static_cast<int64_t>(job.missing_lines->bytes))),
                look);
  }
  return out;
}

std::string failure_text(const json& failure, const Style& look) {
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

std::string section(std::string_view heading, const std::string& body, const Style& look) {
  if (body.empty()) return "";
  return "\n" + paint(heading, Hue::kBold, look.colour) + "\n" + body;
}

// The newest ones, each with where it would survive.
std::string checkpoints_text(const std::vector<api::Checkpoint>& all, const Style& look) {
  constexpr size_t kShown = 5;
  Table table({"NAME", "SIZE", "AGE", "WRITTEN ON", "COPIES"});
  for (size_t i = 0; i < std::min(all.size(), kShown); ++i) {
    const api::Checkpoint& one = all[i];
    table.add({{one.name},
               {format_bytes(static_cast<int64_t>(one.bytes))},
               {since(one.saved, look.now)},
               {one.node},
               {join(one.copies, ", ")}});
  }
  std::string text = table.empty() ? "" : table.text(look);
  if (all.size() > kShown) text += fmt::format("and {} older ones: --json\n", all.size() - kShown);
  return text;
}

}  // namespace

std::string workers_text(const api::JobSummary& job) {
  const WorkerSizes sizes{static_cast<int>(job.workers_min), static_cast<int>(job.workers_max),
                          static_cast<int>(job.workers_step)};
  return fmt::format("{}/{}", job.workers, to_string(sizes));
}

bool has_ended(const api::JobSummary& job) {
  return job.phase == "succeeded" || job.phase == "failed" || job.phase == "stopped";
}

Table jobs_table(const std::vector<api::JobSummary>& jobs, const Style& look) {
  Table table({"ID", "NAME", "OWNER", "PRIO", "PHASE", "WORKERS", "RESTARTS", "AGE", "RAN", "WHY"});
  for (const api::JobSummary& job : jobs) {
    table.add({{job.id, Hue::kCyan},
               {job.name},
               {job.owner.empty() ? "-" : job.owner},
               {fmt::format("{}", job.priority)},
               {phase_text(job), phase_hue(job.phase)},
               {workers_text(job)},
               {fmt::format("{}/{}", job.restarts_used, job.max_restarts)},
               {since(job.submitted, look.now)},
               {ran_for(job, look)},
               {job.reason}});
  }
  return table;
}

std::string jobs_text(const std::vector<api::JobSummary>& jobs, const Style& look) {
  const Table table = jobs_table(jobs, look);
  return table.empty() ? "no jobs here; submit one with: rubato submit train.py (ended ones: rubato jobs --all)\n"
                       : table.text(look);
}

namespace {

std::string whole_job_text(const api::Job& job, const std::vector<api::Checkpoint>& checkpoints, const Style& look) {
  std::string out =
      fmt::format("{} {}  {}\n", paint(job.name, Hue::kBold, look.colour), paint(job.id, Hue::kCyan, look.colour),
                  paint(job.phase, phase_hue(job.phase), look.colour));
  out += facts(job, look);
  Table members({"NODE", "RANKS", "WORKERS", "STATE"});
  for (const api::Member& one : job.members)
    members.add({{one.node}, {ranks(one)}, {fmt::format("{}", one.workers)}, {one.state, phase_hue(one.state)}});
  out += section("Members", members.empty() ? "" : members.text(look), look);
  Table outputs({"NODE", "OUTPUT", "SIZE", ""});
  for (const api::Output& one : job.outputs) {
    const bool kept = one.state == "kept";
    const Hue hue = kept ? Hue::kGreen : one.state == "missing" ? Hue::kRed : Hue::kYellow;
    outputs.add({{one.node},
                 {one.state, hue},
                 {kept ? format_bytes(static_cast<int64_t>(one.bytes)) : ""},
                 {one.reason.value_or("")}});
  }
  out += section("Outputs of other machines", outputs.empty() ? "" : outputs.text(look), look);
  out += section("Checkpoints", checkpoints_text(checkpoints, look), look);
  std::string failures;
  for (const json& failure : job.failures) failures += failure_text(failure, look);
  out += section("Failures", failures, look);
  return out + section("Events", recent_events(job.events.value_or(std::vector<api::Event>{}), look), look);
}

}  // namespace

std::string job_text(const api::Job& job, const Style& look) { return whole_job_text(job, {}, look); }

std::string job_text(const api::JobDetail& job, const Style& look) {
  return whole_job_text(job, job.checkpoints, look);
}

std::vector<std::string> outputs_in(const api::Job& job, const std::string& state) {
  std::vector<std::string> nodes;
  for (const api::Output& output : job.outputs) {
    if (output.state == state) nodes.push_back(output.node);
  }
  return nodes;
}

std::string missing_outputs_text(const api::Job& job) {
  std::string text;
  for (const api::Output& output : job.outputs) {
    if (output.state != "missing") continue;
    text += fmt::format("warning: what {} wrote on node {} is missing{}\n", job.name, output.node,
                        output.reason ? ": " + *output.reason : "");
  }
  return text;
}

std::string never_fits_text(const api::Job& job) {
  std::string text;
  const api::Reasons reasons = job.never_fits.value_or(api::Reasons{});
  for (const api::Obstacle& one : reasons.against) {
    text +=
        fmt::format("warning: it cannot start: {}{}\n", one.text, one.where ? fmt::format("  ({})", *one.where) : "");
  }
  for (const api::Change& one : reasons.changes) text += fmt::format("  fix {}\n", one.text);
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

std::string end_text(const api::Job& job, const Style& look) {
  const std::string why = without_phase(job.exit.value_or(job.reason), job.phase);
  std::string out = fmt::format("{} ({}) {}{}\n", job.name, job.id, paint(job.phase, phase_hue(job.phase), look.colour),
                                why.empty() ? "" : ": " + why);
  if (job.phase != "failed") return out;
  // The last generation's failures end the job; the others are in `job show`.
  return job.failures.empty() ? out : out + failure_text(job.failures.back(), look);
}

}  // namespace rubato::cli
