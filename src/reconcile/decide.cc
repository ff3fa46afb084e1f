#include "reconcile/decide.h"

#include <algorithm>

#include "cluster/apply.h"
#include "core/error.h"
#include "policy/place.h"
#include "reconcile/jobs.h"
#include "reconcile/nodes.h"
#include "reconcile/resize.h"

namespace rubato::reconcile {

namespace {

// Each round answers the one before: a job takes a handful of steps from queued to running.
constexpr int kRoundsMax = 100;
// Whatever follows from so many records is decided in another turn: a head has others to serve meanwhile.
constexpr size_t kRecordsMax = 500;
// Each round looks at all who wait: where they are so many, a round that changed something is the turn's last.
constexpr size_t kLongQueue = 2000;

void commit(cluster::State& state, std::vector<cluster::Event> events, WallTime now, Decision& decision) {
  for (cluster::Event& event : events) {
    cluster::Record record;
    record.offset = state.offset + 1;
    record.time = now;
    record.event = std::move(event);
    cluster::apply(state, record);
    decision.records.push_back(std::move(record));
  }
}

}  // namespace

Decision decide(cluster::State& state, PlanMemory& memory, const cluster::Observed& observed,
                std::vector<cluster::Event> happened, WallTime now) {
  Decision decision;
  // The wall clock may be set back; the journal's time never goes back.
  now = std::max(now, state.time);
  commit(state, std::move(happened), now, decision);
  const size_t happened_count = decision.records.size();
  for (int round = 0;; ++round) {
    CHECK(round < kRoundsMax);
    decision.wake = {};
    const size_t before = decision.records.size();
    commit(state, advance_nodes(state, observed, now, decision.wake), now, decision);
    commit(state, advance_jobs(state, observed, now, decision.wake), now, decision);
    // What is free, and who needs it, is known when all have been heard: seats are given, and nodes made, only then.
    const bool know_all = !cluster::any_unheard(state, observed);
    if (know_all && state.resize_at) {
      if (now >= *state.resize_at) {
        state.resize_at.reset();
        commit(state, resize(state, now), now, decision);
      } else {
        decision.wake.by(*state.resize_at);
      }
    }
    if (know_all) commit(state, policy::place(state, observed, now, decision.wake), now, decision);
    const auto changed = [&] { return decision.records.size() > before; };
    const bool long_queue = state.queued.size() > kLongQueue;
    const bool much = decision.records.size() - happened_count >= kRecordsMax;
    // What jobs could not get is known when no round changes anything.
    if (know_all && !changed()) commit(state, advance_scale_when_due(state, memory, now, decision.wake), now, decision);
    if (!changed()) return decision;
    if (much || long_queue) {
      decision.wake.by(now);
      return decision;
    }
  }
}

}  // namespace rubato::reconcile
