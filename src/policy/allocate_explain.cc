// Why a job gets what it gets, in a sentence.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "policy/allocate_work.h"

namespace rubato::policy {
namespace {

std::string workers_text(int64_t count) { return fmt::format("{} worker{}", count, count == 1 ? "" : "s"); }

std::string number_text(double number) {
  return number < 100 ? fmt::format("{:.3g}", number) : fmt::format("{:.0f}", number);
}

// The neighbours of the given size on the same kind of nodes.
struct Neighbours {
  const SizeOption* here = nullptr;
  const SizeOption* smaller = nullptr;
  const SizeOption* larger = nullptr;
};

Neighbours neighbours_of(const Allocating& all, const JobWork& work) {
  Neighbours out;
  const int kind = all.kind_of[work.given.front()];
  const int size = static_cast<int>(work.given.size());
  for (const SizeOption& option : work.options) {
    if (option.kind != kind) continue;
    if (option.replicas == size) out.here = &option;
    if (option.replicas < size) out.smaller = &option;
    if (option.replicas > size && out.larger == nullptr) out.larger = &option;
  }
  return out;
}

std::string why_not_larger(const JobWork& work, const Neighbours& near, const SizeOption& base) {
  if (near.larger == nullptr) {
    const bool most = static_cast<int64_t>(work.given.size()) + work.job->step > work.job->max_replicas;
    return most ? "; it may have no more" : work.profiled ? "; more would not be faster" : "";
  }
  const bool worth = near.larger->value > near.here->value * (1 + 1e-9);
  return fmt::format("; {} would give {:.2g}×, {}", near.larger->replicas, near.larger->speedup / base.speedup,
                     worth ? "but others gain more from the room" : "not worth it");
}

std::string explain_given(const Allocating& all, const JobWork& work) {
  const auto size = static_cast<int64_t>(work.given.size());
  const Neighbours near = neighbours_of(all, work);
  if (!work.profiled) return fmt::format("{}: not profiled yet", workers_text(size));
  const auto kind = static_cast<size_t>(all.kind_of[work.given.front()]);
  const int nodes = static_cast<int>(std::set<size_t>(work.given.begin(), work.given.end()).size());
  const auto model = model_on(*work.job, all.kinds[kind]);
  if (!model || near.here == nullptr) return workers_text(size);
  const BatchChoice batch = model->best_batch(nodes, static_cast<int>(size));
  std::string out =
      fmt::format("throughput {}/s × efficiency {:.2f}; ", number_text(batch.throughput), batch.efficiency);
  out += workers_text(size);
  if (near.smaller != nullptr)
    out += fmt::format(" → {:.2g}× of {}", near.here->speedup / near.smaller->speedup, near.smaller->replicas);
  return out + why_not_larger(work, near, near.smaller != nullptr ? *near.smaller : *near.here);
}

std::string explain_waiting(const Allocating& all, const JobWork& work) {
  int64_t fit = 0;
  for (const KindShape& shape : all.shapes.at(work.need)) fit = std::max(fit, shape.fit);
  if (all.input.nodes.empty()) return "waits: there are no nodes";
  if (fit == 0) return fmt::format("waits: no node has {} for it", describe(work.job->resources));
  if (work.job->max_replicas <= 0) return "waits: it may have no worker";
  if (work.options.empty()) {
    const bool few = work.job->min_replicas > fit;
    return few ? fmt::format("waits: it needs {}, {} fit", workers_text(work.job->min_replicas), fit)
               : "waits: no size is within its bounds";
  }
  size_t before = 0, competing = 0;
  for (const JobWork& other : all.jobs) {
    if (other.pinned) continue;
    ++competing;
    before += other.weight > work.weight ? 1 : 0;
  }
  return fmt::format("waits: others gain more from the room; {} of {} jobs come before it", before, competing);
}

}  // namespace

std::string explain_allocation(const Allocating& all, const JobWork& work) {
  if (work.pinned)
    return fmt::format("not preemptible: stays with {}", workers_text(static_cast<int64_t>(work.given.size())));
  return work.given.empty() ? explain_waiting(all, work) : explain_given(all, work);
}

}  // namespace rubato::policy
