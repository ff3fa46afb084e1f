#include "policy/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <ranges>

#include "policy/board.h"
#include "policy/explain.h"
#include "policy/keep.h"
#include "policy/queue.h"

namespace rubato::policy {

using cluster::Job;
using cluster::JobHeld;
using cluster::JobPhase;
using cluster::JobPlaced;
using cluster::later;
using cluster::NodePhase;
using cluster::Observed;
using cluster::Reasons;
using cluster::Seat;
using cluster::State;
using cluster::Wake;

Duration patience(const Job& job, const NodeId& node) {
  // Old workers may use their whole checkpoint time before a seat can be ready.
  return job.spec.rescale_timeout + (job.holding.contains(node) ? job.spec.checkpoint_timeout : Duration(0));
}

namespace {

int count_workers(const std::vector<Seat>& seats) {
  int sum = 0;
  for (const Seat& seat : seats) sum += seat.workers;
  return sum;
}

// Their room is not free yet: old workers fill it until they have ended.
void drop_last(std::vector<Seat>& seats, int count) {
  for (; count > 0; --count) {
    if (--seats.back().workers == 0) seats.pop_back();
  }
}

using HoldTick = std::chrono::duration<int64_t, std::ratio<10>>;

// Jobs that ask for the same: what keeps one waiting keeps all of them, and is worked out once.
struct SameDemand {
  bool operator()(const JobSpec* a, const JobSpec* b) const {
    return std::tie(a->workers_min, a->workers_max, a->workers_step, a->per_worker) <
           std::tie(b->workers_min, b->workers_max, b->workers_step, b->per_worker);
  }
};
struct Waiting {
  std::optional<Reasons> limits;  // it would not fit if it had the cluster to itself
  Reasons behind, starved;        // it fits, but not now
  uint64_t limits_digest = 0, behind_digest = 0;
  int* blocked = nullptr;  // the fewest workers of this size that found no room
};

class Placer {
 public:
  Placer(const State& state, const Observed& observed, WallTime now, Wake& wake)
      : state_(state), observed_(observed), now_(now), wake_(wake) {}

  std::vector<cluster::Event> run() {
    repair();
    shrink();
    serve();
    grow();
    return finish();
  }

 private:
  // What was decided for one job so far.
  struct Draft {
    std::vector<Seat> seats;
    std::string cause;
    std::vector<NodeId> shunned;
    bool restart = false;   // whatever its workers can do
    bool in_place = false;  // the living go on at once; more are added when they have
    bool broken = false;
  };

  void repair();
  void replace_lost(const Job& job, const std::set<NodeId>& shunned, std::vector<Seat>& seats);
  bool waits_to_hear(const Job& job);
  std::optional<Draft> mend(const Job& job);
  std::optional<Draft> mend_unsettled(const Job& job);
  std::optional<Draft> mend_kept(const Job& job);
  void keep_living(const Job& job, Draft& draft);
  void shrink();
  void serve();
  bool serve_one(const Job& job);
  bool make_room(const Job& job);
  bool room_soon(const Job& job);
  Board& board() { return room_ ? *room_ : room_.emplace(state_); }
  Board& soon();
  std::vector<const Job*> donors(const Job& job) const;
  std::set<NodeId> shunned_now(const Job& job);
  const std::set<NodeId>& kept_for_starved();
  Waiting& waiting(const Job& job);
  int64_t room_when_empty(const Resources& each);
  void hold(const Job& job, const Reasons& reasons, uint64_t digest);
  void hold(const Job& job, const Reasons& reasons) { hold(job, reasons, cluster::digest(reasons)); }
  void grow();
  bool may_grow(const Job& job);
  std::vector<cluster::Event> finish();

