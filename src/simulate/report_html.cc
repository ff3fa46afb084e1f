// The page of a run: numbers, plots, what was checked and reached, and what happened.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "simulate/plot.h"
#include "simulate/report.h"
#include "simulate/report_plots.h"

// cmake/embed.cmake makes them from the files of these names.
namespace rubato::embedded {
extern const char report_style[];
extern const char report_script[];
}  // namespace rubato::embedded

namespace rubato::simulate {
namespace {

using nlohmann::json;

constexpr size_t kHappeningsShown = 600;

std::string span_text(const Distribution& d, double value) {
  return d.count == 0 ? "–" : format_duration(seconds(value));
}

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

// As a policy of a page names the one script that may run.
std::string script_hash(std::string_view script) {
  const std::string hex = sha256_hex(script);
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    unsigned byte = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    bytes += static_cast<char>(byte);
  }
  return "sha256-" + base64(bytes);
}

std::string card(std::string_view name, const std::string& value, const std::string& more) {
  return fmt::format("<div class=\"card\"><span>{}</span><b>{}</b><span>{}</span></div>\n", name, escaped(value),
                     escaped(more));
}

std::string jobs_card(const Outcome& o) {
  if (o.submitted == 0) return card("Jobs", "none", "nothing was submitted");
  const bool all = o.succeeded == o.submitted;
  return card("Jobs succeeded", fmt::format("{} of {}", o.succeeded, o.submitted), all ? "all" : other_ends_text(o));
}

std::string cards(const Outcome& o) {
  std::string out = "<div class=\"cards\">\n" + jobs_card(o);
  const auto times = [&](std::string_view name, const Distribution& d) {
    out += card(name, span_text(d, d.mean), d.count == 0 ? "no job got so far" : "p95 " + span_text(d, d.p95));
  };
  times("Waiting for a start, mean", o.wait_s);
  times("Submission to end, mean", o.jct_s);
  const bool gpus = has_gpus(o);
  out += card(gpus ? "GPUs in use" : "CPUs in use",
              fmt::format("{:.0f} %", 100 * (gpus ? o.gpu_utilisation : o.cpu_utilisation)),
              gpus ? fmt::format("CPUs {:.0f} %; of what was up", 100 * o.cpu_utilisation) : "of what was up");
  out += card("Cost", o.priced ? fmt::format("${:.2f}", o.cost) : std::string("no prices"),
              fmt::format("{:.1f} node-hours", o.node_hours));
  out += card("Nodes launched", std::to_string(o.launched),
              fmt::format("most at once {}; {} reclaimed, {} crashed", o.nodes_most, o.reclaimed, o.crashed));
  out += card("Restarts of jobs", std::to_string(o.restarts),
              o.trained_s > 0 ? fmt::format("{:.1f} % of the work done again", 100 * o.lost_s / o.trained_s)
                              : fmt::format("{} starts in all", o.starts));
  uint64_t checks = 0;
  for (const auto& [name, count] : o.checks) checks += count;
  out += card("Checks of invariants", std::to_string(checks),
              o.broken.empty() ? "all held" : fmt::format("{} broken", o.broken.size()));
  return out + "</div>\n";
}

std::string counts_table(std::string_view heading, const std::map<std::string, uint64_t>& counts) {
  std::string out = fmt::format(
      "<div class=\"wrap\"><table><thead><tr><th>{}</th><th class=\"n\">times</th></tr></thead><tbody>\n", heading);
  for (const auto& [name, count] : counts)
    out += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td></tr>\n", escaped(name), count);
  if (counts.empty()) out += "<tr><td>none</td><td class=\"n\">0</td></tr>\n";
  return out + "</tbody></table></div>\n";
}

std::string distributions_table(const Outcome& o) {
  std::string out =
      "<div class=\"wrap\"><table class=\"times\"><thead><tr><th>Time</th><th class=\"n\">count</th><th "
      "class=\"n\">mean</th><th class=\"n\">p50</th><th class=\"n\">p95</th><th class=\"n\">p99</th><th "
      "class=\"n\">max</th></tr></thead><tbody>\n";
  const auto row = [&](std::string_view name, const Distribution& d) {
    out += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td>", name, d.count);
    for (const double value : {d.mean, d.p50, d.p95, d.p99, d.max})
      out += fmt::format("<td class=\"n\">{}</td>", span_text(d, value));
    out += "</tr>\n";
  };
  row("A job, until its first start", o.wait_s);
  row("A job, from submission to its end", o.jct_s);
  row("A node, from request to joined", o.boot_s);
  return out + "</tbody></table></div>\n";
}

std::string compared_table(const PageExtras& extras) {
  std::string out = "<h2>Side by side</h2>\n<div class=\"wrap\"><table>\n";
  std::string_view open = "<thead>", close = "</thead><tbody>", cell = "th";
  for (const std::vector<std::string>& row : compare_table(extras.compared)) {
    out += fmt::format("{}<tr>", open);
    for (size_t i = 0; i < row.size(); ++i)
      out += fmt::format("<{0}{1}>{2}</{0}>", cell, i > 0 ? " class=\"n\"" : "", escaped(row[i]));
    out += fmt::format("</tr>{}\n", close);
    open = close = "";
    cell = "td";
  }
  out += "</tbody></table></div>\n";
  return out + (extras.note.empty() ? "" : fmt::format("<p class=\"sub\">{}</p>\n", escaped(extras.note)));
}

std::string happenings_table(const Outcome& o) {
  // Faults, heads and failed jobs first of all; launches and removals only while there is room.
  std::vector<const Happening*> shown;
  std::map<std::string, size_t> kinds;
  for (const bool important : {true, false}) {
    for (const Happening& one : o.happenings) {
      if ((one.kind != "node") == important && shown.size() < kHappeningsShown) shown.push_back(&one);
    }
  }
  if (shown.empty()) return "";
  std::ranges::stable_sort(shown, {}, [](const Happening* one) { return one->at; });
  std::string rows;
  for (const Happening* one : shown) {
    ++kinds[one->kind];
    rows += fmt::format(
        "<tr data-kind=\"{1}\"><td class=\"n\">{0}</td><td><span class=\"kind {1}\">{1}</span></td><td>{2}</td></tr>\n",
        format_duration(one->at), escaped(one->kind), escaped(one->text));
  }
  std::string out = "<h2>What happened</h2>\n";
  if (shown.size() < o.happenings.size()) {
    out += fmt::format(
        "<p class=\"sub\">{} of {} events: faults, heads and failed jobs come before launches and removals.</p>\n",
        shown.size(), o.happenings.size());
  }
  out += "<div class=\"kinds\">";
  for (const auto& [kind, count] : kinds)
    out += fmt::format("<label><input type=\"checkbox\" value=\"{0}\" checked>{0} ({1})</label>", escaped(kind), count);
  return out +
         "</div>\n<div class=\"wrap scroll\" tabindex=\"0\" role=\"region\" "
         "aria-label=\"Events\"><table><thead><tr><th "
         "class=\"n\">at</th><th>kind</th><th>what</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div>\n";
}

// What the script needs, in an element that does not run. "<" is written as an escape: nothing in it can end the
// element.
std::string data_element(const Outcome& o, const std::vector<Plot>& plots) {
  const auto rounded = [](double value) { return std::round(value * 10000) / 10000; };
  json data = {{"times", json::array()}, {"plots", json::object()}, {"faults", json::array()}};
  for (const Sample& sample : o.samples) data["times"].push_back(std::round(to_seconds(sample.at) * 10) / 10);
  for (const Plot& plot : plots) {
    json lines = json::array();
    for (const Line& line : plot.lines) {
      json values = json::array();
      for (const double value : line.values) {
        if (value == std::floor(value)) {
          values.push_back(static_cast<int64_t>(value));
        } else {
          values.push_back(rounded(value));
        }
      }
      lines.push_back({{"name", line.name}, {"colour", line.colour}, {"values", std::move(values)}});
    }
    data["plots"][plot.name] = {
        {"lines", std::move(lines)}, {"stacked", plot.stacked}, {"marked", !plot.marks.empty()}};
  }
  for (const Happening& one : o.happenings) {
    if (one.kind == "fault") data["faults"].push_back({std::round(to_seconds(one.at) * 10) / 10, one.text});
  }
  std::string text;
  for (const char c : data.dump(-1, ' ', false, json::error_handler_t::replace))
    text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return "<script type=\"application/json\" id=\"data\">" + text + "</script>\n";
}

std::string head_of(const Outcome& o) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src "
      "'{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{} – rubato simulate</title>\n<style>\n{}{}</style></head>\n",
      script_hash(embedded::report_script), escaped(o.scenario), embedded::report_style, plot_style());
}

