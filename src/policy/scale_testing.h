// For tests: scaling inputs in few words, and a judge who knows all rules but none of the code that keeps them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/random.h"
#include "policy/scale.h"

namespace rubato::policy {

// {"CPU", 2}: whole units; memory in GiB.
inline Resources bundle(std::initializer_list<std::pair<std::string_view, double>> amounts) {
  Resources out;
  for (const auto& [name, amount] : amounts) {
    out.set(name, static_cast<int64_t>(amount * (name == kMemory ? 1073741824.0 : 1000.0)));
  }
  return out;
}
inline Resources cpu(double cpus) { return bundle({{kCpu, cpus}}); }
inline Resources gpu(double gpus, double cpus) { return bundle({{kGpu, gpus}, {kCpu, cpus}}); }

inline ScaleType scale_type(Resources resources, double price, int max_workers = 1000, int min_workers = 0) {
  return {.resources = std::move(resources),
          .min_workers = min_workers,
          .max_workers = max_workers,
          .price_per_hour = price};
}

// A head, "small" with 2 CPUs, "large" with 16, "gpu" with 8 CPUs and one GPU. No nodes.
inline ScaleInput three_types() {
  ScaleInput input;
  input.types["head"] = scale_type(cpu(4), 0.2, 0);
  input.types["small"] = scale_type(bundle({{kCpu, 2}, {kMemory, 8}}), 0.1);
  input.types["large"] = scale_type(bundle({{kCpu, 16}, {kMemory, 64}}), 0.8);
  input.types["gpu"] = scale_type(bundle({{kCpu, 8}, {kGpu, 1}, {kMemory, 61}}), 3.0);
  input.head_type = "head";
  input.max_workers = 1000;
  input.upscaling_speed = 1e9;
  return input;
}

inline ScaleNode worker(const std::string& id, const std::string& type, std::optional<Resources> available = {},
                        Duration idle = {}) {
  return {.id = {id}, .type = type, .available = std::move(available), .idle = idle};
}

using Counts = std::map<std::string, int>;

inline int64_t waiting(const ScalePlan& plan) {
  int64_t sum = 0;
  for (const Unfulfilled& one : plan.unfulfilled) sum += one.count;
  return sum;
}

// The state after the plan: its launches are coming, its terminations leave.
ScaleInput carried_out(const ScaleInput& input, const ScalePlan& plan);

// Everything that must hold for any input and its plan.
void judge(const ScaleInput& input, const ScalePlan& plan);

// An input with a bit of everything.
ScaleInput random_input(Random& random);

}  // namespace rubato::policy