  const State& state_;
  const Observed& observed_;
  const WallTime now_;
  Wake& wake_;
  std::optional<Board> room_;  // made when it is first asked for: most decisions move nobody
  std::map<JobId, Draft> drafts_;
  std::vector<cluster::Event> held_;
  std::set<JobId> unseated_;  // lose their seats: they have none to give or to add to
  std::map<Resources, int> blocked_;
  std::map<const JobSpec*, Waiting, SameDemand> waiting_;
  std::map<Resources, int64_t> room_when_empty_;
  std::optional<Board> soon_;
  const Job* starved_ = nullptr;  // nothing passes it
  std::optional<std::set<NodeId>> kept_for_starved_;
  size_t explained_ = 0;
  bool room_awaited_ = false;
  bool cut_ = false;  // the rest of the queue has its turn in the next decision
};

std::set<NodeId> Placer::shunned_now(const Job& job) {
  std::set<NodeId> shunned = observed_.silent;
  for (const auto& [node, until] : job.shunned) {
    if (until <= now_) continue;
    shunned.insert(node);
    wake_.by(until);
  }
  return shunned;
}

// Nodes with room that could hold a worker of the starved job; the others are of no use to it, whoever has them.
const std::set<NodeId>& Placer::kept_for_starved() {
  if (kept_for_starved_) return *kept_for_starved_;
  kept_for_starved_.emplace();
  for (const auto& [id, room] : state_.index.rooms()) {
    if (starved_->spec.per_worker.fits_in(state_.nodes.at(id).resources)) kept_for_starved_->insert(id);
  }
  return *kept_for_starved_;
}

// Not for ever: who tells nothing for so long cannot be kept.
bool Placer::waits_to_hear(const Job& job) {
  if (!awaits_reports(state_, observed_, job)) return false;
  const WallTime deadline = later(std::max(job.since, observed_.listening_since), job.spec.checkpoint_timeout);
  if (now_ >= deadline) return false;
  wake_.by(deadline);
  return true;
}

// A job whose seats are all there and that has no reason to change: nullopt.
std::optional<Placer::Draft> Placer::mend(const Job& job) {
  Draft draft;
  std::vector<std::string> lost;
  for (const Seat& seat : job.seats) {
    const auto it = state_.nodes.find(seat.node);
    if (it != state_.nodes.end() && it->second.usable() && it->second.agent == seat.agent) {
      draft.seats.push_back(seat);
    } else if (job.phase != JobPhase::kRunning || !job.done.contains(seat.node)) {
      // One that was done is missed only if the round is formed anew.
      const bool drains = it != state_.nodes.end() && it->second.phase == NodePhase::kDraining;
      std::string what = drains ? "drains" : "was lost";
      if (drains && it->second.departs()) what += fmt::format(" ({})", it->second.reason);
      lost.push_back(fmt::format("node {} {}", seat.node.value, what));
    }
  }
  if (!lost.empty()) {
    draft.cause = lost.size() == 1 ? lost.front() : fmt::format("{} and {} more", lost.front(), lost.size() - 1);
    return draft;
  }
  if (job.phase == JobPhase::kRunning) {
    if (!job.restarts.failure_pending) return mend_unsettled(job);
    draft.cause = elastic::describe_cause(job.restarts.failures);
    return draft;
  }
  if (job.in_place) {
    if (is_nearly_done(observed_, job)) return std::nullopt;
    if (std::optional<Draft> kept = mend_kept(job)) return kept;
  }
  for (const Seat& seat : job.seats) {
    // Nobody was late while nobody listened.
    const WallTime deadline = later(std::max(job.since, observed_.listening_since), patience(job, seat.node));
    if (observed_.of(job.id, seat.node, job.generation)) continue;
    if (now_ >= deadline || observed_.has_declined(job.id, seat.node)) {
      draft.shunned.push_back(seat.node);
    } else {
      wake_.by(deadline);
    }
  }
  if (draft.shunned.empty()) return std::nullopt;
  std::erase_if(draft.seats, [&](const Seat& seat) { return std::ranges::count(draft.shunned, seat.node) > 0; });
  draft.cause = fmt::format("node {}{} not ready within {}", draft.shunned.front().value,
                            draft.shunned.size() > 1 ? fmt::format(" and {} more", draft.shunned.size() - 1) : "",
                            format_duration(patience(job, draft.shunned.front())));
  if (observed_.has_declined(job.id, draft.shunned.front()))
    draft.cause = fmt::format("a new worker on node {} ended before it could join", draft.shunned.front().value);
  return draft;
}

// A round that runs, with workers that have not followed its plan: it failed, or they are late.
std::optional<Placer::Draft> Placer::mend_unsettled(const Job& job) {
  const auto unsettled = observed_.unsettled.find(job.id);
  if (unsettled == observed_.unsettled.end()) return std::nullopt;
  Draft draft;
  draft.seats = job.seats;
  const bool nearly_done = is_nearly_done(observed_, job);
  for (const NodeId& node : unsettled->second) {
    const elastic::InPlaceReport* report = observed_.in_place_of(job.id, node);
    if (!report || report->broken.empty() || report->planned != job.generation || nearly_done) continue;
    draft.cause = fmt::format("its group failed on node {} ({})", node.value, report->broken);
    draft.broken = true;
    return draft;
  }
  if (!job.in_place) return std::nullopt;
  const WallTime deadline = later(std::max(job.since, observed_.listening_since), job.spec.checkpoint_timeout);
  if (now_ < deadline) {
    wake_.by(deadline);
    return std::nullopt;
  }
  draft.restart = true;
  draft.cause = fmt::format("workers on node {} did not change in place within {}", unsettled->second.begin()->value,
                            format_duration(job.spec.checkpoint_timeout));
  return draft;
}

// A round that gathers around workers that live: some died since, or cannot be kept after all.
std::optional<Placer::Draft> Placer::mend_kept(const Job& job) {
  Draft draft;
  draft.seats = job.seats;
  if (!can_keep(state_, observed_, job, job.seats)) {
    draft.restart = true;
    draft.cause = "its workers cannot change in place any more";
    return draft;
  }
  if (!job.restarts.failure_pending) return std::nullopt;
  keep_living(job, draft);
  if (draft.seats == job.seats) return std::nullopt;
  draft.cause = elastic::describe_cause(job.restarts.failures);
  return draft;
}

// The living go on at once without the dead, if they are enough.
void Placer::keep_living(const Job& job, Draft& draft) {
  std::vector<Seat> living = seats_of_living(observed_, job, draft.seats);
  const int count = count_workers(living);
  if (count < job.spec.workers_min || count % job.spec.workers_step != 0) return;
  if (can_keep(state_, observed_, job, living)) draft.seats = std::move(living);
}

void Placer::repair() {
  std::vector<const Job*> order;
  const auto add = [&](const JobId& id) {
    const auto it = state_.jobs.find(id);
    if (it == state_.jobs.end() || !cluster::placed(it->second.phase)) return;
    if (!cluster::is_unheard(state_, observed_, it->second)) order.push_back(&it->second);
  };
  for (const JobId& id : state_.index.pending_jobs()) add(id);
  for (const auto& [id, nodes] : observed_.unsettled) {
    if (!state_.index.pending_jobs().contains(id)) add(id);
  }
  std::ranges::sort(order, {}, [](const Job* job) { return std::tuple(-job->spec.priority, job->submitted, job->id); });
  for (const Job* job : order) {
    if (waits_to_hear(*job)) continue;
    std::optional<Draft> draft = mend(*job);
    if (!draft) continue;
    // What it had is its to rearrange; its old workers on nodes that it leaves still fill them.
    std::set<NodeId> shunned = shunned_now(*job);
    shunned.insert(draft->shunned.begin(), draft->shunned.end());
    if (job->restarts.failure_pending && !draft->restart) keep_living(*job, *draft);
    const int have = count_workers(draft->seats);
    const int missing = job->spec.workers_min - have;
    if (missing > 0 && !board().take(job->spec.per_worker, missing, shunned, draft->seats)) {
      // Unready seats may still come: nothing better is to be had.
      if (!draft->shunned.empty() && !observed_.has_declined(job->id, draft->shunned.front())) continue;
      if (!draft->shunned.empty()) {
        // Those who wait for it start anew with it: that tells what is wrong, or mends it.
        draft->seats = job->seats;
        draft->restart = true;
        draft->shunned.clear();
        drafts_[job->id] = std::move(*draft);
        continue;
      }
      Reasons reasons = why_not(state_, *job, board());
      reasons.against.insert(reasons.against.begin(), {draft->cause, ""});
      held_.push_back(JobHeld{job->id, std::move(reasons)});
      unseated_.insert(job->id);
      continue;
    }
    const bool whole = count_workers(draft->seats) % job->spec.workers_step == 0;
    draft->in_place = !draft->restart && whole && can_keep(state_, observed_, *job, draft->seats);
    if (!draft->in_place) replace_lost(*job, shunned, draft->seats);
    drafts_[job->id] = std::move(*draft);
  }
}

// Lost workers are replaced at once where there is room: the round is formed anew in any case.
void Placer::replace_lost(const Job& job, const std::set<NodeId>& shunned, std::vector<Seat>& seats) {
  const Resources& each = job.spec.per_worker;
  const int step = job.spec.workers_step;
  int have = count_workers(seats);
  if (step == 1) {
    if (job.workers() > have) board().take_some(each, job.workers() - have, shunned, seats);
    return;
  }
  const int rest = have % step;
  if (rest > 0 && !board().take(each, step - rest, shunned, seats)) drop_last(seats, rest);
  have = count_workers(seats);
  while (have < job.workers() && board().take(each, step, shunned, seats)) have += step;
}

// Adaptive jobs that are to have fewer than they have.
void Placer::shrink() {
  if (state_.shutting_down) return;
  for (const JobId& id : state_.index.elastic_jobs()) {
    const Job& job = state_.jobs.at(id);
    const int most = job.workers_most();
    if (job.sized == 0 || job.workers() <= most || drafts_.contains(id) || unseated_.contains(id)) continue;
    if (job.phase != JobPhase::kRunning || !may_grow(job)) continue;
    Draft draft;
    draft.seats = job.seats;
    drop_last(draft.seats, job.workers() - most);
    draft.cause = fmt::format("shrinks from {} to {} workers", job.workers(), most);
    drafts_[id] = std::move(draft);
  }
}

void Placer::serve() {
  if (state_.queued.empty()) return;
  serve_in_turn(state_, [this](const Job& job) {
    if (held_.size() >= kHeldMax || drafts_.size() >= kPlacedMax) {
      cut_ = true;
      return Served::kStop;
    }
    if (serve_one(job)) return Served::kYes;
    if (!starved_ && now_ - job.queued_since >= kStarvation && !waiting(job).limits) starved_ = &job;
    return Served::kNo;
  });
  if (cut_) wake_.by(now_);
}

Waiting& Placer::waiting(const Job& job) {
  const auto [it, first] = waiting_.try_emplace(&job.spec);
  Waiting& waiting = it->second;
  if (!first) return waiting;
  waiting.blocked = &blocked_.try_emplace(job.spec.per_worker, std::numeric_limits<int>::max()).first->second;
  waiting.behind.wanted = waiting.starved.wanted = wanted(job.spec);
  waiting.behind.against.push_back({"no room, and other jobs come first", ""});
  waiting.behind.changes.push_back("jobs before it start or end; rubato jobs shows the queue");
  waiting.behind_digest = cluster::digest(waiting.behind);
  waiting.starved.changes.push_back("that job starts");
  const int64_t room = room_when_empty(job.spec.per_worker);
  if (room < job.spec.workers_min) waiting.limits = why_too_few(state_, job.spec, room);
  if (waiting.limits) waiting.limits_digest = cluster::digest(*waiting.limits);
  return waiting;
}

int64_t Placer::room_when_empty(const Resources& each) {
  const auto [it, first] = room_when_empty_.try_emplace(each, 0);
  if (!first) return it->second;
  for (const auto& [size, nodes] : state_.index.sizes()) it->second += nodes * each.times_in(size);
  return it->second;
}

bool Placer::serve_one(const Job& job) {
  const Resources& each = job.spec.per_worker;
  std::set<NodeId> shunned = shunned_now(job);
  const bool shuns = !shunned.empty();
  Waiting& waits = waiting(job);
  const bool hopeless = *waits.blocked <= job.spec.workers_min;
  if (starved_ && !hopeless) shunned.insert(kept_for_starved().begin(), kept_for_starved().end());
  Draft draft;
  if (!state_.shutting_down && !hopeless && board().take(each, job.spec.workers_min, shunned, draft.seats)) {
    draft.cause = job.generation == 0 ? "its turn" : "there is room again";
    if (soon_) soon_->occupy(each, draft.seats);
    drafts_[job.id] = std::move(draft);
    return true;
  }
  if (waits.limits) {
    hold(job, *waits.limits, waits.limits_digest);
    return false;
  }
  // Another job may have the nodes that this one shuns.
  if (!shuns) *waits.blocked = std::min(*waits.blocked, job.spec.workers_min);
  if (starved_ && explained_ < kExplainedMax) {
    ++explained_;
    waits.starved.against = {
        {fmt::format("job {} has waited too long: nothing passes it any more", starved_->id.value), ""}};
    hold(job, waits.starved);
    return false;
  }
  if (starved_ || hopeless || explained_ >= kExplainedMax) {
    hold(job, waits.behind, waits.behind_digest);
    return false;
  }
  ++explained_;
  Reasons reasons = why_not(state_, job, board());
  if (!state_.shutting_down && make_room(job)) {
    reasons.against.insert(reasons.against.begin(),
                           {"other jobs are giving up workers above their minimum for it", ""});
    reasons.changes.insert(reasons.changes.begin(), "these workers have saved and ended");
  }
  hold(job, reasons);
  return false;
}

std::vector<const Job*> Placer::donors(const Job& job) const {
  std::vector<const Job*> donors;
  for (const JobId& id : state_.index.elastic_jobs()) {
    const Job& other = state_.jobs.at(id);
    if (other.phase != JobPhase::kRunning || !other.done.empty() || drafts_.contains(id) || unseated_.contains(id))
      continue;
    if (observed_.finishing.contains(id) || cluster::is_unheard(state_, observed_, other)) continue;
    if (observed_.unsettled.contains(id) || is_nearly_done(observed_, other)) continue;
    if (awaits_reports(state_, observed_, other)) continue;
    if (other.spec.priority <= job.spec.priority && other.workers() > other.spec.workers_min) donors.push_back(&other);
  }
  std::ranges::sort(
      donors, {}, [](const Job* d) { return std::tuple(d->spec.priority, d->spec.workers_min - d->workers(), d->id); });
  return donors;
}

// The room when workers that are going have gone, and what is decided so far is done.
Board& Placer::soon() {
  if (soon_) return *soon_;
  soon_.emplace(state_, true);
  for (const auto& [id, draft] : drafts_) {
    const Job& job = state_.jobs.at(id);
    soon_->give_back(job.spec.per_worker, job.seats);
    soon_->occupy(job.spec.per_worker, draft.seats);
  }
  return *soon_;
}

// When there is room soon it is kept for this job, or smaller ones would take it and others give up theirs in vain.
bool Placer::room_soon(const Job& job) {
  std::vector<Seat> seats;
  if (!soon().take(job.spec.per_worker, job.spec.workers_min, shunned_now(job), seats)) return false;
  board().occupy(job.spec.per_worker, seats);
  room_awaited_ = true;
  return true;
}

// True when room for this job comes without anybody's end: workers are going away, or are told to now.
bool Placer::make_room(const Job& job) {
  if (room_soon(job)) return true;
  const Resources& each = job.spec.per_worker;
  const std::set<NodeId> shunned = shunned_now(job);
  struct Gift {
    const Job* donor;
    std::vector<Seat> kept, given;
  };
  std::vector<Gift> gifts;
  for (const Job* donor : donors(job)) {
    if (soon().capacity(each, shunned) >= job.spec.workers_min) break;
    Gift& gift = gifts.emplace_back(Gift{donor, donor->seats, {}});
    const int step = donor->spec.workers_step;
    int extra = donor->workers() - donor->spec.workers_min;
    for (; extra > 0 && soon().capacity(each, shunned) < job.spec.workers_min; extra -= step) {
      for (int i = 0; i < step; ++i) {
        gift.given.push_back(Seat{gift.kept.back().node, gift.kept.back().agent, 1});
        soon().give_back_last(donor->spec.per_worker, gift.kept);
      }
    }
  }
  // Gifts that turn out not to be needed are returned, those of the most important jobs first.
  const bool enough = soon().capacity(each, shunned) >= job.spec.workers_min;
  for (Gift& gift : std::views::reverse(gifts)) {
    soon().occupy(gift.donor->spec.per_worker, gift.given);
    if (enough && soon().capacity(each, shunned) < job.spec.workers_min) {
      soon().give_back(gift.donor->spec.per_worker, gift.given);
    } else {
      gift.given.clear();
    }
  }
  if (!enough || !room_soon(job)) return false;
  for (Gift& gift : gifts) {
    if (gift.given.empty()) continue;
    Draft draft;
    draft.seats = std::move(gift.kept);
    draft.cause = fmt::format("makes room for job {}", job.id.value);
    drafts_[gift.donor->id] = std::move(draft);
  }
  return true;
}

// Numbers in reasons change all the time; what stands against a job seldom does. In a long queue nobody reads them all,
// and each is a record: the more jobs wait, the seldomer they are told.
void Placer::hold(const Job& job, const Reasons& reasons, uint64_t digest) {
  if (job.decided != 0 && job.phase == JobPhase::kQueued) {
    if (job.reasons_digest == digest) return;
    const int64_t crowd = static_cast<int64_t>(state_.queued.size() / kCrowd);
    const bool same_kind = job.reasons.against.size() == reasons.against.size();
    // All at the same ticks: one decision serves them all.
    const WallTime due = later(job.decided_at, kHoldAgain * (1 + crowd));
    const WallTime again = std::chrono::ceil<HoldTick>(due);
    if ((same_kind || crowd > 0) && now_ < again) {
      wake_.by(again);
      return;
    }
  }
  held_.push_back(JobHeld{job.id, reasons});
}

bool Placer::may_grow(const Job& job) {
  if (drafts_.contains(job.id)) return true;
  if (job.phase != JobPhase::kRunning || !job.done.empty() || job.restarts.failure_pending) return false;
  if (observed_.finishing.contains(job.id) || cluster::is_unheard(state_, observed_, job)) return false;
  if (observed_.unsettled.contains(job.id) || is_nearly_done(observed_, job) || waits_to_hear(job)) return false;
  const WallTime at = std::max(
      {later(state_.last_join, kJoinsSettle), later(job.since, kJoinsSettle), later(job.rescaled, kGrowEvery)});
  if (now_ >= at) return true;
  wake_.by(at);
  return false;
}

void Placer::grow() {
  // Room that is being made is for the queue, and so is what the rest of it has not been asked about yet.
  if (room_awaited_ || cut_ || state_.shutting_down) return;
  const auto seats_of = [&](const Job& job) -> const std::vector<Seat>& {
    const auto draft = drafts_.find(job.id);
    return draft == drafts_.end() ? job.seats : draft->second.seats;
  };
  // The next worker, or step of them, goes to the job with the fewest above its MIN.
  std::set<std::tuple<int, int, WallTime, JobId>> turns;
  const auto add = [&](const Job& job) {
    const int workers = count_workers(seats_of(job));
    if (workers >= job.workers_most() || board().capacity(job.spec.per_worker) == 0) return;
    // A starved job could not have it back from a more important one.
    if (starved_ && job.spec.priority > starved_->spec.priority) return;
    if (may_grow(job)) turns.emplace(workers - job.spec.workers_min, -job.spec.priority, job.submitted, job.id);
  };
  for (const auto& [id, draft] : drafts_) {
    if (!draft.in_place) add(state_.jobs.at(id));
  }
  for (const JobId& id : state_.index.elastic_jobs()) {
    const Job& job = state_.jobs.at(id);
    if (!drafts_.contains(id) && !unseated_.contains(id) && cluster::placed(job.phase)) add(job);
  }
  std::map<JobId, std::vector<Seat>> grown;
  while (!turns.empty()) {
    auto [extra, priority, submitted, id] = turns.extract(turns.begin()).value();
    const Job& job = state_.jobs.at(id);
    std::vector<Seat>& seats = grown.try_emplace(id, seats_of(job)).first->second;
    const int step = job.spec.workers_step;
    if (!board().take(job.spec.per_worker, step, shunned_now(job), seats)) continue;
    extra += step;
    if (extra < job.workers_most() - job.spec.workers_min) turns.emplace(extra, priority, submitted, std::move(id));
  }
  for (auto& [id, seats] : grown) {
    const Job& job = state_.jobs.at(id);
    if (count_workers(seats) == count_workers(seats_of(job))) continue;
    const auto [draft, undrafted] = drafts_.try_emplace(id);
    if (undrafted)
      draft->second.cause = fmt::format("grows from {} to {} workers", job.workers(), count_workers(seats));
    draft->second.seats = std::move(seats);
  }
}

std::vector<cluster::Event> Placer::finish() {
  std::vector<cluster::Event> events = std::move(held_);
  for (auto& [id, draft] : drafts_) {
    const Job& job = state_.jobs.at(id);
    JobPlaced placed;
    placed.job = id;
    placed.generation = job.generation + 1;
    placed.in_place = !draft.restart && can_keep(state_, observed_, job, draft.seats);
    placed.broken = draft.broken;
    placed.reasons = why_so_many(state_, job, count_workers(draft.seats));
    placed.seats = std::move(draft.seats);
    placed.cause = std::move(draft.cause);
    placed.shunned = std::move(draft.shunned);
    events.emplace_back(std::move(placed));
  }
  return events;
}

}  // namespace

std::vector<cluster::Event> place(const State& state, const Observed& observed, WallTime now, Wake& wake) {
  return Placer(state, observed, now, wake).run();
}

}  // namespace rubato::policy
