#include "simulate/pollux_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/text.h"

namespace rubato::simulate {
namespace {

constexpr size_t kRowsMax = 1'000'000;

// What the simulator of Pollux says besides its files.
constexpr std::string_view kYolo = "yolov3";
constexpr int64_t kYoloLocalMax = 8;

struct CsvTable {
  std::vector<std::vector<std::string_view>> rows;
  std::vector<std::string_view> header;
  std::string file;

  size_t column(std::string_view name) const {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found == header.end())
      throw Error(ErrorCode::kUsage, fmt::format("there is no column '{}'", name), file + ":1",
                  "these must be files of Pollux' artifact");
    return static_cast<size_t>(found - header.begin());
  }

  Error bad(size_t row, std::string_view why) const {
    return Error(ErrorCode::kUsage, std::string(why), fmt::format("{}:{}", file, row + 2));
  }

  double number(size_t row, size_t column) const {
    const std::string_view text = rows[row][column];
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
      throw bad(row, fmt::format("'{}' is not a number of at least 0", text));
    return value;
  }
};

CsvTable read_csv(std::string_view text, const std::string& file) {
  CsvTable table{.file = file};
  size_t line = 0;
  for (std::string_view row : split(text, '\n')) {
    ++line;
    row = trim(row);
    if (row.empty()) continue;
    std::vector<std::string_view> cells = split(row, ',');
    if (table.header.empty()) {
      table.header = std::move(cells);
      continue;
    }
    if (cells.size() != table.header.size())
      throw Error(ErrorCode::kUsage, fmt::format("{} columns, the header has {}", cells.size(), table.header.size()),
                  fmt::format("{}:{}", file, line));
    if (table.rows.size() >= kRowsMax) throw table.bad(table.rows.size(), "too many rows");
    table.rows.push_back(std::move(cells));
  }
  return table;
}

// Linear between neighbours, and beyond the ends as between the last two.
template <class Value, class Blend>
Value interpolate(const std::map<double, Value>& points, double at, const Blend& blend) {
  auto high = points.lower_bound(at);
  if (high != points.end() && high->first == at) return high->second;
  if (points.size() == 1) return points.begin()->second;
  if (high == points.begin()) ++high;
  if (high == points.end()) --high;
  const auto low = std::prev(high);
  return blend(low->second, high->second, (at - low->first) / (high->first - low->first));
}

TraceTimes blend_times(const TraceTimes& a, const TraceTimes& b, double part) {
  return {a.step + (b.step - a.step) * part, a.sync + (b.sync - a.sync) * part};
}

std::vector<int> smallest_rotation(std::vector<int> placement) {
  std::vector<int> best = placement;
  for (size_t i = 1; i < placement.size(); ++i) {
    std::rotate(placement.begin(), placement.begin() + 1, placement.end());
    best = std::min(best, placement);
  }
  return best;
}

}  // namespace

PolluxApplication::PolluxApplication(std::string name, const CsvTexts& files) : name_(std::move(name)) {
  for (const auto& [file, text] : files) {
    const std::string path = name_ + "/" + file;
    if (file == "placements.csv") read_placements(text, path);
    if (file == "scalability.csv") read_scalability(text, path);
    const auto rest = strip_prefix(file, "validation-");
    const auto number = rest ? strip_suffix(*rest, ".csv") : std::nullopt;
    int batch = 0;
    if (!number) continue;
    const auto [end, error] = std::from_chars(number->data(), number->data() + number->size(), batch);
    if (error == std::errc() && batch > 0) read_validation(text, path, batch);
  }
  if (validation_.empty() || placements_.empty() || columns_.empty())
    throw Error(ErrorCode::kUsage, fmt::format("the traces of '{}' are not complete", name_), name_,
                "placements.csv and validation-BATCH.csv are needed");
  limits_.init_batch_size = validation_.begin()->first;
  limits_.max_batch_size = validation_.rbegin()->first;
  limits_.accumulation = true;
  if (name_ == kYolo) limits_.local_max = kYoloLocalMax;
  size_t epochs = std::numeric_limits<size_t>::max();
  for (const auto& [batch, list] : validation_) epochs = std::min(epochs, list.progress.size());
  epochs_ = static_cast<int>(epochs);
  progress_.assign(1, 0);
  for (size_t epoch = 0; epoch < epochs; ++epoch) {
    double least = std::numeric_limits<double>::max();
    for (const auto& [batch, list] : validation_) least = std::min(least, list.progress[epoch]);
    progress_.push_back(least);
  }
}

void PolluxApplication::read_placements(std::string_view text, const std::string& file) {
  const CsvTable table = read_csv(text, file);
  const size_t placement = table.column("placement"), bsz = table.column("local_bsz");
  const size_t step = table.column("step_time"), sync = table.column("sync_time");
  std::map<std::vector<double>, std::pair<TraceTimes, int>> sums;  // by nodes, replicas, batch
  double least = std::numeric_limits<double>::max(), most = 0;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    std::vector<int> counts;
    int replicas = 0;
    for (const char c : table.rows[row][placement]) {
      if (c < '1' || c > '9') throw table.bad(row, "a placement is a digit for each node");
      counts.push_back(c - '0');
      replicas += counts.back();
    }
    const double atomic = table.number(row, bsz);
    const TraceTimes times{table.number(row, step), table.number(row, sync)};
    least = std::min(least, atomic);
    most = std::max(most, atomic);
    auto& [sum, count] = sums[{static_cast<double>(counts.size()), static_cast<double>(replicas), atomic}];
    sum.step += times.step;
    sum.sync += times.sync;
    ++count;
    placements_[smallest_rotation(counts)][atomic] = times;
  }
  for (const auto& [key, value] : sums) {
    const auto& [sum, count] = value;
    columns_[key[0]][key[1]][key[2]] = {sum.step / count, sum.sync / count};
  }
  limits_.local_min = static_cast<int64_t>(least);
  limits_.local_max = static_cast<int64_t>(most);
}

