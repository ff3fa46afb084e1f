// The page of a run: numbers, plots, what was checked and reached, and what happened.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "simulate/plot.h"
#include "simulate/report.h"

namespace rubato::simulate {
namespace {

constexpr size_t kHappeningsShown = 600;
constexpr size_t kMarksShown = 40;  // more would hide the lines

constexpr std::string_view kStyle = R"(
:root { color-scheme: light; --ink: #1f2937; --dim: #6b7280; --line: #e5e7eb; --card: #ffffff; --back: #f6f7f9; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 36px 0 12px; }
p.sub { color: var(--dim); margin: 0 0 24px; }
.ok, .bad { display: inline-block; padding: 1px 10px; border-radius: 999px; font-size: 13px; font-weight: 600; }
.ok { background: #dcfce7; color: #166534; } .bad { background: #fee2e2; color: #991b1b; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.card b { display: block; font-size: 21px; letter-spacing: -0.01em; font-variant-numeric: tabular-nums; }
.card span { color: var(--dim); font-size: 13px; }
figure { margin: 0 0 14px; border: 1px solid var(--line); border-radius: 10px; overflow: hidden;
         background: var(--card); }
figure svg { display: block; width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; background: var(--card); border: 1px solid var(--line);
        border-radius: 10px; overflow: hidden; font-variant-numeric: tabular-nums; font-size: 14px; }
th { text-align: left; color: var(--dim); font-weight: 500; background: #fafbfc; }
th, td { padding: 6px 12px; border-bottom: 1px solid var(--line); } tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; white-space: nowrap; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(400px, 1fr)); gap: 16px; align-items: start; }
.kind { display: inline-block; min-width: 52px; padding: 0 8px; border-radius: 6px; font-size: 12px; text-align: center;
        background: #eef2ff; color: #3730a3; }
.kind.fault { background: #fee2e2; color: #991b1b; } .kind.head { background: #fef3c7; color: #92400e; }
.kind.job { background: #ede9fe; color: #5b21b6; }
details { margin-top: 12px; } summary { cursor: pointer; color: var(--dim); }
.scroll { max-height: 480px; overflow: auto; border-radius: 10px; }
footer { color: var(--dim); font-size: 13px; margin-top: 40px; }
code { font-size: 13px; background: #eef0f3; padding: 1px 5px; border-radius: 4px; }
)";

std::string span_text(double s) { return format_duration(seconds(s)); }

std::string card(std::string_view name, const std::string& value, const std::string& more) {
  return fmt::format("<div class=card><span>{}</span><b>{}</b><span>{}</span></div>\n", name, escaped(value),
                     escaped(more));
}

std::string cards(const Outcome& o) {
  std::string out = "<div class=cards>\n";
  out += card(
      "Jobs", fmt::format("{} of {}", o.succeeded, o.submitted),
      o.failed + o.unfinished == 0 ? "all succeeded" : fmt::format("{} failed, {} not ended", o.failed, o.unfinished));
  out += card("Waiting, mean", span_text(o.wait_s.mean), fmt::format("p95 {}", span_text(o.wait_s.p95)));
  out += card("Completion, mean", span_text(o.jct_s.mean), fmt::format("p95 {}", span_text(o.jct_s.p95)));
  const bool gpus = o.gpu_utilisation > 0;
  out += card("Utilisation",
              fmt::format("{:.0f} % {}", 100 * (gpus ? o.gpu_utilisation : o.cpu_utilisation), gpus ? "GPU" : "CPU"),
              gpus ? fmt::format("CPU {:.0f} %", 100 * o.cpu_utilisation) : std::string("of what was up"));
  out += card("Cost", o.priced ? fmt::format("${:.2f}", o.cost) : std::string("no prices"),
              fmt::format("{:.0f} node-hours", o.node_hours));
  out += card("Nodes", fmt::format("{} launched", o.launched),
              fmt::format("{} reclaimed, {} crashed, most {}", o.reclaimed, o.crashed, o.nodes_most));
  out += card("Restarts", std::to_string(o.restarts), fmt::format("{} starts in all", o.starts));
  uint64_t checks = 0;
  for (const auto& [name, count] : o.checks) checks += count;
  out += card("Invariants", fmt::format("{} checks", checks), o.broken.empty() ? "all held" : "broken");
  return out + "</div>\n";
}

std::string counts_table(std::string_view heading, const std::map<std::string, uint64_t>& counts) {
  std::string out = fmt::format("<table><tr><th>{}</th><th class=n>times</th></tr>\n", heading);
  for (const auto& [name, count] : counts)
    out += fmt::format("<tr><td>{}</td><td class=n>{}</td></tr>\n", escaped(name), count);
  return out + "</table>\n";
}

std::string distributions_table(const Outcome& o) {
  std::string out =
      "<table><tr><th></th><th class=n>count</th><th class=n>mean</th><th class=n>p50</th><th class=n>p95</th>"
      "<th class=n>p99</th><th class=n>max</th></tr>\n";
  const auto row = [&](std::string_view name, const Distribution& d) {
    out += fmt::format("<tr><td>{}</td><td class=n>{}</td>", name, d.count);
    for (const double value : {d.mean, d.p50, d.p95, d.p99, d.max})
      out += fmt::format("<td class=n>{}</td>", span_text(value));
    out += "</tr>\n";
  };
  row("Waiting for the first start", o.wait_s);
  row("Completion", o.jct_s);
  row("A node, from request to joined", o.boot_s);
  return out + "</table>\n";
}

std::string happenings_table(const Outcome& o) {
  // Faults, heads and failed jobs first of all; launches and removals only while there is room.
  std::vector<const Happening*> shown;
  for (const bool important : {true, false}) {
    for (const Happening& one : o.happenings) {
      if ((one.kind != "node") == important && shown.size() < kHappeningsShown) shown.push_back(&one);
    }
  }
  std::ranges::stable_sort(shown, {}, [](const Happening* one) { return one->at; });
  std::string out = fmt::format(
      "<h2>What happened</h2>\n<p class=sub>{} of {} events: faults, heads and failed jobs before nodes.</p>\n"
      "<div class=scroll><table><tr><th class=n>at</th><th>kind</th><th>what</th></tr>\n",
      shown.size(), o.happenings.size());
  for (const Happening* one : shown) {
    out += fmt::format("<tr><td class=n>{}</td><td><span class=\"kind {}\">{}</span></td><td>{}</td></tr>\n",
                       format_duration(one->at), one->kind, one->kind, escaped(one->text));
  }
  return out + "</table></div>\n";
}

std::vector<double> values_of(const Outcome& o, double (*pick)(const Sample&)) {
  std::vector<double> out;
  for (const Sample& sample : o.samples) out.push_back(pick(sample));
  return out;
}

Plot plot_of(const Outcome& o, std::string title, std::string unit) {
  Plot plot;
  plot.title = std::move(title);
  plot.unit = std::move(unit);
  for (const Sample& sample : o.samples) plot.times.push_back(sample.at);
  return plot;
}

Plot nodes_plot(const Outcome& o) {
  Plot plot = plot_of(o, "Nodes", "");
  plot.stacked = true;
  std::set<std::string> types;
  for (const Sample& sample : o.samples) {
    for (const auto& [type, count] : sample.nodes) types.insert(type);
  }
  for (const std::string& type : types) {
    Line line;
    line.name = type;
    for (const Sample& sample : o.samples) {
      const auto it = sample.nodes.find(type);
      line.values.push_back(it == sample.nodes.end() ? 0 : it->second);
    }
    plot.lines.push_back(std::move(line));
  }
  if (std::ranges::any_of(o.samples, [](const Sample& sample) { return sample.coming > 0; }))
    plot.lines.push_back({"coming", values_of(o, [](const Sample& s) { return static_cast<double>(s.coming); })});
  for (const Happening& one : o.happenings) {
    if (one.kind == "fault" && plot.marks.size() < kMarksShown) plot.marks.emplace_back(one.at, one.text);
  }
  return plot;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> svg_plots(const Outcome& o) {
  std::vector<std::pair<std::string, std::string>> plots;
  plots.emplace_back("nodes", svg(nodes_plot(o)));
  Plot queue = plot_of(o, "Queue", "");
  queue.lines.push_back(
      {"jobs that wait", values_of(o, [](const Sample& s) { return static_cast<double>(s.queued); })});
  queue.lines.push_back(
      {"workers that they need", values_of(o, [](const Sample& s) { return static_cast<double>(s.waiting_workers); })});
  plots.emplace_back("queue", svg(queue));
  Plot workers = plot_of(o, "Workers and jobs", "");
  workers.lines.push_back(
      {"workers in seats", values_of(o, [](const Sample& s) { return static_cast<double>(s.workers); })});
  workers.lines.push_back(
      {"jobs that run", values_of(o, [](const Sample& s) { return static_cast<double>(s.running_jobs); })});
  plots.emplace_back("workers", svg(workers));
  const bool gpus = std::ranges::any_of(o.samples, [](const Sample& sample) { return sample.gpus > 0; });
  Plot use = plot_of(o, gpus ? "GPUs" : "CPUs", "");
  use.lines.push_back(
      {"there", values_of(
                    o, gpus ? [](const Sample& s) { return s.gpus; } : [](const Sample& s) { return s.cpus; })});
  use.lines.push_back({"in use", values_of(
                                     o, gpus ? [](const Sample& s) { return s.gpus_used; }
                                             : [](const Sample& s) { return s.cpus_used; })});
  plots.emplace_back("use", svg(use));
  if (o.priced) {
    Plot rate = plot_of(o, "Cost per hour", "$ / h");
    rate.lines.push_back({"per hour", values_of(o, [](const Sample& s) { return s.cost_per_hour; })});
    plots.emplace_back("rate", svg(rate));
    Plot cost = plot_of(o, "Cost so far", "$");
    cost.lines.push_back({"so far", values_of(o, [](const Sample& s) { return s.cost; })});
    plots.emplace_back("cost", svg(cost));
  }
  return plots;
}

std::string html_report(const Outcome& o) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n<meta name=viewport "
      "content=\"width=device-width, initial-scale=1\">\n<title>rubato simulate: {}</title>\n<style>{}</style></head>"
      "<body><main>\n<h1>{} {}</h1>\n<p class=sub>seed {} · {} simulated · {} agents · hash <code>{:016x}</code></p>\n",
      escaped(o.scenario), kStyle, escaped(o.scenario),
      o.broken.empty() ? "<span class=ok>all invariants held</span>" : "<span class=bad>an invariant is broken</span>",
      o.seed, format_duration(o.simulated), o.fidelity, o.hash);
  for (const std::string& words : o.broken)
    out += fmt::format("<p><span class=bad>broken</span> {}</p>\n", escaped(words));
  out += cards(o) + "<h2>Over time</h2>\n";
  for (const auto& [name, plot] : svg_plots(o)) out += "<figure>" + plot + "</figure>\n";
  out += "<h2>Times</h2>\n" + distributions_table(o);
  out += happenings_table(o);
  out += "<h2>Checked and reached</h2>\n<div class=two><div>" + counts_table("Invariant", o.checks) + "</div><div>" +
         counts_table("Record of the head", o.decisions) + "</div></div>\n";
  out += "<details><summary>Coverage: faults and transitions that were reached</summary>\n" +
         counts_table("Mark", o.marks) + "</details>\n";
  out += fmt::format(
      "<footer>Made by <code>rubato simulate</code>: the real head and policies on simulated machines. Agents: "
      "{}.</footer>"
      "\n</main></body></html>\n",
      o.fidelity == "light" ? "light (scripted ones that speak the real protocol)"
                            : "real ones with simulated processes");
  return out;
}

}  // namespace rubato::simulate