std::string opening(const Outcome& o, const PageExtras& extras) {
  const bool held = o.broken.empty();
  std::string out = fmt::format(
      "<h1>{} <span class=\"badge {}\">{}</span></h1>\n<p class=\"sub\">Seed {} · {} simulated · {} agents · hash "
      "<code>{:016x}</code></p>\n",
      escaped(o.scenario), held ? "ok" : "bad", held ? "✓ all invariants held" : "✗ an invariant is broken", o.seed,
      format_duration(o.simulated), o.fidelity, o.hash);
  if (held) return out;
  out += "<div class=\"broken\"><b>Broken</b><ul>\n";
  for (const std::string& message : o.broken) out += fmt::format("<li>{}</li>\n", escaped(message));
  out += "</ul>";
  if (!extras.command.empty()) out += fmt::format("See it again: <code>{}</code>", escaped(extras.command));
  return out + "</div>\n";
}

}  // namespace

std::string html_report(const Outcome& o, const PageExtras& extras) {
  const std::vector<Plot> plots = plots_of(o);
  std::string out = head_of(o) + "<body><main>\n" + opening(o, extras) + cards(o);
  if (!extras.compared.empty()) out += compared_table(extras);
  out += "<h2>Over time</h2>\n";
  for (const Plot& plot : plots) {
    out += fmt::format("<figure data-plot=\"{}\" tabindex=\"0\">\n{}{}</figure>\n", plot.name,
                       svg_in_page(plot, PlotWidth::kWide), svg_in_page(plot, PlotWidth::kNarrow));
  }
  out += "<h2>Times</h2>\n" + distributions_table(o);
  out += happenings_table(o);
  out += "<h2>Checked and decided</h2>\n<div class=\"two\">" + counts_table("Invariant", o.checks) +
         counts_table("Record of the head", o.decisions) + "</div>\n";
  out += "<details><summary>Coverage: faults and transitions that were reached</summary>\n" +
         counts_table("Mark", o.marks) + "</details>\n";
  out += "<footer>Made by <code>rubato simulate</code>: the real head and policies on simulated machines. Agents: " +
         std::string(o.fidelity == "light" ? "scripted ones that speak the real protocol."
                                           : "real ones with simulated processes.");
  if (!extras.command.empty()) out += fmt::format("<br>The same again: <code>{}</code>", escaped(extras.command));
  out += "</footer>\n</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n" + data_element(o, plots);
  return out + fmt::format("<script>{}</script>\n</body></html>\n", embedded::report_script);
}

}  // namespace rubato::simulate
