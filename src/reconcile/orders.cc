#include "reconcile/orders.h"

#include <algorithm>

#include "elastic/lease.h"
#include "reconcile/jobs.h"

namespace rubato::reconcile {

using cluster::Job;
using cluster::JobPhase;
using elastic::JobOrder;

namespace {

// The same ranks as elastic::assign_ranks gives to round_of(job), without a copy of every member for every member.
elastic::Assignment place_of(const Job& job, const cluster::Seat& seat) {
  elastic::Assignment place;
  place.group_rank = static_cast<int>(&seat - job.seats.data());
  place.group_world_size = static_cast<int>(job.seats.size());
  for (int i = 0; i < place.group_rank; ++i) place.first_rank += job.seats[static_cast<size_t>(i)].workers;
  place.world_size = job.workers();
  place.first_role_rank = place.first_rank;
  place.role_world_size = place.world_size;
  return place;
}

// Whose workers have which ranks, for those who ask by AdaptDL's protocol. As many messages as nodes have it.
std::vector<elastic::PeerSeat> peers_of(const cluster::State& state, const Job& job) {
  std::vector<elastic::PeerSeat> peers;
  if (job.seats.size() > elastic::kPeersMax) return peers;
  const bool one_machine = elastic::is_loopback(job.master_addr);
  for (const cluster::Seat& seat : job.seats) {
    const auto node = state.nodes.find(seat.node);
    const bool known = node != state.nodes.end() && !one_machine;
    peers.push_back({known ? node->second.info.address : job.master_addr, seat.workers});
  }
  // However others call it: this is the address by which they reach it.
  if (!peers.empty()) peers.front().address = job.master_addr;
  return peers;
}

std::vector<elastic::WitnessAddress> witnesses_of(const cluster::State& state,
                                                  const std::vector<cluster::Seat>& seats) {
  std::vector<elastic::MemberInfo> members;
  if (seats.size() < 2) return {};
  for (const cluster::Seat& seat : seats) {
    const auto node = state.nodes.find(seat.node);
    if (members.size() == elastic::kWitnessesMax) break;
    members.push_back(node == state.nodes.end() ? elastic::MemberInfo{} : node->second.info);
    members.back().id = seat.agent;
  }
  std::vector<elastic::WitnessAddress> witnesses;
  for (const elastic::MemberInfo& member : members) {
    witnesses.push_back({member.id, elastic::reachable_address(member, members), member.peer_port});
  }
  return witnesses;
}

// The workers of the last round go on, by its lease, until the next plan is made.
void keep_workers(const cluster::State& state, const Job& job, JobOrder& job_order) {
  job_order.kept = job.ran;
  job_order.lease = cluster::round_lease_of(state, job);
  job_order.witnesses = witnesses_of(state, job.round);
}

// A node that a job leaves.
void order_departure(const cluster::State& state, const Job& job, const NodeId& node, JobOrder& job_order) {
  const auto known = state.nodes.find(node);
  const bool of_round = known != state.nodes.end() && std::ranges::any_of(job.round, [&](const cluster::Seat& seat) {
                          return seat.node == node && seat.agent == known->second.agent;
                        });
  if (cluster::gathering(job.phase) && job.in_place && of_round) keep_workers(state, job, job_order);
  if (job.phase == JobPhase::kRunning && job.in_place) job_order.plan = job.plan;
}

JobOrder job_order_of(const cluster::State& state, const Job& job, const NodeId& node, const std::string& outputs) {
  JobOrder job_order;
  job_order.job = job.id;
  job_order.generation = job.generation;
  job_order.spec = job.spec;
  job_order.output = outputs + "/" + job.id.value + "/output";
  job_order.restarts_used = job.restarts.used;
  job_order.grace = job.phase == JobPhase::kStopping ? job.spec.grace : job.spec.checkpoint_timeout;
  const cluster::Seat* seat = job.seat_on(node);
  // The seat may be done, and its agent another one by now: that has nothing to run.
  const auto known = state.nodes.find(node);
  if (seat && known != state.nodes.end() && known->second.agent != seat->agent) seat = nullptr;
  if (!seat || job.phase == JobPhase::kStopping) {
    job_order.phase = elastic::Phase::kEnded;
    order_departure(state, job, node, job_order);
    return job_order;
  }
  job_order.workers = seat->workers;
  if (cluster::gathering(job.phase)) {
    job_order.phase = elastic::Phase::kGathering;
    if (job.in_place) {
      keep_workers(state, job, job_order);
      job_order.place = place_of(job, *seat);
    }
    // After a failure there is nothing left to save: the other workers only wait for the dead one.
    if (job.restarts.failure_pending) job_order.grace = std::min(job.spec.grace, job.spec.checkpoint_timeout);
    return job_order;
  }
  job_order.phase = elastic::Phase::kRunning;
  job_order.place = place_of(job, *seat);
  job_order.master_addr = job.master_addr;
  job_order.master_port = job.master_port;
  job_order.peers = peers_of(state, job);
  job_order.lease = cluster::round_lease_of(state, job);
  job_order.witnesses = witnesses_of(state, job.seats);
  job_order.plan = job.plan;
  return job_order;
}

// Whom this node may not vouch for any more.
std::vector<AgentId> fence_of(const cluster::State& state, const NodeId& node) {
  std::set<AgentId> fenced;
  for (const JobId& id : state.beside_cut_off) {
    const Job& job = state.jobs.at(id);
    const auto mine = [&](const cluster::Seat& seat) { return seat.node == node; };
    if (std::ranges::none_of(job.round, mine)) continue;
    for (const auto& [other, cut_off] : job.cut_off) fenced.insert(cut_off.agent);
  }
  return {fenced.begin(), fenced.end()};
}

std::vector<elastic::OutputOrder> outputs_of(const cluster::State& state, const NodeId& node) {
  std::vector<elastic::OutputOrder> orders;
  const auto held = state.outputs_on.find(node);
  if (held == state.outputs_on.end()) return orders;
  const auto here = state.jobs_on.find(node);
  for (const JobId& id : held->second) {
    if (here != state.jobs_on.end() && here->second.contains(id)) continue;  // its workers may still write
    const cluster::Output& output = state.jobs.at(id).outputs.at(node);
    orders.push_back(elastic::OutputOrder{id, output.phase != cluster::Output::Phase::kKept});
  }
  return orders;
}

}  // namespace

elastic::Orders orders_for(const cluster::State& state, const NodeId& node, const std::string& outputs) {
  elastic::Orders orders;
  const auto it = state.nodes.find(node);
  orders.drain = it != state.nodes.end() && it->second.phase == cluster::NodePhase::kDraining;
  orders.outputs = outputs_of(state, node);
  orders.fence = fence_of(state, node);
  const auto here = state.jobs_on.find(node);
  if (here == state.jobs_on.end()) return orders;
  for (const JobId& id : here->second)
    orders.job_orders.push_back(job_order_of(state, state.jobs.at(id), node, outputs));
  return orders;
}

}  // namespace rubato::reconcile
