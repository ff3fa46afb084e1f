// The Controller's side of checkpoints: what is kept, who is told of it, who holds copies. See head/checkpoints.h.
#include <algorithm>

#include "core/turns.h"
#include "head/controller.h"

namespace rubato::head {

using elastic::OutputAck;

namespace {
constexpr Duration kPeersEvery = 5s;
constexpr size_t kCheckpointPart = size_t{2} << 20;
constexpr size_t kPeerJobsMax = 4096;  // with copies on one node, each with few items
}  // namespace

Task<OutputAck> Controller::checkpoint_offered(NodeId node, elastic::OutputOffer offer) {
  if (!state_.jobs.contains(offer.job)) {
    OutputAck ack;
    ack.job = offer.job;
    ack.state = OutputAck::State::kKept;  // nobody wants it
    co_return ack;
  }
  const JobId job = offer.job;
  OutputAck ack = co_await checkpoints_.offered(node, job, std::move(*offer.checkpoint));
  // A head that has just started learns from the nodes who holds what.
  if (ack.state == OutputAck::State::kKept && !peers_.contains(job)) assign_peers(job, false);
  co_return ack;
}

Task<OutputAck> Controller::keep_checkpoint(NodeId node, elastic::OutputPart part) {
  const JobId job = part.job;
  OutputAck ack;
  ack.job = job;
  ack.state = OutputAck::State::kKept;
  if (!state_.jobs.contains(job)) co_return ack;
  const std::string name = part.checkpoint->name;
  const bool last = part.last;
  const bool was_awaited = !checkpoints_.bringing(job).empty();
  ack = co_await checkpoints_.add(node, std::move(part));
  if (ack.state == OutputAck::State::kRefused) {
    log_.warning("checkpoint not kept",
                 {{"job", job.value}, {"node", node.value}, {"name", name}, {"why", ack.reason}});
  } else if (last && ack.state == OutputAck::State::kKept) {
    log_.info("checkpoint kept", {{"job", job.value}, {"node", node.value}, {"name", name}});
    assign_peers(job, true);
  }
  if (was_awaited && checkpoints_.bringing(job).empty()) send_orders_to_workers_of(job);
  co_return ack;
}

Task<elastic::PackagePart> Controller::checkpoint_part(elastic::PackageWanted wanted) {
  return checkpoints_.read(std::move(wanted), kCheckpointPart);
}

void Controller::add_checkpoints(elastic::Orders& orders, const NodeId& node) {
  for (elastic::JobOrder& job_order : orders.job_orders) {
    if (job_order.phase == elastic::Phase::kEnded) continue;
    job_order.checkpoints = checkpoints_.items(job_order.job);
    const std::set<NodeId> bringing = checkpoints_.bringing(job_order.job);
    job_order.more_checkpoints =
        std::ranges::any_of(bringing, [this](const NodeId& one) { return sessions_.connected(one); });
  }
  const auto held = copies_on_.find(node);
  if (held == copies_on_.end()) return;
  for (const JobId& job : held->second) {
    for (const elastic::CheckpointItem& item : checkpoints_.items(job)) {
      if (orders.copies.size() < elastic::kCopiesMax) orders.copies.push_back({job, item});
    }
  }
}

// Who is to hold copies of a job's checkpoints; all of them are told, and those who are not to any more.
void Controller::assign_peers(const JobId& job, bool has_new) {
  const auto known = state_.jobs.find(job);
  std::set<NodeId> chosen;
  if (known != state_.jobs.end() && !cluster::ended(known->second.phase) && !checkpoints_.items(job).empty()) {
    std::vector<elastic::PeerCandidate> candidates;
    for (const auto& [id, node] : state_.nodes) {
      if (node.phase != cluster::NodePhase::kUp || !sessions_.connected(id)) continue;
      const auto here = state_.jobs_on.find(id);
      elastic::PeerCandidate one;
      one.node = id;
      one.on_head_machine = node.info.machine == world_.machine.machine_id;
      one.works_on_it = here != state_.jobs_on.end() && here->second.contains(job);
      candidates.push_back(std::move(one));
    }
    for (NodeId& node : elastic::choose_peers(job, std::move(candidates), settings_.checkpoint_peers))
      chosen.insert(std::move(node));
  }
  std::set<NodeId> concerned = chosen;
  const auto before = peers_.find(job);
  if (!has_new && chosen == (before == peers_.end() ? std::set<NodeId>{} : before->second)) return;
  if (before != peers_.end()) concerned.insert(before->second.begin(), before->second.end());
  if (chosen.empty() || before != peers_.end() || peers_.size() < kPeerJobsMax) set_peers(job, std::move(chosen));
  for (const NodeId& node : concerned) send_orders_soon(node);
}

void Controller::set_peers(const JobId& job, std::set<NodeId> chosen) {
  if (const auto before = peers_.find(job); before != peers_.end()) {
    for (const NodeId& node : before->second) {
      const auto held = copies_on_.find(node);
      held->second.erase(job);
      if (held->second.empty()) copies_on_.erase(held);
    }
    peers_.erase(before);
  }
  for (const NodeId& node : chosen) copies_on_[node].insert(job);
  if (!chosen.empty()) peers_[job] = std::move(chosen);
}

void Controller::send_orders_soon(const NodeId& node) {
  // What is not durable yet is nobody's to know.
  if (committing_) {
    owed_.insert(node);
  } else {
    sessions_.send_orders(node);
  }
}

void Controller::send_orders_to_workers_of(const JobId& job) {
  for (const auto& [node, jobs] : state_.jobs_on) {
    if (jobs.contains(job)) send_orders_soon(node);
  }
}

// Nodes come and go: a copy that is gone is made anew elsewhere.
Task<void> Controller::keep_peers() {
  while (true) {
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kPeersEvery);
    checkpoints_.forget_all_but([this](const JobId& job) { return state_.jobs.contains(job); });
    checkpoints_.drop_holders([this](const NodeId& node) {
      const auto known = state_.nodes.find(node);
      return known == state_.nodes.end() || known->second.phase == cluster::NodePhase::kLost ||
             known->second.phase == cluster::NodePhase::kRemoving;
    });
    const auto is_away = [this](const NodeId& node) { return !sessions_.connected(node); };
    for (const JobId& job : checkpoints_.drop_bringing(is_away)) send_orders_to_workers_of(job);
    // Where many nodes go at once, many jobs draw lots among many nodes.
    Turns turns(world_.clock.loop());
    std::vector<JobId> pending;
    for (const auto& [job, peers] : peers_) {
      const auto known = state_.jobs.find(job);
      const bool over = known == state_.jobs.end() || cluster::ended(known->second.phase);
      const bool lost = std::ranges::any_of(peers, [this](const NodeId& node) { return !sessions_.connected(node); });
      if (over || lost || peers.size() < settings_.checkpoint_peers) pending.push_back(job);
    }
    for (const JobId& job : pending) {
      assign_peers(job, false);
      co_await turns.step();
    }
  }
}

}  // namespace rubato::head
