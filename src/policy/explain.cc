#include "policy/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace rubato::policy {

using cluster::Job;
using cluster::Reasons;
using cluster::State;

namespace {

constexpr size_t kNamedMax = 5;

std::string count(int64_t n, std::string_view word) { return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s"); }

// What the cluster file allows for workers of one size.
struct Capacity {
  int64_t workers = 0;                // with every type at its limit
  int64_t workers_capped = 0;         // and no more nodes than the cluster may have
  const NodeType* largest = nullptr;  // by the first resource that is asked for
  Resources largest_has;
  const NodeType* useful = nullptr;  // the one that holds the most workers, at least one
  int64_t useful_fits = 0;
  bool known = true;  // false: a node may still come of which nobody knows what it has
};

class CapacityCounter {
 public:
  CapacityCounter(const State& state, const Resources& each) : state_(state), each_(each) {
    name_ = each.empty() ? std::string(kCpu) : each.amounts().begin()->first;
  }

  Capacity count() {
    const ClusterSpec& spec = *state_.spec;
    for (const auto& [name, type] : spec.types) {
      // The head's machine is a node, too, beyond the limit of its type.
      const int64_t limit = type.max_workers + (name == spec.head_type ? 1 : 0);
      type.resources.empty() ? add_seen(type, limit) : add(type, type.resources, limit);
    }
    int64_t nodes_left = spec.max_workers + (spec.head_type.empty() ? 0 : 1);
    for (const auto& [fits, nodes] : nodes_by_fits_) {
      const int64_t used = std::min(nodes, nodes_left);
      out_.workers_capped += fits * used;
      nodes_left -= used;
    }
    return out_;
  }

 private:
  void add(const NodeType& type, const Resources& resources, int64_t nodes) {
    const int64_t fits = each_.times_in(resources);
    if (fits > 0) {
      out_.workers += fits * nodes;
      nodes_by_fits_[fits] += nodes;
      if (!out_.useful || fits > out_.useful_fits) {
        out_.useful = &type;
        out_.useful_fits = fits;
      }
    }
    if (!out_.largest || resources.of(name_) > out_.largest_has.of(name_)) {
      out_.largest = &type;
      out_.largest_has = resources;
    }
  }

  // The file does not say what such machines have: those that have joined do.
  void add_seen(const NodeType& type, int64_t limit) {
    int64_t seen = 0;
    for (const auto& [id, node] : state_.nodes) {
      if (node.type != type.name || node.resources.empty()) continue;
      add(type, node.resources, 1);
      ++seen;
    }
    if (seen < limit) out_.known = false;
    if (!out_.largest) out_.largest = &type;
  }

  const State& state_;
  const Resources& each_;
  std::string name_;
  std::map<int64_t, int64_t, std::greater<>> nodes_by_fits_;
  Capacity out_;
};

std::vector<std::string> names(const State& state, const std::set<JobId>& ids, const JobId& but) {
  std::vector<std::string> out;
  for (const JobId& id : ids) {
    const Job& job = state.jobs.at(id);
    if (out.size() == kNamedMax) break;
    if (id != but && !job.seats.empty()) out.push_back(fmt::format("{} ({})", id.value, job.spec.name));
  }
  return out;
}

// "rubato up local.yaml" for a limit at local.yaml:8:18: without the name, `up` reads the copy that the cluster keeps.
std::string up_with(const std::string& where) {
  const std::string_view file = std::string_view(where).substr(0, where.find(':'));
  return file.empty() ? "rubato up" : fmt::format("rubato up {}", shell_quote(file));
}

void add_node_limits(const State& state, const Resources& each, Reasons& reasons) {
  for (const auto& [name, type] : state.spec->types) {
    if (!type.resources.empty() && each.times_in(type.resources) <= 0) continue;
    const auto [all, there, up, coming] = state.index.count(name);
    if (coming > 0) {
      reasons.against.push_back({fmt::format("{} of type '{}' not up yet", count(coming, "node"), name), ""});
      reasons.changes.push_back(
          fmt::format("the {} of type '{}' come{} up", coming == 1 ? "node" : "nodes", name, coming == 1 ? "s" : ""));
    } else if (up < type.max_workers) {
      reasons.against.push_back(
          {fmt::format("type '{}' has {}, and may have {}", name, count(up, "node"), type.max_workers),
           type.max_where});
      reasons.changes.push_back(
          fmt::format("more nodes of '{}' are launched; what holds them up: rubato why --last", name));
    } else {
      reasons.against.push_back(
          {fmt::format("type '{}' is at its limit of {}", name, count(type.max_workers, "node")), type.max_where});
      reasons.changes.push_back(fmt::format("max_workers of '{}' is raised, then: {}", name, up_with(type.max_where)));
    }
  }
}

}  // namespace

std::string wanted(const JobSpec& spec) {
  const std::string each = describe(spec.per_worker);
  if (spec.workers_min == spec.workers_max)
    return fmt::format("{} of {} each", count(spec.workers_min, "worker"), each);
  const std::string steps = spec.workers_step == 1 ? "" : fmt::format(" in steps of {}", spec.workers_step);
  return fmt::format("{} to {} workers{} of {} each", spec.workers_min, spec.workers_max, steps, each);
}

std::optional<Reasons> why_never(const State& state, const JobSpec& spec) {
  if (!state.spec) return std::nullopt;
  const Resources& each = spec.per_worker;
  const Capacity capacity = CapacityCounter(state, each).count();
  if (!capacity.known || capacity.workers_capped >= spec.workers_min) return std::nullopt;
  Reasons reasons;
  reasons.wanted = wanted(spec);
  if (!capacity.useful) {
    const NodeType* largest = capacity.largest;
    reasons.against.push_back(
        {fmt::format("no node type can hold one worker of {}; the nearest, '{}', has {}", describe(each),
                     largest ? largest->name : "", describe(capacity.largest_has)),
         largest ? largest->resources_where : ""});
    reasons.changes.push_back("ask for less per worker, or give a node type more, then: " +
                              up_with(reasons.against.back().where));
  } else if (capacity.workers >= spec.workers_min) {
    reasons.against.push_back(
        {fmt::format("the cluster can hold {} of this size at most (max_workers {} over all types)",
                     count(capacity.workers_capped, "worker"), state.spec->max_workers),
         state.spec->max_where});
    reasons.changes.push_back("ask for fewer workers, or raise max_workers of the cluster, then: " +
                              up_with(state.spec->max_where));
  } else {
    const NodeType& type = *capacity.useful;
    reasons.against.push_back(
        {fmt::format("the cluster can hold {} of this size at most ('{}': {} a node, max_workers {})",
                     count(capacity.workers, "worker"), type.name, capacity.useful_fits, type.max_workers),
         type.max_where});
    reasons.changes.push_back("ask for fewer workers, or raise max_workers, then: " + up_with(type.max_where));
  }
  return reasons;
}

namespace {

std::optional<Reasons> why_no_cluster(const State& state, const JobSpec& spec) {
  if (!state.shutting_down && state.spec) return std::nullopt;
  Reasons reasons;
  reasons.wanted = wanted(spec);
  reasons.against.push_back(
      {state.shutting_down ? "the cluster is shutting down" : "the cluster has no configuration yet", ""});
  reasons.changes.push_back("rubato up");
  return reasons;
}

}  // namespace

Reasons why_too_few(const State& state, const JobSpec& spec, int64_t room) {
  if (std::optional<Reasons> none = why_no_cluster(state, spec)) return *none;
  if (std::optional<Reasons> never = why_never(state, spec)) return *never;
  Reasons reasons;
  reasons.wanted = wanted(spec);
  reasons.against.push_back(
      {fmt::format("the nodes that are up hold {} of {}", room, count(spec.workers_min, "worker")), ""});
  add_node_limits(state, spec.per_worker, reasons);
  return reasons;
}

Reasons why_not(const State& state, const Job& job, Board& board) {
  const Resources& each = job.spec.per_worker;
  Reasons reasons;
  reasons.wanted = wanted(job.spec);
  if (std::optional<Reasons> none = why_no_cluster(state, job.spec)) return *none;
  if (std::optional<Reasons> never = why_never(state, job.spec)) return *never;
  reasons.against.push_back(
      {fmt::format("room for {} of {} now", board.capacity(each), count(job.spec.workers_min, "worker")), ""});
  add_node_limits(state, each, reasons);
  const std::vector<std::string> holders = names(state, state.active, job.id);
  if (!holders.empty()) {
    reasons.against.push_back({fmt::format("in use by {}", join(holders, ", ")), ""});
    reasons.changes.push_back(fmt::format("{} ends", holders.size() == 1 ? holders.front() : "one of these jobs"));
  }
  return reasons;
}

Reasons why_so_many(const State& state, const Job& job, int workers) {
  Reasons reasons;
  reasons.wanted = wanted(job.spec);
  if (workers >= job.spec.workers_max || !state.spec) return reasons;
  if (job.sized > 0 && workers >= job.workers_most()) {
    reasons.against.push_back({job.size_reason, ""});
    return reasons;
  }
  reasons.against.push_back({fmt::format("no room for more than {}", count(workers, "worker")), ""});
  add_node_limits(state, job.spec.per_worker, reasons);
  const std::vector<std::string> holders = names(state, state.active, job.id);
  if (!holders.empty())
    reasons.changes.push_back(fmt::format("{} ends", holders.size() == 1 ? holders.front() : "another job"));
  return reasons;
}

}  // namespace rubato::policy
