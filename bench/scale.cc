// bench_scale FILE|-|DEMANDSxNODES [REPEAT]: one scaling decision on a state (as `rubato plan --state` reads it), or on
// one made here in the manner of the given inputs: near-unique sizes, nodes of eight types, partly used. Prints a line
// of JSON: CPU time of a decision (least and median), memory that it took, cost, and a lower bound of any plan's cost.
#include <fmt/format.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/random.h"
#include "policy/scale_bound.h"
#include "policy/scale_state.h"

namespace rubato::policy {
namespace {

constexpr int64_t kGib = 1 << 30;

// The prices of the issue; inputs without prices get them, so that Ray's answers can be compared.
const std::map<std::string, double> kPrices{{"m5.large", 0.096},    {"m5.4xlarge", 0.768}, {"m5.16xlarge", 3.072},
                                            {"r5.8xlarge", 2.016},  {"p3.2xlarge", 3.06},  {"p3.8xlarge", 12.24},
                                            {"p3.16xlarge", 24.48}, {"cust.4xlarge", 1.00}};

double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

double peak_mb() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

Resources resources(double cpus, int64_t memory, double gpus = 0, double custom = 0) {
  Resources out;
  out.set(kCpu, std::llround(cpus * 1000));
  out.set(kMemory, memory);
  out.set(kGpu, std::llround(gpus * 1000));
  out.set("Custom", std::llround(custom * 1000));
  return out;
}

std::map<std::string, Resources> eight_types() {
  return {{"m5.large", resources(2, 8 * kGib)},          {"m5.4xlarge", resources(16, 64 * kGib)},
          {"m5.16xlarge", resources(64, 256 * kGib)},    {"r5.8xlarge", resources(32, 256 * kGib)},
          {"p3.2xlarge", resources(8, 61 * kGib, 1)},    {"p3.8xlarge", resources(32, 244 * kGib, 4)},
          {"p3.16xlarge", resources(64, 488 * kGib, 8)}, {"cust.4xlarge", resources(16, 64 * kGib, 0, 4)}};
}

Resources near_unique(Random& random) {
  const auto tenths = [&](uint64_t most) { return static_cast<double>(1 + random.below(most)) / 10; };
  const double kind = random.unit();
  if (kind < 0.5) return resources(tenths(160), static_cast<int64_t>(1 + random.below(65536)) << 20);
  if (kind < 0.75) return resources(tenths(160), 0);
  if (kind < 0.95) return resources(tenths(80), 0, random.chance(0.5) ? 1 : static_cast<double>(2 << random.below(3)));
  return resources(tenths(160), 0, 0, static_cast<double>(1 + random.below(4)));
}

ScaleInput generate(int64_t demands, int64_t nodes) {
  Random random(1);
  ScaleInput input;
  input.max_workers = 1'000'000;
  input.upscaling_speed = 1e9;
  std::vector<std::string> names;
  for (const auto& [name, has] : eight_types()) {
    input.types[name] = {.resources = has, .max_workers = input.max_workers};
    names.push_back(name);
  }
  for (int64_t at = 0; at < nodes; ++at) {
    ScaleNode node{.id = {fmt::format("n{}", at)}, .type = names[random.below(names.size())]};
    const double use = random.unit();
    Resources free;
    for (const auto& [name, amount] : input.types[node.type].resources.amounts()) {
      const int64_t unit = name == kMemory ? kGib : 1000;
      const auto some = static_cast<int64_t>(random.below(static_cast<uint64_t>(amount / unit) + 1)) * unit;
      free.set(name, use < 0.4 ? 0 : use < 0.55 ? amount : some);
    }
    node.available = free;
    input.nodes.push_back(std::move(node));
  }
  for (int64_t at = 0; at < demands; ++at) input.demands.push_back({near_unique(random), 1});
  return input;
}

ScaleInput read(const std::string& what) {
  if (const size_t x = what.find('x'); x != std::string::npos && what.find('.') == std::string::npos) {
    return generate(std::stoll(what.substr(0, x)), std::stoll(what.substr(x + 1)));
  }
  std::ostringstream text;
  if (what == "-") {
    text << std::cin.rdbuf();
  } else {
    text << std::ifstream(what).rdbuf();
  }
  return read_scale_state(text.str(), what);
}

void measure(const std::string& what, int repeat) {
  ScaleInput input = read(what);
  for (auto& [name, type] : input.types) {
    if (const auto price = kPrices.find(name); price != kPrices.end()) type.price_per_hour = price->second;
  }
  malloc_trim(0);
  reset_peak();
  const double before = peak_mb();
  ScalePlan plan = plan_scale(input);
  const double after = peak_mb();
  std::vector<double> times;
  for (int at = 0; at < repeat; ++at) {
    const double start = cpu_ms();
    plan = plan_scale(input);
    times.push_back(cpu_ms() - start);
  }
  std::sort(times.begin(), times.end());
  int64_t left = 0;
  for (const Unfulfilled& one : plan.unfulfilled) left += one.count;
  ScaleInput next = input;
  for (const PlannedLaunch& one : plan.launches) next.launching.push_back({one.type, one.count, one.zone, one.market});
  const nlohmann::ordered_json out = {{"input", what},
                                      {"demands", input.demands.size()},
                                      {"nodes", input.nodes.size()},
                                      {"cpu_ms_least", times.front()},
                                      {"cpu_ms_median", times[times.size() / 2]},
                                      {"memory_mb", after},
                                      {"memory_mb_of_input", before},
                                      {"launch", plan.launches_by_type()},
                                      {"unfulfilled", left},
                                      {"cost_per_hour", plan.cost_per_hour},
                                      {"lower_bound", cost_lower_bound(input)},
                                      {"second_decision_launches", plan_scale(next).launches_by_type().size()}};
  std::puts(out.dump().c_str());
}

}  // namespace
}  // namespace rubato::policy

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: bench_scale FILE|-|DEMANDSxNODES [REPEAT]\n", stderr);
    return 2;
  }
  rubato::policy::measure(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 7);
  return 0;
}
