#include "simulate/report_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/text.h"
#include "simulate/report.h"

namespace rubato::simulate {
namespace {

constexpr size_t kTypesShown = 6;  // each has a colour; grey is for what is coming
constexpr std::string_view kSpotSuffix = " spot";

template <class Pick>
std::vector<double> values_of(const Outcome& o, Pick pick) {
  std::vector<double> out;
  for (const Sample& sample : o.samples) out.push_back(static_cast<double>(pick(sample)));
  return out;
}

template <class Pick>
Line line_of(const Outcome& o, std::string name, size_t colour, LineStyle style, Pick pick) {
  Line line;
  line.name = std::move(name);
  line.colour = colour;
  line.style = style;
  line.values = values_of(o, pick);
  return line;
}

Plot plot_of(const Outcome& o, std::string name, std::string title, std::string unit, bool whole) {
  Plot plot;
  plot.name = std::move(name);
  plot.title = std::move(title);
  plot.unit = std::move(unit);
  plot.whole = whole;
  for (const Sample& sample : o.samples) plot.times.push_back(sample.at);
  if (o.duration > 0s) plot.settles = o.duration;
  return plot;
}

void mark_faults(const Outcome& o, Plot& plot) {
  for (const Happening& one : o.happenings) {
    if (one.kind == "fault") plot.marks.emplace_back(one.at, one.text);
  }
}

std::string type_of(const std::string& name) {
  return std::string(strip_suffix(name, kSpotSuffix).value_or(std::string_view(name)));
}

// The types that had the most nodes, in the order of their names; a type and its spot machines have one colour.
std::map<std::string, size_t> colours_of(const std::map<std::string, int>& most) {
  std::map<std::string, int> by_type;
  for (const auto& [name, count] : most) by_type[type_of(name)] += count;
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [type, count] : by_type) order.emplace_back(-count, type);
  std::ranges::sort(order);
  if (order.size() > kTypesShown) order.resize(kTypesShown - 1);  // one colour is for the others
  std::set<std::string> shown;
  for (const auto& [count, type] : order) shown.insert(type);
  std::map<std::string, size_t> out;
  for (const std::string& type : shown) {
    const size_t colour = out.size();
    out[type] = colour;
  }
  return out;
}

Plot nodes_plot(const Outcome& o) {
  Plot plot = plot_of(o, "nodes", "Nodes, by type and market", "nodes", true);
  plot.stacked = true;
  std::map<std::string, int> most;
  for (const Sample& sample : o.samples) {
    for (const auto& [name, count] : sample.nodes) most[name] = std::max(most[name], count);
  }
  const std::map<std::string, size_t> colours = colours_of(most);
  std::set<std::string> others;
  for (const auto& [name, count] : most) {
    const auto colour = colours.find(type_of(name));
    if (colour == colours.end()) {
      others.insert(name);
      continue;
    }
    Line line = line_of(o, name, colour->second, LineStyle::kFilled, [&name](const Sample& sample) {
      const auto it = sample.nodes.find(name);
      return it == sample.nodes.end() ? 0 : it->second;
    });
    line.hatched = name.ends_with(kSpotSuffix);
    plot.lines.push_back(std::move(line));
  }
  if (!others.empty()) {
    plot.lines.push_back(line_of(o, fmt::format("{} others", others.size()), kTypesShown - 1, LineStyle::kFilled,
                                 [&others](const Sample& sample) {
                                   int sum = 0;
                                   for (const auto& [name, count] : sample.nodes)
                                     sum += others.contains(name) ? count : 0;
                                   return sum;
                                 }));
  }
  if (std::ranges::any_of(o.samples, [](const Sample& sample) { return sample.coming > 0; })) {
    plot.lines.push_back(
        line_of(o, "coming", kGrey, LineStyle::kFilled, [](const Sample& sample) { return sample.coming; }));
  }
  mark_faults(o, plot);
  return plot;
}

Plot queue_plot(const Outcome& o) {
  Plot plot = plot_of(o, "queue", "Queue", "jobs, workers", true);
  plot.lines.push_back(line_of(o, "workers that they need, at least", 1, LineStyle::kDashed,
                               [](const Sample& sample) { return sample.waiting_workers; }));
  plot.lines.push_back(
      line_of(o, "jobs that wait", 0, LineStyle::kFilled, [](const Sample& sample) { return sample.queued; }));
  mark_faults(o, plot);
  return plot;
}

Plot workers_plot(const Outcome& o) {
  Plot plot = plot_of(o, "workers", "At work", "jobs, workers", true);
  plot.lines.push_back(
      line_of(o, "workers in seats", 1, LineStyle::kDashed, [](const Sample& sample) { return sample.workers; }));
  plot.lines.push_back(
      line_of(o, "jobs that run", 0, LineStyle::kFilled, [](const Sample& sample) { return sample.running_jobs; }));
  return plot;
}

template <class There, class Used>
Plot use_plot(const Outcome& o, std::string name, std::string what, There there, Used used) {
  Plot plot = plot_of(o, std::move(name), what + ": there, and in use", what, true);
  plot.lines.push_back(line_of(o, "there", kGrey, LineStyle::kSolid, there));
  plot.lines.push_back(line_of(o, "in use", 2, LineStyle::kFilled, used));
  return plot;
}

}  // namespace

bool has_gpus(const Outcome& o) {
  return std::ranges::any_of(o.samples, [](const Sample& sample) { return sample.gpus > 0; });
}

std::vector<Plot> plots_of(const Outcome& o) {
  std::vector<Plot> plots;
  plots.push_back(nodes_plot(o));
  plots.push_back(queue_plot(o));
  plots.push_back(workers_plot(o));
  const auto cpus = [](const Sample& sample) { return sample.cpus; };
  const auto cpus_used = [](const Sample& sample) { return sample.cpus_used; };
  if (has_gpus(o)) {
    plots.push_back(use_plot(
        o, "use", "GPUs", [](const Sample& sample) { return sample.gpus; },
        [](const Sample& sample) { return sample.gpus_used; }));
    plots.push_back(use_plot(o, "cpus", "CPUs", cpus, cpus_used));
  } else {
    plots.push_back(use_plot(o, "use", "CPUs", cpus, cpus_used));
  }
  if (o.priced) {
    plots.push_back(plot_of(o, "rate", "Cost per hour", "$ per hour", false));
    plots.back().lines.push_back(
        line_of(o, "$ per hour", 5, LineStyle::kFilled, [](const Sample& sample) { return sample.cost_per_hour; }));
    plots.push_back(plot_of(o, "cost", "Cost so far", "$", false));
    plots.back().lines.push_back(
        line_of(o, "$ so far", 5, LineStyle::kFilled, [](const Sample& sample) { return sample.cost; }));
  }
  return plots;
}

std::vector<std::pair<std::string, std::string>> svg_plots(const Outcome& o) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Plot& plot : plots_of(o)) out.emplace_back(plot.name, svg(plot));
  return out;
}

}  // namespace rubato::simulate
