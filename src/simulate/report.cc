#include "simulate/report.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace rubato::simulate {
namespace {

using nlohmann::ordered_json;

std::string span(double s) { return format_duration(seconds(s)); }

std::string distribution_text(const Distribution& d) {
  if (d.count == 0) return "none";
  return fmt::format("mean {}, p50 {}, p95 {}, p99 {}, max {}", span(d.mean), span(d.p50), span(d.p95), span(d.p99),
                     span(d.max));
}

ordered_json distribution_json(const Distribution& d) {
  return {{"count", d.count}, {"mean", d.mean}, {"p50", d.p50}, {"p95", d.p95}, {"p99", d.p99}, {"max", d.max}};
}

uint64_t sum_of(const std::map<std::string, uint64_t>& counts) {
  uint64_t sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

std::string counts_text(const std::map<std::string, uint64_t>& counts, std::string_view prefix) {
  std::string out;
  for (const auto& [name, count] : counts) {
    if (!name.starts_with(prefix)) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name.substr(prefix.size()), count);
  }
  return out;
}

ordered_json sample_json(const Sample& sample) {
  ordered_json nodes = ordered_json::object();
  for (const auto& [type, count] : sample.nodes) nodes[type] = count;
  return {{"t_s", to_seconds(sample.at)},
          {"nodes", std::move(nodes)},
          {"coming", sample.coming},
          {"queued_jobs", sample.queued},
          {"waiting_workers", sample.waiting_workers},
          {"running_jobs", sample.running_jobs},
          {"workers", sample.workers},
          {"cost", sample.cost},
          {"cost_per_hour", sample.cost_per_hour},
          {"cpus", sample.cpus},
          {"cpus_used", sample.cpus_used},
          {"gpus", sample.gpus},
          {"gpus_used", sample.gpus_used}};
}

std::string utilisation_text(const Outcome& o) {
  std::string out = fmt::format("CPU {:.1f} %", 100 * o.cpu_utilisation);
  if (o.gpu_utilisation > 0) out += fmt::format(", GPU {:.1f} %", 100 * o.gpu_utilisation);
  return out;
}

}  // namespace

std::string jobs_text(const Outcome& o) {
  return fmt::format("{} submitted: {} succeeded, {}", o.submitted, o.succeeded, other_ends_text(o));
}

std::string other_ends_text(const Outcome& o) {
  std::string out = fmt::format("{} failed", o.failed);
  if (o.stopped > 0) out += fmt::format(", {} stopped", o.stopped);
  if (o.unfinished > o.infeasible) out += fmt::format(", {} not ended", o.unfinished - o.infeasible);
  if (o.infeasible > 0) out += fmt::format(", {} can never fit", o.infeasible);
  return out;
}

std::string text_report(const Outcome& o) {
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) out += fmt::format("{:<13}{}\n", name, text);
  };
  line("scenario", fmt::format("{}, seed {}, {} agents", o.scenario, o.seed, o.fidelity));
  line("simulated", fmt::format("{} ({} events, {} turns of the head, {} records)", format_duration(o.simulated),
                                o.events, o.turns, o.records));
  line("jobs", jobs_text(o));
  line("waiting", distribution_text(o.wait_s));
  line("completion", distribution_text(o.jct_s));
  line("starts", fmt::format("{} ({} restarts, {} of them charged to the job)", o.starts, o.restarts, o.charged));
  if (o.trained_s > 0) {
    std::string causes;
    for (const auto& [cause, lost_s] : o.lost_by)
      causes += fmt::format("{}{} {:.1f} %", causes.empty() ? ": " : ", ", cause, 100 * lost_s / o.trained_s);
    line("training", fmt::format("{:.1f} worker-hours, {:.1f} % done again after losses{}", o.trained_s / 3600,
                                 100 * o.lost_s / o.trained_s, causes));
  }
  line("nodes", fmt::format("{} launched, {} removed, {} reclaimed, {} crashed; at most {} at once", o.launched,
                            o.removed, o.reclaimed, o.crashed, o.nodes_most));
  if (o.boot_s.count > 0) line("joining", distribution_text(o.boot_s));
  line("utilisation", utilisation_text(o));
  line("cost", o.priced ? fmt::format("${:.2f} for {:.1f} node-hours", o.cost, o.node_hours)
                        : fmt::format("{:.1f} node-hours (no prices: give cloud.prices)", o.node_hours));
  line("faults", counts_text(o.marks, "fault."));
  line("cloud", counts_text(o.marks, "cloud."));
  size_t transitions = 0;
  for (const auto& [mark, count] : o.marks) transitions += mark.find(" -> ") != std::string::npos ? 1 : 0;
  line("coverage", fmt::format("{} kinds of transitions, {} marks in all", transitions, o.marks.size()));
  line("invariants", fmt::format("{} checks of {} rules, {}", sum_of(o.checks), o.checks.size(),
                                 o.broken.empty() ? "all held" : "BROKEN"));
  for (const std::string& message : o.broken) line("  broken", message);
  line("hash", fmt::format("{:016x}", o.hash));
  return out;
}

