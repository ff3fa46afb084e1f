#include "simulate/meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace rubato::simulate {

using cluster::NodePhase;

namespace {

constexpr size_t kSamplesMax = 4000;
constexpr size_t kHappeningsMax = 20'000;

double amount(const Resources& resources, std::string_view name) {
  return static_cast<double>(resources.of(name)) / 1000;
}

std::string words_of(const Instance& instance) {
  const std::string where = instance.zone.empty() ? "" : " in " + instance.zone;
  return fmt::format("{} ({}{}{})", instance.node.value, instance.type,
                     instance.market == Market::kSpot ? ", spot" : "", where);
}

}  // namespace

Distribution distribution_of(std::vector<double> values) {
  Distribution out;
  out.count = values.size();
  if (values.empty()) return out;
  std::ranges::sort(values);
  const auto at = [&](double part) {
    return values[std::min(values.size() - 1, static_cast<size_t>(part * static_cast<double>(values.size())))];
  };
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  out.p50 = at(0.5);
  out.p95 = at(0.95);
  out.p99 = at(0.99);
  out.max = values.back();
  return out;
}

void Meter::submitted(const JobId& job, Duration at) {
  jobs_[job].submitted = at;
  ++outcome_.submitted;
}

void Meter::happening(std::string kind, std::string text) {
  if (outcome_.happenings.size() >= kHappeningsMax) return;
  Happening one;
  one.at = now();
  one.kind = std::move(kind);
  one.text = std::move(text);
  outcome_.happenings.push_back(std::move(one));
}

void Meter::record(const cluster::Record& record, const cluster::State& state) {
  ++outcome_.records;
  ++outcome_.decisions[std::string(cluster::type_name(record.event))];
  if (const auto* started = std::get_if<cluster::JobStarted>(&record.event)) {
    ++outcome_.starts;
    Times& times = jobs_[started->job];
    if (times.started) {
      ++outcome_.restarts;
    } else {
      times.started = true;
      waits_.push_back(to_seconds(now() - times.submitted));
    }
  } else if (const auto* ended = std::get_if<cluster::JobEnded>(&record.event)) {
    Times& times = jobs_[ended->job];
    times.ended = true;
    if (ended->result == cluster::JobResult::kSucceeded) {
      ++outcome_.succeeded;
      jcts_.push_back(to_seconds(now() - times.submitted));
    } else if (ended->result == cluster::JobResult::kFailed) {
      ++outcome_.failed;
      happening("job", fmt::format("{} failed: {}", ended->job.value, ended->reason));
    } else {
      ++outcome_.stopped;
    }
  } else if (std::holds_alternative<cluster::RestartCharged>(record.event)) {
    ++outcome_.charged;
  } else if (const auto* requested = std::get_if<cluster::NodeRequested>(&record.event)) {
    requested_[requested->node] = now();
  } else if (const auto* joined = std::get_if<cluster::NodeJoined>(&record.event)) {
    const auto it = requested_.find(joined->node);
    if (it == requested_.end()) return;
    boots_.push_back(to_seconds(now() - it->second));
    requested_.erase(it);
  } else if (const auto* lost = std::get_if<cluster::NodeLost>(&record.event)) {
    happening("node", fmt::format("{} is lost: {}", lost->node.value, lost->reason));
  } else if (const auto* failed = std::get_if<cluster::NodeFailed>(&record.event)) {
    happening("node", fmt::format("{} not made: {}", failed->node.value, failed->error));
  } else if (const auto* head = std::get_if<cluster::HeadStarted>(&record.event)) {
    happening("head", fmt::format("head {} started, {} nodes and {} jobs known", head->epoch, state.nodes.size(),
                                  state.jobs.size()));
  }
}

void Meter::cloud_changed(const Instance& instance, std::string_view what) {
  if (what == "launched") ++outcome_.launched;
  if (what == "removed") ++outcome_.removed;
  if (what == "reclaimed") ++outcome_.reclaimed;
  if (what == "crashed") ++outcome_.crashed;
  if (what == "notice") {
    happening("fault", fmt::format("{} gets a notice: it will be reclaimed", words_of(instance)));
  } else {
    happening(what == "launched" || what == "removed" ? "node" : "fault",
              fmt::format("{} {}", words_of(instance), what));
  }
}

void Meter::sample(const cluster::State& state) {
  Sample sample;
  sample.at = now();
  int up = 0;
  for (const auto& [id, node] : state.nodes) {
    if (node.phase == NodePhase::kRequested || node.phase == NodePhase::kStarting) ++sample.coming;
    if (node.phase != NodePhase::kUp && node.phase != NodePhase::kDraining) continue;
    const auto instance = cloud_.live().find(id);
    const bool spot = instance != cloud_.live().end() && instance->second->market == Market::kSpot;
    ++sample.nodes[spot ? node.type + " spot" : node.type];
    ++up;
    sample.cpus += amount(node.resources, kCpu);
    sample.gpus += amount(node.resources, kGpu);
  }
  outcome_.nodes_most = std::max(outcome_.nodes_most, up);
  for (const JobId& id : state.queued) sample.waiting_workers += state.jobs.at(id).spec.workers_min;
  sample.queued = static_cast<int>(state.queued.size());
  for (const JobId& id : state.active) {
    const cluster::Job& job = state.jobs.at(id);
    const int workers = job.workers();
    sample.running_jobs += job.phase == cluster::JobPhase::kRunning ? 1 : 0;
    sample.workers += workers;
    sample.cpus_used += workers * amount(job.spec.per_worker, kCpu);
    sample.gpus_used += workers * amount(job.spec.per_worker, kGpu);
  }
  sample.cost = cloud_.cost(sim_.now());
  sample.cost_per_hour = cloud_.cost_per_hour();
  const double span = to_seconds(sample.at - std::exchange(sampled_, sample.at));
  cpu_have_ += span * sample.cpus;
  cpu_used_ += span * std::min(sample.cpus, sample.cpus_used);
  gpu_have_ += span * sample.gpus;
  gpu_used_ += span * std::min(sample.gpus, sample.gpus_used);
  outcome_.samples.push_back(std::move(sample));
  if (outcome_.samples.size() < kSamplesMax) return;
  // Half as fine from here on; the integrals above are not touched.
  for (size_t i = 0; 2 * i < outcome_.samples.size(); ++i) outcome_.samples[i] = std::move(outcome_.samples[2 * i]);
  outcome_.samples.resize(outcome_.samples.size() / 2);
}

void Meter::close(const cluster::State& state) {
  sample(state);
  outcome_.wait_s = distribution_of(waits_);
  outcome_.jct_s = distribution_of(jcts_);
  outcome_.boot_s = distribution_of(boots_);
  for (const auto& [job, times] : jobs_) outcome_.unfinished += times.ended ? 0 : 1;
  outcome_.cpu_utilisation = cpu_have_ > 0 ? cpu_used_ / cpu_have_ : 0;
  outcome_.gpu_utilisation = gpu_have_ > 0 ? gpu_used_ / gpu_have_ : 0;
  const auto add = [&](const Instance& instance) {
    outcome_.node_hours += to_seconds(instance.ended.value_or(sim_.now()) - instance.launched) / 3600;
    if (instance.price_per_hour > 0) outcome_.priced = true;
  };
  for (const Instance& instance : cloud_.past()) add(instance);
  for (const auto& [node, instance] : cloud_.live()) add(*instance);
  outcome_.cost = cloud_.cost(sim_.now());
}

}  // namespace rubato::simulate
