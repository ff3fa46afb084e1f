// How a round is gathered, formed and ended; the events are in rendezvous.cc.
#include <fmt/format.h>

#include <algorithm>

#include "elastic/rendezvous.h"

namespace rubato::elastic {

namespace {

constexpr size_t kOneMachineMax = 256;  // agents that a view names
std::string count(size_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }
}  // namespace

void Rendezvous::gather(const std::string& reason, Instant now) {
  phase_ = Phase::kGathering;
  ++generation_;
  ++revision_;
  restarts_.stop(now - running_since_);
  gathering_since_ = now;
  not_before_ = now;
  unexplained_stop_ = false;
  restart_ = false;
  departing_.clear();
  break_until_ = now;
  preparing_ = false;
  reason_ = reason;
  note(Note::Kind::kGathering, reason);
}

std::optional<Rendezvous::Doorway> Rendezvous::doorway(const AgentId& id) const {
  const auto it = members_.find(id);
  if (it == members_.end() || it->second.info.peer_port == 0) return std::nullopt;
  const MemberInfo& info = it->second.info;
  const bool outside = is_loopback(info.address) && !info.addresses.empty() && spans_machines();
  return Doorway{outside ? info.addresses.front() : info.address, info.peer_port};
}

uint64_t Rendezvous::seniority(const AgentId& id) const {
  const auto it = members_.find(id);
  return it == members_.end() ? UINT64_MAX : it->second.seniority;
}

bool Rendezvous::in_round(const AgentId& id) const {
  const auto it = members_.find(id);
  if (it == members_.end()) return false;
  return round_ > 0 ? it->second.round == round_ : incumbent_ || it->second.veteran;
}

void Rendezvous::drop(const AgentId& id) {
  const auto it = members_.find(id);
  if (it == members_.end()) return;
  // A spare of the host before: nobody may wonder any more where it is.
  if (in_round(id) || it->second.veteran) dead_.add(id, in_round(id));
  members_.erase(it);
  ++details_;
}

void Rendezvous::lose(const AgentId& id, Loss how, const std::string& reason, Instant now) {
  const auto it = members_.find(id);
  if (it == members_.end()) return;
  const Member member = it->second;
  const bool in_round = round_ > 0 && member.round == round_;
  const bool done = in_round && member.done == round_;
  if (how == Loss::kDead) {
    drop(id);
  } else {
    const std::optional<Doorway> door = doorway(id);
    if (door) {
      missing_.push_back({id, member.info.host, door->address, door->port, in_round, member.info.identity});
    }
    members_.erase(it);
    last_missing_ = now;
    ++details_;
  }
  note(Note::Kind::kLost, reason, &member.info);
  if (in_round && !done) {
    if (phase_ == Phase::kRunning) gather(fmt::format("lost the agent on {} ({})", member.info.host, reason), now);
    restarts_.lost = true;
  }
  if (losing_several_) return;
  end_if_all_done();
  try_form(now);
}

void Rendezvous::try_form(Instant now) {
  if (phase_ != Phase::kGathering || members_.empty() || retired_) return;
  const std::string waiting = unanswered(now);
  if (!waiting.empty()) return;
  const std::string cannot = why_restart();
  if (!cannot.empty()) return restart_instead(cannot);
  if (any_finished() && !any_veteran() && !restarts_.lost && !round_failed_) {
    return end(true, "all workers ended well");
  }
  // Who lives does not wait for a replacement to be started.
  if (!settle_failure(now) || (now < not_before_ && !any_veteran()) || now < break_until_) return;
  update_prepared();
  const std::string why = obstacle(now);
  if (why.empty()) {
    form(now);
  } else if (now >= gathering_since_ + terms_.join_timeout) {
    end(false, fmt::format("{}, after waiting {} (join_timeout)", why, format_duration(terms_.join_timeout)));
  } else if (why != reason_) {
    reason_ = why;
    ++details_;
  }
}

std::string Rendezvous::unanswered(Instant now) const {
  for (const auto& [id, member] : members_) {
    if (member.ready_for != generation_) return "the agent on " + member.info.host + " still has workers";
  }
  if (incumbent_) return "";
  const int missing = round_size_ - static_cast<int>(dead_.in_round.size()) - alive();
  const bool only_host = missing == 1 && lost_host_.in_round && !dead_.has(lost_host_.id) && !has(lost_host_.id);
  if (missing > 0 && now < (only_host ? host_fenced_ : everybody_fenced_)) return "members of the last round";
  return "";
}

bool Rendezvous::settle_failure(Instant now) {
  const bool owes = restarts_.owes();
  restarts_.failure_pending = false;
  return !owes || charge(describe_cause(restarts_.failures), restarts_.uptime, now);
}

bool Rendezvous::charge(const std::string& cause, Duration uptime, Instant now) {
  const std::optional<Duration> delay = restarts_.charge(terms_.max_restarts, uptime);
  if (!delay) {
    std::string text =
        terms_.max_restarts == 0 ? cause : count(static_cast<size_t>(restarts_.used), "restart") + " used up: ";
    if (terms_.max_restarts > 0) {
      for (const std::string& earlier : causes_) text += earlier + "; ";
      text += "now " + cause;
    }
    end(false, text);
    return false;
  }
  causes_.push_back(cause);
  if (causes_.size() > 8) causes_.erase(causes_.begin());
  not_before_ = now + *delay;
  if (*delay > 0ns && phase_ == Phase::kGathering) {
    reason_ = fmt::format("crashes in a row: starting again in {}", format_duration(*delay));
  }
  ++details_;
  return true;
}

std::string Rendezvous::obstacle(Instant now) const {
  if (!quorum_holds()) {
    return fmt::format(
        "only {} of the last {} agents answer: the others may go on without us, so this side must not (a partitioned "
        "minority)",
        alive(), round_size_ - dead_count());
  }
  const Intake taken = intake();
  const int there = static_cast<int>(std::ranges::count_if(candidates(), [&](const Member* member) {
    return taken == Intake::kAll || !plannable(member->workers.slots, taken).empty();
  }));
  if (there < terms_.min_nodes) {
    return fmt::format("waiting for {} ({} of at least {} here)",
                       count(static_cast<size_t>(terms_.min_nodes - there), "more agent"), there, terms_.min_nodes);
  }
  if (round_ == 0 && there < terms_.max_nodes && now < last_join_ + terms_.last_call) {
    return fmt::format("last call: {} here, up to {} may join", count(static_cast<size_t>(there), "agent"),
                       terms_.max_nodes);
  }
  if (round_ == 0 && incumbent_ && now < gathering_since_ + terms_.first_round_after) {
    return "making sure that no older host of this group is left";
  }
  return "";
}

int Rendezvous::alive() const {
  return static_cast<int>(std::ranges::count_if(members_, [&](const auto& entry) {
    const Member& member = entry.second;
    const bool heard = now_ < member.proof + fence_after(terms_.heartbeat);
    return heard && !member.disconnected && (round_ > 0 ? member.round == round_ : member.veteran);
  }));
}

bool Rendezvous::all_in_touch(Instant since) const {
  return last_missing_ < since && std::ranges::all_of(members_, [&](const auto& entry) {
           return !entry.second.disconnected && now_ < entry.second.proof + fence_after(terms_.heartbeat);
         });
}

bool Rendezvous::anybody_elsewhere() const {
  if (static_cast<int>(dead_.in_round.size()) + alive() < round_size_) return true;
  if (std::ranges::any_of(missing_, [&](const Successor& agent) { return !dead_.has(agent.id); })) return true;
  if (incumbent_) return false;
  const auto spares = std::ranges::count_if(
      members_, [&](const auto& entry) { return entry.second.veteran && entry.second.round != round_; });
  return static_cast<int>(dead_.spares.size()) + spares < legacy_spares_;
}

int Rendezvous::dead_count() const {
  const size_t all = dead_.in_round.size();
  const bool doubtful = !dead_.unseen.empty() && anybody_elsewhere();
  return static_cast<int>(doubtful ? all - dead_.unseen.size() : all);
}

bool Rendezvous::quorum_holds() const {
  if (!terms_.needs_quorum || (round_ == 0 && incumbent_)) return true;
  const int dead = dead_count();
  if (!incumbent_ && dead >= round_size_) {
    // Nobody of the last round is left, so nothing runs: the spares decide among themselves.
    const Quorum spares{legacy_spares_, static_cast<int>(dead_.spares.size()), false};
    const auto here = std::ranges::count_if(members_, [](const auto& m) { return m.second.veteran; });
    return spares.holds(static_cast<int>(here));
  }
  const Quorum quorum{round_size_, dead, incumbent_};
  return quorum.holds(alive());
}

std::vector<const Rendezvous::Member*> Rendezvous::candidates(int spares) const {
  std::vector<const Member*> order;
  for (const auto& [id, member] : members_) {
    if (!member.leaving) order.push_back(&member);
  }
  std::ranges::sort(order, {}, [](const Member* m) { return std::pair(m->info.node_rank.value_or(0), m->seniority); });
  const size_t most = static_cast<size_t>(terms_.max_nodes) + static_cast<size_t>(spares);
  if (order.size() > most) order.resize(most);
  return order;
}

int Rendezvous::usable(size_t agents) const { return static_cast<int>(agents) / terms_.step * terms_.step; }

void Rendezvous::form(Instant now) {
  const Intake taken = intake();
  const bool lives_on = taken != Intake::kAll;
  std::vector<MemberInfo> agents;
  std::vector<Answer> answers;
  for (const Member* member : candidates()) {
    Answer answer{member->master_port, plannable(member->workers.slots, taken), member->workers.store};
    if (lives_on && answer.slots.empty()) continue;
    agents.push_back(member->info);
    answers.push_back(std::move(answer));
  }
  agents.resize(static_cast<size_t>(usable(agents.size())));
  answers.resize(agents.size());
  formed_ = form_round(agents, answers, formed_.plan);
  if (formed_.plan && lives_on) formed_.plan->departing = departing_;
  restarts_.start();
  restarts_.failures.clear();
  round_ = generation_;
  round_size_ = static_cast<int>(agents.size());
  incumbent_ = true;
  dead_ = {};
  missing_.clear();
  round_failed_ = false;
  finishing_ = lives_on && any_finished();
  round_ids_.clear();
  for (size_t i = 0; i < agents.size(); ++i) {
    Member& member = members_.at(agents[i].id);
    member.round = round_;
    member.place = formed_.places[i];
    member.settled = lives_on;  // they have declared that they can
    round_ids_.insert(agents[i].id);
  }
  phase_ = Phase::kRunning;
  running_since_ = now;
  reason_ =
      count(agents.size(), "agent") + ", " + count(static_cast<size_t>(formed_.places.front().world_size), "worker");
  ++revision_;
  update_prepared();
  note(Note::Kind::kRunning, reason_);
}

void Rendezvous::end_if_all_done() {
  if (phase_ == Phase::kEnded || round_ == 0) return;
  // While gathering, a round that lost a member or failed has not ended well, whatever the others say.
  if (phase_ == Phase::kGathering && (restarts_.lost || round_failed_ || generation_ != round_ + 1)) return;
  int in_round = 0;
  for (const auto& [id, member] : members_) {
    if (member.round != round_) continue;
    if (member.done != round_) return;
    ++in_round;
  }
  if (in_round > 0) end(true, "all workers ended well");
}

void Rendezvous::end(bool succeeded, const std::string& reason) {
  phase_ = Phase::kEnded;
  succeeded_ = succeeded;
  reason_ = reason;
  ++revision_;
  note(Note::Kind::kEnded, reason);
}

void Rendezvous::note(Note::Kind kind, const std::string& reason, const MemberInfo* member) {
  Note entry{kind, member ? *member : MemberInfo{}, generation_, reason};
  notes_.push_back(std::move(entry));
}

Legacy Rendezvous::legacy() const {
  Legacy legacy;
  legacy.epoch = epoch_;
  legacy.generation = generation_;
  legacy.round = round_;
  const int left = round_size_ - dead_count();
  legacy.round_size = round_ > 0 ? left : static_cast<int>(members_.size());
  legacy.spares = static_cast<int>(
      std::ranges::count_if(members_, [&](const auto& m) { return round_ > 0 && m.second.round != round_; }));
  legacy.restarts_used = restarts_.used;
  legacy.causes = causes_;
  legacy.next_seniority = next_seniority_;
  legacy.terms = terms_;
  return legacy;
}

std::vector<AgentId> Rendezvous::member_ids() const {
  std::vector<AgentId> ids;
  for (const auto& [id, member] : members_) ids.push_back(id);
  return ids;
}

std::vector<Successor> Rendezvous::successors() const {
  // Members of the last round first: only they count for the quorum of a takeover.
  std::vector<const Member*> order;
  for (const auto& [id, member] : members_) {
    if (member.info.peer_port != 0 && !member.leaving) order.push_back(&member);
  }
  std::ranges::sort(order, {}, [&](const Member* m) { return std::pair(m->round != round_, m->seniority); });
  // On one machine all are named: only so each knows that nobody is elsewhere.
  const bool named = !order.empty() && !order.front()->info.identity.empty();
  const size_t most = !spans_machines() ? kOneMachineMax : named ? kIdentitiesMax : kSuccessorsMax;
  std::vector<Successor> out;
  for (const Member* member : order) {
    if (out.size() >= most) break;
    const Doorway door = *doorway(member->info.id);
    Successor successor{member->info.id, member->info.host, door.address, door.port};
    successor.in_round = member->round == round_;
    successor.identity = member->info.identity;
    out.push_back(std::move(successor));
  }
  return out;
}

// Those who leave take nothing over, but they count until they are gone: a successor must be able to find out.
std::vector<Successor> Rendezvous::worth_asking_after() const {
  std::vector<Successor> out;
  for (const auto& [id, member] : members_) {
    const std::optional<Doorway> door = doorway(id);
    if (member.leaving && in_round(id) && door) {
      out.push_back({id, member.info.host, door->address, door->port, true, member.info.identity});
    }
  }
  out.insert(out.end(), missing_.begin(), missing_.end());
  std::ranges::stable_partition(out, [](const Successor& agent) { return agent.in_round; });
  const bool named = !out.empty() && !out.front().identity.empty();
  out.resize(std::min(out.size(), named ? kIdentitiesMax : kSuccessorsMax));
  return out;
}

bool Rendezvous::spans_machines() const {
  return std::ranges::any_of(
      members_, [&](const auto& entry) { return entry.second.info.machine != members_.begin()->second.info.machine; });
}

View Rendezvous::common_view() const {
  View view;
  view.legacy = legacy();
  view.phase = phase_;
  view.reason = reason_;
  view.provisional = !quorum_holds();
  view.host_leaves = retired_;
  view.successors = successors();
  view.missing = worth_asking_after();
  view.master_addr = formed_.master_addr;
  view.master_port = formed_.master_port;
  view.restart = phase_ == Phase::kGathering && restart_;
  if (phase_ == Phase::kRunning) view.plan = formed_.plan;
  if (phase_ == Phase::kEnded) {
    view.succeeded = succeeded_;
    if (!succeeded_) view.failures = restarts_.failures;
  }
  return view;
}

void Rendezvous::personalise(View& view, const AgentId& id) const {
  const auto it = members_.find(id);
  view.seniority = it == members_.end() ? 0 : it->second.seniority;
  view.assignment.reset();
  view.in_round = round_ > 0 && in_round(id);
  if (it != members_.end() && phase_ == Phase::kRunning && it->second.round == round_) {
    view.assignment = it->second.place;
  }
  view.prepare = prepares(id);
}

}  // namespace rubato::elastic
