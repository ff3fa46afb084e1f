#include "model/job_profile.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato {

using nlohmann::json;

namespace {

// A number beyond it is no batch size and no time of a step; sums and products of such numbers stay finite.
constexpr double kNumberMax = 1e15;

[[noreturn]] void refuse(const std::string& key, const std::string& why) {
  throw Error(ErrorCode::kUsage, "hints: '" + key + "' " + why, "", "see the hints of AdaptDL's supervisor protocol");
}

double read_number(const json& object, const std::string& key, double absent) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return absent;
  if (!it->is_number()) refuse(key, "is not a number");
  const double value = it->get<double>();
  if (!std::isfinite(value) || value < 0 || value > kNumberMax) refuse(key, "is not a number that can be");
  return value;
}

int64_t read_count(const json& value, const std::string& key) {
  if (!value.is_number()) refuse(key, "is not a number");
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < 0 || number > kNumberMax) refuse(key, "is not a number that can be");
  return static_cast<int64_t>(number);
}

const json* find_object(const json& object, const std::string& key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return nullptr;
  if (!it->is_object()) refuse(key, "is not an object");
  return &*it;
}

void read_bounds(const json& hints, JobProfile& profile) {
  const auto it = hints.find("localBszBounds");
  if (it == hints.end() || it->is_null()) return;
  if (!it->is_array() || it->size() != 2) refuse("localBszBounds", "is not a list of two numbers");
  // AdaptDL lets either end be open.
  const auto bound = [it](size_t end, int64_t open) {
    return it->at(end).is_null() ? open : read_count(it->at(end), "localBszBounds");
  };
  profile.local_min = bound(0, 1);
  profile.local_max = bound(1, static_cast<int64_t>(profile.max_batch_size));
  if (profile.local_max < profile.local_min) refuse("localBszBounds", "ends below its beginning");
}

JobProfile::Perf read_perf(const json& perf) {
  JobProfile::Perf p;
  p.alpha_c = read_number(perf, "alpha_c", 0);
  p.beta_c = read_number(perf, "beta_c", 0);
  p.alpha_n = read_number(perf, "alpha_n", 0);
  p.beta_n = read_number(perf, "beta_n", 0);
  p.alpha_r = read_number(perf, "alpha_r", 0);
  p.beta_r = read_number(perf, "beta_r", 0);
  p.gamma = read_number(perf, "gamma", 1);
  if (p.gamma < 1) refuse("gamma", "is below 1");
  return p;
}

json perf_json(const JobProfile::Perf& p) {
  return {{"alpha_c", p.alpha_c}, {"beta_c", p.beta_c}, {"alpha_n", p.alpha_n}, {"beta_n", p.beta_n},
          {"alpha_r", p.alpha_r}, {"beta_r", p.beta_r}, {"gamma", p.gamma}};
}

// People see it, and it is a key in the journal.
std::string checked_device(const std::string& name, const char* key) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty() || name.size() > kDeviceBytesMax || std::ranges::any_of(name, control))
    refuse(key, "is not the name of a device");
  return name;
}

std::optional<double> read_optional(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return std::nullopt;
  return read_number(object, key, 0);
}

// What AdaptDL's own client does not send.
void read_ours(const json& hints, JobProfile& profile) {
  if (const json* progress = find_object(hints, "progress")) {
    profile.done_iters = read_optional(*progress, "done");
    profile.total_iters = read_optional(*progress, "total");
  }
  profile.start_s = read_optional(hints, "startSeconds");
  if (const auto it = hints.find("deviceKind"); it != hints.end() && !it->is_null()) {
    if (!it->is_string()) refuse("deviceKind", "is not a text");
    profile.device = checked_device(it->get<std::string>(), "deviceKind");
  }
  const json* devices = find_object(hints, "perfByDevice");
  if (devices == nullptr) return;
  if (devices->size() > kDevicesMax) refuse("perfByDevice", "has too many devices");
  for (const auto& [name, perf] : devices->items()) {
    if (!perf.is_object()) refuse("perfByDevice", "has something that is no object");
    profile.perf_by_device[checked_device(name, "perfByDevice")] = read_perf(perf);
  }
}

}  // namespace

JobProfile job_profile_from_json(const json& hints) {
  if (!hints.is_object()) throw Error(ErrorCode::kUsage, "hints are not a JSON object");
  JobProfile profile;
  profile.init_batch_size = read_number(hints, "initBatchSize", 0);
  profile.global_batch_size = read_number(hints, "globalBatchSize", 0);
  profile.max_batch_size = read_number(hints, "maxBatchSize", 0);
  read_bounds(hints, profile);
  if (const auto it = hints.find("maxProfiledReplicas"); it != hints.end() && !it->is_null()) {
    profile.max_profiled_replicas = read_count(*it, "maxProfiledReplicas");
  }
  if (const auto it = hints.find("gradientAccumulation"); it != hints.end() && !it->is_null()) {
    if (!it->is_boolean()) refuse("gradientAccumulation", "is neither true nor false");
    profile.gradient_accumulation = it->get<bool>();
  }
  if (const json* gradient = find_object(hints, "gradParams")) {
    profile.gradient = JobProfile::Gradient{read_number(*gradient, "norm", 0), read_number(*gradient, "var", 0)};
  }
  if (const json* perf = find_object(hints, "perfParams")) profile.perf = read_perf(*perf);
  read_ours(hints, profile);
  if (profile.perf && profile.init_batch_size < 1) refuse("initBatchSize", "is below 1");
  return profile;
}

json to_json(const JobProfile& profile) {
  json out = {{"initBatchSize", profile.init_batch_size},
              {"globalBatchSize", profile.global_batch_size},
              {"maxBatchSize", profile.max_batch_size},
              {"maxProfiledReplicas", profile.max_profiled_replicas},
              {"gradientAccumulation", profile.gradient_accumulation}};
  if (profile.local_max > 0) out["localBszBounds"] = {profile.local_min, profile.local_max};
  if (profile.gradient) out["gradParams"] = {{"norm", profile.gradient->norm}, {"var", profile.gradient->var}};
  if (profile.perf) out["perfParams"] = perf_json(*profile.perf);
  if (!profile.device.empty()) out["deviceKind"] = profile.device;
  for (const auto& [device, perf] : profile.perf_by_device) out["perfByDevice"][device] = perf_json(perf);
  if (profile.done_iters) out["progress"]["done"] = *profile.done_iters;
  if (profile.total_iters) out["progress"]["total"] = *profile.total_iters;
  if (profile.start_s) out["startSeconds"] = *profile.start_s;
  return out;
}

}  // namespace rubato