ordered_json json_report(const Outcome& o, bool samples) {
  ordered_json out = {{"scenario", o.scenario},
                      {"seed", o.seed},
                      {"agents", o.fidelity},
                      {"hash", fmt::format("{:016x}", o.hash)},
                      {"ok", o.broken.empty()},
                      {"broken", o.broken},
                      {"duration_s", to_seconds(o.duration)},
                      {"simulated_s", to_seconds(o.simulated)},
                      {"events", o.events},
                      {"turns", o.turns},
                      {"records", o.records}};
  out["jobs"] = {{"submitted", o.submitted}, {"succeeded", o.succeeded},   {"failed", o.failed},
                 {"stopped", o.stopped},     {"unfinished", o.unfinished}, {"infeasible", o.infeasible}};
  out["wait_s"] = distribution_json(o.wait_s);
  out["jct_s"] = distribution_json(o.jct_s);
  out["node_join_s"] = distribution_json(o.boot_s);
  out["starts"] = o.starts;
  out["restarts"] = o.restarts;
  out["restarts_charged"] = o.charged;
  out["trained_worker_s"] = o.trained_s;
  out["lost_worker_s"] = o.lost_s;
  out["lost_worker_s_by"] = o.lost_by;
  out["cpu_utilisation"] = o.cpu_utilisation;
  out["gpu_utilisation"] = o.gpu_utilisation;
  out["nodes"] = {{"launched", o.launched}, {"removed", o.removed}, {"reclaimed", o.reclaimed},
                  {"crashed", o.crashed},   {"most", o.nodes_most}, {"node_hours", o.node_hours}};
  out["cost"] = o.priced ? ordered_json(o.cost) : ordered_json(nullptr);
  out["decisions"] = o.decisions;
  out["checks"] = o.checks;
  out["marks"] = o.marks;
  if (!samples) return out;
  ordered_json list = ordered_json::array();
  for (const Sample& sample : o.samples) list.push_back(sample_json(sample));
  out["samples"] = std::move(list);
  return out;
}

std::vector<std::vector<std::string>> compare_table(const Columns& columns) {
  struct Row {
    std::string_view name;
    std::function<std::string(const Outcome&)> text;
  };
  const auto count = [](uint64_t value) { return std::to_string(value); };
  // A journal does not say it.
  const auto used = [](const Outcome& o, double part) {
    return o.samples.empty() ? std::string("-") : fmt::format("{:.1f} %", 100 * part);
  };
  const std::vector<Row> rows{
      {"jobs submitted", [&](const Outcome& o) { return count(o.submitted); }},
      {"jobs succeeded", [&](const Outcome& o) { return count(o.succeeded); }},
      {"jobs not ended", [&](const Outcome& o) { return count(o.unfinished); }},
      {"jobs that never fit", [&](const Outcome& o) { return count(o.infeasible); }},
      {"waiting, mean", [](const Outcome& o) { return span(o.wait_s.mean); }},
      {"waiting, p50", [](const Outcome& o) { return span(o.wait_s.p50); }},
      {"waiting, p95", [](const Outcome& o) { return span(o.wait_s.p95); }},
      {"completion, mean", [](const Outcome& o) { return span(o.jct_s.mean); }},
      {"completion, p95", [](const Outcome& o) { return span(o.jct_s.p95); }},
      {"restarts", [&](const Outcome& o) { return count(o.restarts); }},
      {"nodes launched", [&](const Outcome& o) { return count(o.launched); }},
      {"nodes at most", [&](const Outcome& o) { return std::to_string(o.nodes_most); }},
      {"node-hours", [](const Outcome& o) { return fmt::format("{:.2f}", o.node_hours); }},
      {"cost", [](const Outcome& o) { return o.priced ? fmt::format("${:.2f}", o.cost) : std::string("-"); }},
      {"CPU in use", [&](const Outcome& o) { return used(o, o.cpu_utilisation); }},
      {"GPU in use", [&](const Outcome& o) { return used(o, o.gpu_utilisation); }},
      {"last job ended after", [](const Outcome& o) { return format_duration(o.last_end); }},
  };
  std::vector<std::vector<std::string>> table(1, {""});
  for (const auto& [name, outcome] : columns) table.front().push_back(name);
  for (const Row& row : rows) {
    table.emplace_back(1, std::string(row.name));
    for (const auto& [name, outcome] : columns) table.back().push_back(row.text(outcome));
  }
  return table;
}

std::string compare_report(const Columns& columns) {
  std::string out;
  for (const std::vector<std::string>& row : compare_table(columns)) {
    out += fmt::format("{:<22}", row.front());
    for (size_t i = 1; i < row.size(); ++i) out += fmt::format("{:>22}", row[i]);
    out += "\n";
  }
  return out;
}

}  // namespace rubato::simulate
