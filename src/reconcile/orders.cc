#include "reconcile/orders.h"

#include "reconcile/jobs.h"

namespace rubato::reconcile {

using cluster::Job;
using cluster::JobPhase;
using elastic::Errand;

namespace {

Errand errand_of(const cluster::State& state, const Job& job, const NodeId& node, const std::string& outputs) {
  Errand errand;
  errand.job = job.id;
  errand.generation = job.generation;
  errand.spec = job.spec;
  errand.output = outputs + "/" + job.id.value + "/output";
  errand.restarts_used = job.restarts_used;
  errand.grace = job.phase == JobPhase::kStopping ? job.spec.grace : job.spec.checkpoint_timeout;
  const cluster::Seat* seat = job.seat_on(node);
  if (!seat || job.phase == JobPhase::kStopping) {
    errand.phase = elastic::Phase::kEnded;
    return errand;
  }
  errand.workers = seat->workers;
  if (cluster::gathering(job.phase)) {
    errand.phase = elastic::Phase::kGathering;
    // After a failure there is nothing left to save: the other workers only wait for the dead one.
    if (job.failure_pending) errand.grace = std::min(job.spec.grace, job.spec.checkpoint_timeout);
    return errand;
  }
  errand.phase = elastic::Phase::kRunning;
  const std::vector<elastic::Assignment> places = elastic::assign_ranks(round_of(state, job));
  errand.place = places.at(static_cast<size_t>(seat - job.seats.data()));
  errand.master_addr = job.master_addr;
  errand.master_port = job.master_port;
  return errand;
}

}  // namespace

elastic::Orders orders_for(const cluster::State& state, const NodeId& node, const std::string& outputs) {
  elastic::Orders orders;
  const auto it = state.nodes.find(node);
  orders.drain = it != state.nodes.end() && it->second.phase == cluster::NodePhase::kDraining;
  const auto here = state.jobs_on.find(node);
  if (here == state.jobs_on.end()) return orders;
  for (const JobId& id : here->second) orders.errands.push_back(errand_of(state, state.jobs.at(id), node, outputs));
  return orders;
}

}  // namespace rubato::reconcile