void PolluxApplication::read_scalability(std::string_view text, const std::string& file) {
  const CsvTable table = read_csv(text, file);
  const size_t nodes = table.column("num_nodes"), replicas = table.column("num_replicas");
  const size_t bsz = table.column("local_bsz"), step = table.column("step_time"), sync = table.column("sync_time");
  for (size_t row = 0; row < table.rows.size(); ++row) {
    columns_[table.number(row, nodes)][table.number(row, replicas)][table.number(row, bsz)] = {table.number(row, step),
                                                                                               table.number(row, sync)};
  }
}

void PolluxApplication::read_validation(std::string_view text, const std::string& file, int batch) {
  const CsvTable table = read_csv(text, file);
  const size_t progress = table.column("progress"), iteration = table.column("iteration");
  const size_t sqr = table.column("grad_sqr"), var = table.column("grad_var");
  Epochs& out = validation_[batch];
  for (size_t row = 0; row < table.rows.size(); ++row) {
    out.progress.push_back(table.number(row, progress));
    out.iteration.push_back(table.number(row, iteration));
    out.sqr.push_back(table.number(row, sqr));
    out.var.push_back(table.number(row, var));
  }
  if (table.rows.empty()) throw table.bad(0, "there is no epoch");
}

double PolluxApplication::total_iterations(double batch_size) const {
  std::map<double, double> points;
  for (const auto& [batch, list] : validation_) points[batch] = list.iteration[static_cast<size_t>(epochs_ - 1)];
  return interpolate(points, batch_size, [](double a, double b, double part) { return a + (b - a) * part; });
}

policy::GradStats PolluxApplication::grad_stats(double batch_size, int epoch) const {
  auto high = validation_.lower_bound(batch_size);
  if (high == validation_.end()) --high;
  auto low = high;
  if (high->first > batch_size && high != validation_.begin()) --low;
  const auto at = static_cast<size_t>(epoch);
  const double part = high->first == low->first ? 0 : (batch_size - low->first) / (high->first - low->first);
  return {low->second.sqr[at] + (high->second.sqr[at] - low->second.sqr[at]) * part,
          low->second.var[at] + (high->second.var[at] - low->second.var[at]) * part};
}

TraceTimes PolluxApplication::on_column(double nodes, double replicas, double atomic_bsz) const {
  const auto& column = columns_.at(nodes);
  std::map<double, TraceTimes> points;
  // The two neighbours are enough.
  auto high = column.lower_bound(replicas);
  if (high == column.end()) --high;
  auto low = high;
  if (high->first > replicas && high != column.begin()) --low;
  points[low->first] = interpolate(low->second, atomic_bsz, blend_times);
  points[high->first] = interpolate(high->second, atomic_bsz, blend_times);
  return interpolate(points, replicas, blend_times);
}

TraceTimes PolluxApplication::times(std::vector<int> placement, double atomic_bsz) const {
  placement = smallest_rotation(std::move(placement));
  const auto found = placements_.find(placement);
  if (found != placements_.end()) return interpolate(found->second, atomic_bsz, blend_times);
  double replicas = 0;
  for (const int count : placement) replicas += count;
  const auto nodes = std::min(static_cast<double>(placement.size()), columns_.rbegin()->first);
  auto high = columns_.lower_bound(nodes);
  if (high == columns_.end()) --high;
  if (high->first == nodes || high == columns_.begin()) return on_column(high->first, replicas, atomic_bsz);
  const auto low = std::prev(high);
  const TraceTimes a = on_column(low->first, replicas * low->first / nodes, atomic_bsz);
  const TraceTimes b = on_column(high->first, replicas * high->first / nodes, atomic_bsz);
  return blend_times(a, b, (nodes - low->first) / (high->first - low->first));
}

std::vector<PolluxJob> read_pollux_workload(std::string_view text, const std::string& file) {
  const CsvTable table = read_csv(text, file);
  const size_t name = table.column("name"), time = table.column("time"), application = table.column("application");
  const size_t replicas = table.column("num_replicas"), batch = table.column("batch_size");
  std::vector<PolluxJob> jobs;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    PolluxJob job;
    job.name = table.rows[row][name];
    job.submit_s = table.number(row, time);
    job.application = table.rows[row][application];
    job.num_replicas = static_cast<int>(std::clamp(table.number(row, replicas), 1.0, 1e4));
    job.batch_size = std::max(table.number(row, batch), 1.0);
    jobs.push_back(std::move(job));
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const PolluxJob& a, const PolluxJob& b) { return a.submit_s < b.submit_s; });
  return jobs;
}

}  // namespace rubato::simulate
