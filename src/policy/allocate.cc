#include "policy/allocate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/error.h"
#include "policy/allocate_work.h"

namespace rubato::policy {
namespace {

// The dimensions that some replica asks for. Others do not matter.
std::vector<std::string> asked_dimensions(const AllocateInput& input) {
  std::set<std::string> names;
  for (const AllocateJob& job : input.jobs) {
    for (const auto& [name, amount] : job.resources.amounts()) names.insert(name);
  }
  return {names.begin(), names.end()};
}

Amounts amounts_of(const Resources& resources, const std::vector<std::string>& names) {
  Amounts out;
  out.reserve(names.size());
  for (const std::string& name : names) out.push_back(resources.of(name));
  return out;
}

void find_kinds(Allocating& all) {
  std::map<std::string, int> index;
  for (const AllocateNode& node : all.input.nodes) index.emplace(node.kind, 0);
  for (auto& [kind, number] : index) {
    number = static_cast<int>(all.kinds.size());
    all.kinds.push_back(kind);
  }
  all.nodes_of.resize(all.kinds.size());
  for (size_t node = 0; node < all.input.nodes.size(); ++node) {
    all.kind_of.push_back(index[all.input.nodes[node].kind]);
    all.nodes_of[static_cast<size_t>(all.kind_of.back())].push_back(node);
    all.node_index[all.input.nodes[node].id] = node;
  }
}

JobWork work_of(const Allocating& all, size_t index, const std::vector<std::string>& names) {
  const AllocateJob& job = all.input.jobs[index];
  JobWork work{.index = index, .job = &job, .need = amounts_of(job.resources, names)};
  std::set<int> kinds;
  for (const std::string& id : job.allocation) {
    const auto found = all.node_index.find(id);
    if (found == all.node_index.end()) continue;
    work.seats.push_back(found->second);
    kinds.insert(all.kind_of[found->second]);
  }
  const auto count = static_cast<int64_t>(work.seats.size());
  work.intact = count > 0 && work.seats.size() == job.allocation.size() && kinds.size() == 1;
  if (work.intact) {
    work.current = static_cast<int>(count);
    work.current_kind = *kinds.begin();
  }
  const bool lost = work.seats.size() != job.allocation.size();
  work.pinned = !job.preemptible && count > 0 && (!lost || count >= job.min_replicas);
  return work;
}

// In the order of the jobs' age: an allocation that does not fit where it is said to be is none.
void seat_pinned(Allocating& all, SeatRoom& room) {
  for (JobWork& work : all.jobs) {
    if (!work.pinned) continue;
    size_t taken = 0;
    for (; taken < work.seats.size() && room.fits(work.seats[taken], work.need, 1) > 0; ++taken)
      room.take(work.seats[taken], work.need, 1);
    if (taken == work.seats.size()) {
      work.given = work.seats;
      continue;
    }
    for (size_t i = 0; i < taken; ++i) room.give_back(work.seats[i], work.need, 1);
    work.pinned = false;
    work.intact = false;
    work.current = 0;
  }
}

}  // namespace

std::string_view to_string(AllocatePolicy policy) {
  switch (policy) {
    case AllocatePolicy::kAdaptive:
      return "adaptive";
    case AllocatePolicy::kFair:
      return "fair";
  }
  return "";
}

AllocateDecision allocate(const AllocateInput& input, const AllocateOptions& options) {
  Allocating all{.input = input, .options = options};
  const std::vector<std::string> names = asked_dimensions(input);
  find_kinds(all);
  std::vector<Amounts> totals;
  for (const AllocateNode& node : input.nodes) totals.push_back(amounts_of(node.resources, names));
  SeatRoom room(std::move(totals));
  for (size_t i = 0; i < input.jobs.size(); ++i) all.jobs.push_back(work_of(all, i, names));
  std::sort(all.jobs.begin(), all.jobs.end(), [](const JobWork& a, const JobWork& b) {
    return a.job->age_s != b.job->age_s ? a.job->age_s > b.job->age_s : a.job->id < b.job->id;
  });
  seat_pinned(all, room);
  room.settle();
  make_options(all, room);
  weigh_jobs(all);
  value_options(all);
  share_capacity(all);
  seat_jobs(all, room);

  AllocateDecision out;
  out.desired_nodes = desired_nodes(all);
  out.jobs.resize(input.jobs.size());
  for (const JobWork& work : all.jobs) {
    JobAllocation& one = out.jobs[work.index];
    one.nodes = work.given;
    one.reason = explain_allocation(all, work);
    one.worthwhile = std::llround(std::ceil(work.worth_seats - 1e-6));
    if (work.given.empty()) continue;
    const int nodes = static_cast<int>(std::set<size_t>(work.given.begin(), work.given.end()).size());
    const auto kind = static_cast<size_t>(all.kind_of[work.given.front()]);
    if (const auto model = model_on(*work.job, all.kinds[kind])) {
      const BatchChoice batch = model->best_batch(nodes, static_cast<int>(work.given.size()));
      if (batch.goodput > 0) one.batch = batch;
    }
  }
  return out;
}

}  // namespace rubato::policy
