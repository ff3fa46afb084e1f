#include "reconcile/fence.h"

#include <fmt/format.h>

#include <algorithm>

#include "elastic/lease.h"

namespace rubato::reconcile {

using cluster::CutOff;
using cluster::Job;
using cluster::Observed;
using cluster::Seat;
using cluster::State;
using cluster::Wake;

namespace {

size_t witness_count(const Job& job) { return std::min(job.round.size(), elastic::kWitnessesMax); }

// At least half of the witnesses have said that this agent cannot go on by their word.
bool is_disowned(const Observed& observed, const Job& job, const CutOff& cut_off) {
  // One that left an older round in place counts that round's witnesses: nobody asks them any more.
  if (cut_off.round != 0 && cut_off.round != job.ran) return false;
  const auto fenced = observed.fenced.find(cut_off.agent);
  if (fenced == observed.fenced.end()) return false;
  size_t clear = 0;
  for (size_t i = 0; i < witness_count(job); ++i) clear += fenced->second.contains(job.round[i].agent) ? 1 : 0;
  return 2 * clear >= witness_count(job);
}

// The head's own machine: what runs there it ends itself.
bool is_leased(const Observed& observed, const NodeId& node) { return observed.leases && node.value != kHeadNode; }

// How much longer it must be silent; nullopt: only a proof helps.
std::optional<Duration> time_left(const State& state, const Observed& observed, const Job& job, const NodeId& node,
                                  const CutOff& cut_off) {
  if (!is_leased(observed, node)) return std::nullopt;
  const auto silence = observed.silence.find(node);
  if (silence == observed.silence.end()) return std::nullopt;
  Duration needed = elastic::lease_over_after(cluster::round_lease_of(state, job));
  if (job.round.size() > 1 && is_disowned(observed, job, cut_off))
    needed = std::min(needed, elastic::takeover_after(observed.heartbeat));
  Duration left = needed - silence->second;
  if (const auto ends = observed.ends_in.find(node); ends != observed.ends_in.end())
    left = std::min(left, ends->second);
  return std::max<Duration>(0s, left);
}

}  // namespace

bool is_fenced_off(const State& state, const Observed& observed, const Job& job, WallTime now, Wake& wake) {
  bool fenced = true;
  for (const auto& [node, cut_off] : job.cut_off) {
    const std::optional<Duration> left = time_left(state, observed, job, node, cut_off);
    if (left && *left <= 0s) continue;
    fenced = false;
    if (left) wake.by(cluster::later(now, *left + 1ms));
  }
  return fenced;
}

Duration silence_allowed(const State& state, const NodeId& node, const std::function<bool(const NodeId&)>& is_heard) {
  const auto here = state.jobs_on.find(node);
  if (here == state.jobs_on.end()) return 0s;
  std::optional<Duration> shortest;
  for (const JobId& id : here->second) {
    const Job& job = state.jobs.at(id);
    const auto mine = [&](const Seat& seat) { return seat.node == node; };
    const size_t witnesses = witness_count(job);
    if (cluster::ended(job.phase) || std::ranges::none_of(job.round, mine)) continue;
    const auto heard = std::count_if(job.round.begin(), job.round.begin() + static_cast<std::ptrdiff_t>(witnesses),
                                     [&](const Seat& seat) { return seat.node != node && is_heard(seat.node); });
    if (job.round.size() > 1 && 2 * static_cast<size_t>(heard) >= witnesses) return 0s;
    const Duration lease = cluster::round_lease_of(state, job);
    shortest = std::min(shortest.value_or(lease), lease);
  }
  return shortest.value_or(0s);
}

std::string fence_reason(const State& state, const Observed& observed, const Job& job) {
  for (const auto& [node, cut_off] : job.cut_off) {
    const std::optional<Duration> left = time_left(state, observed, job, node, cut_off);
    if (left && *left <= 0s) continue;
    const std::string until = left ? fmt::format("until it has surely ended them, in {}", format_duration(*left))
                                   : "until it is known to be dead";
    return fmt::format("waits for workers that may still run on node {}, which is silent: {}", node.value, until);
  }
  return "";
}

}  // namespace rubato::reconcile
