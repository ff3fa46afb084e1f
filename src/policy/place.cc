#include "policy/place.h"

#include <fmt/format.h>

#include <algorithm>

#include "policy/board.h"
#include "policy/explain.h"

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

Duration patience(const Job& job) {
  // Old workers may use their whole checkpoint time before a seat can be ready.
  const Duration saving = job.started == WallTime{} ? Duration(0) : job.spec.checkpoint_timeout;
  return job.spec.rescale_timeout + saving;
}

namespace {

std::set<NodeId> shunned_now(const Job& job, WallTime now) {
  std::set<NodeId> shunned;
  for (const auto& [node, until] : job.shunned) {
    if (until > now) shunned.insert(node);
  }
  return shunned;
}

int count_workers(const std::vector<Seat>& seats) {
  int sum = 0;
  for (const Seat& seat : seats) sum += seat.workers;
  return sum;
}

class Placer {
 public:
  Placer(const State& state, const Observed& observed, WallTime now, Wake& wake)
      : state_(state), observed_(observed), now_(now), wake_(wake), board_(state) {}

  std::vector<cluster::Event> run() {
    repair();
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
  };

  void repair();
  std::optional<Draft> mend(const Job& job);
  void serve();
  bool serve_one(const Job& job);
  bool make_room(const Job& job);
  std::vector<const Job*> donors(const Job& job) const;
  void hold(const Job& job, const Reasons& reasons);
  void grow();
  bool may_grow(const Job& job);
  std::vector<cluster::Event> finish();
  double share(const std::string& owner);

  const State& state_;
  const Observed& observed_;
  const WallTime now_;
  Wake& wake_;
  Board board_;
  std::map<JobId, Draft> drafts_;
  std::vector<cluster::Event> held_;
  std::map<std::string, double> shares_;  // of CPUs in use, by owner
  std::set<std::pair<Resources, int>> blocked_shapes_;
  size_t explained_ = 0;
  bool room_awaited_ = false;
};

// A job whose seats are all there and that has no reason to change: nullopt.
std::optional<Placer::Draft> Placer::mend(const Job& job) {
  Draft draft;
  std::vector<std::string> lost;
  for (const Seat& seat : job.seats) {
    const auto it = state_.nodes.find(seat.node);
    const bool there = it != state_.nodes.end() && it->second.usable() && it->second.agent == seat.agent;
    if (there || (job.phase == JobPhase::kRunning && job.done.contains(seat.node))) {
      draft.seats.push_back(seat);
    } else {
      const bool drains = it != state_.nodes.end() && it->second.phase == NodePhase::kDraining;
      lost.push_back(fmt::format("node {} {}", seat.node.value, drains ? "drains" : "was lost"));
    }
  }
  if (!lost.empty()) {
    draft.cause = lost.size() == 1 ? lost.front() : fmt::format("{} and {} more", lost.front(), lost.size() - 1);
    // Done seats only counted towards an end that did not come.
    std::erase_if(draft.seats, [&](const Seat& seat) {
      const auto it = state_.nodes.find(seat.node);
      return it == state_.nodes.end() || !it->second.usable() || it->second.agent != seat.agent;
    });
    return draft;
  }
  if (job.phase == JobPhase::kRunning) {
    if (!job.failure_pending) return std::nullopt;
    const elastic::Failure* first = elastic::root_cause(job.failures);
    draft.cause = first ? elastic::describe(*first) : "a worker failed";
    return draft;
  }
  const WallTime deadline = later(job.since, patience(job));
  std::vector<Seat> ready;
  for (const Seat& seat : job.seats) {
    if (observed_.of(job.id, seat.node, job.generation)) {
      ready.push_back(seat);
    } else {
      draft.shunned.push_back(seat.node);
    }
  }
  if (draft.shunned.empty()) return std::nullopt;
  if (now_ < deadline) {
    wake_.by(deadline);
    return std::nullopt;
  }
  draft.seats = ready;
  draft.cause = fmt::format("node {}{} not ready within {}", draft.shunned.front().value,
                            draft.shunned.size() > 1 ? fmt::format(" and {} more", draft.shunned.size() - 1) : "",
                            format_duration(patience(job)));
  return draft;
}

void Placer::repair() {
  std::vector<const Job*> order;
  for (const JobId& id : state_.active) {
    const Job& job = state_.jobs.at(id);
    if (cluster::placed(job.phase)) order.push_back(&job);
  }
  std::ranges::sort(order, {}, [](const Job* job) { return std::tuple(-job->spec.priority, job->submitted, job->id); });
  for (const Job* job : order) {
    std::optional<Draft> draft = mend(*job);
    if (!draft) continue;
    // What it had is its to rearrange; its old workers on nodes that it leaves still fill them.
    std::set<NodeId> shunned = shunned_now(*job, now_);
    shunned.insert(draft->shunned.begin(), draft->shunned.end());
    const int have = count_workers(draft->seats);
    const int missing = job->spec.workers_min - have;
    if (missing > 0 && !board_.take(job->spec.per_worker, missing, shunned, draft->seats)) {
      // Unready seats may still come: nothing better is to be had.
      if (!draft->shunned.empty()) continue;
      Reasons reasons = why_not(state_, *job, board_);
      reasons.against.insert(reasons.against.begin(), {draft->cause, ""});
      held_.push_back(JobHeld{job->id, std::move(reasons)});
      continue;
    }
    // Lost workers are replaced at once where there is room: the round is formed anew in any case.
    const int wanted = job->workers() - std::max(have, job->spec.workers_min);
    if (wanted > 0) board_.take_some(job->spec.per_worker, wanted, shunned, draft->seats);
    drafts_[job->id] = std::move(*draft);
  }
}

double Placer::share(const std::string& owner) {
  if (shares_.empty()) {
    shares_[""] = 0;
    for (const JobId& id : state_.active) {
      const Job& job = state_.jobs.at(id);
      shares_[job.spec.owner] += static_cast<double>(job.workers()) *
                                 static_cast<double>(job.spec.per_worker.of(kCpu) + 8 * job.spec.per_worker.of(kGpu));
    }
  }
  return shares_[owner];
}

void Placer::serve() {
  if (state_.queued.empty()) return;
  // By priority, then per owner the oldest first.
  std::map<int, std::map<std::string, std::vector<const Job*>>, std::greater<>> lines;
  for (const JobId& id : state_.queued) {
    const Job& job = state_.jobs.at(id);
    lines[job.spec.priority][job.spec.owner].push_back(&job);
  }
  bool starved = false;
  for (auto& [priority, owners] : lines) {
    for (auto& [owner, jobs] : owners) {
      std::ranges::sort(jobs, std::greater<>(), [](const Job* job) { return std::pair(job->submitted, job->id); });
    }
    while (!owners.empty()) {
      const auto next = std::ranges::min_element(owners, {}, [&](const auto& entry) {
        return std::tuple(share(entry.first), entry.second.back()->submitted);
      });
      const Job* job = next->second.back();
      next->second.pop_back();
      const std::string owner = next->first;
      if (next->second.empty()) owners.erase(next);
      if (starved) {
        Reasons reasons;
        reasons.wanted = wanted(job->spec);
        reasons.against.push_back({"an older job has waited too long: nothing passes it any more", ""});
        reasons.changes.push_back("that job starts");
        hold(*job, reasons);
      } else if (serve_one(*job)) {
        shares_[owner] += static_cast<double>(job->spec.workers_min) *
                          static_cast<double>(job->spec.per_worker.of(kCpu) + 8 * job->spec.per_worker.of(kGpu));
      } else if (now_ - job->queued_since >= kStarvation) {
        starved = Board(state_, true).capacity(job->spec.per_worker) > 0;
      }
    }
  }
}

bool Placer::serve_one(const Job& job) {
  const Resources& each = job.spec.per_worker;
  const auto shape = std::pair(each, job.spec.workers_min);
  const auto same = blocked_shapes_.lower_bound({each, 0});
  const bool hopeless = same != blocked_shapes_.end() && same->first == each && same->second <= job.spec.workers_min;
  Draft draft;
  if (!state_.shutting_down && !hopeless &&
      board_.take(each, job.spec.workers_min, shunned_now(job, now_), draft.seats)) {
    draft.cause = job.generation == 0 ? "its turn" : "there is room again";
    drafts_[job.id] = std::move(draft);
    return true;
  }
  if (hopeless || explained_ >= kExplainedMax) {
    Reasons reasons;
    reasons.wanted = wanted(job.spec);
    reasons.against.push_back({"no room, and other jobs come first", ""});
    reasons.changes.push_back("jobs before it start or end; rubato jobs shows the queue");
    hold(job, reasons);
    return false;
  }
  ++explained_;
  blocked_shapes_.insert(shape);
  Reasons reasons = why_not(state_, job, board_);
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
  for (const JobId& id : state_.active) {
    const Job& other = state_.jobs.at(id);
    if (other.phase != JobPhase::kRunning || !other.done.empty() || drafts_.contains(id)) continue;
    if (other.spec.priority <= job.spec.priority && other.workers() > other.spec.workers_min) donors.push_back(&other);
  }
  std::ranges::sort(
      donors, {}, [](const Job* d) { return std::tuple(d->spec.priority, d->spec.workers_min - d->workers(), d->id); });
  return donors;
}

// True when room for this job comes without anybody's end: workers are going away, or are told to now.
bool Placer::make_room(const Job& job) {
  const Resources& each = job.spec.per_worker;
  Board soon(state_, true);
  if (soon.capacity(each) >= job.spec.workers_min) {
    room_awaited_ = true;
    return true;
  }
  std::map<JobId, std::vector<Seat>> shrunk;
  for (const Job* donor : donors(job)) {
    std::vector<Seat> seats = donor->seats;
    int extra = donor->workers() - donor->spec.workers_min;
    while (extra-- > 0 && soon.capacity(each) < job.spec.workers_min)
      soon.give_back_last(donor->spec.per_worker, seats);
    shrunk[donor->id] = std::move(seats);
    if (soon.capacity(each) >= job.spec.workers_min) break;
  }
  if (soon.capacity(each) < job.spec.workers_min) return false;
  for (auto& [id, seats] : shrunk) {
    Draft draft;
    draft.seats = std::move(seats);
    draft.cause = fmt::format("makes room for job {}", job.id.value);
    drafts_[id] = std::move(draft);
  }
  room_awaited_ = true;
  return true;
}

// Numbers in reasons change all the time; what stands against a job seldom does.
void Placer::hold(const Job& job, const Reasons& reasons) {
  if (job.decided != 0 && job.phase == JobPhase::kQueued) {
    if (job.reasons == reasons) return;
    const WallTime again = later(job.decided_at, kHoldAgain);
    const bool same_kind = job.reasons.against.size() == reasons.against.size();
    if (same_kind && now_ < again) {
      wake_.by(again);
      return;
    }
  }
  held_.push_back(JobHeld{job.id, reasons});
}

bool Placer::may_grow(const Job& job) {
  if (drafts_.contains(job.id)) return true;
  if (job.phase != JobPhase::kRunning || !job.done.empty() || job.failure_pending) return false;
  const WallTime at = std::max(
      {later(state_.last_join, kJoinsSettle), later(job.since, kJoinsSettle), later(job.rescaled, kGrowEvery)});
  if (now_ >= at) return true;
  wake_.by(at);
  return false;
}

void Placer::grow() {
  // Room that is being made is for the queue.
  if (room_awaited_ || state_.shutting_down) return;
  std::vector<const Job*> elastic;
  for (const auto& [id, draft] : drafts_) elastic.push_back(&state_.jobs.at(id));
  for (const JobId& id : state_.active) {
    const Job& job = state_.jobs.at(id);
    if (!drafts_.contains(id) && cluster::placed(job.phase)) elastic.push_back(&job);
  }
  std::erase_if(elastic, [&](const Job* job) {
    if (job->spec.workers_max <= job->spec.workers_min) return true;
    const int workers = drafts_.contains(job->id) ? count_workers(drafts_[job->id].seats) : job->workers();
    if (workers >= job->spec.workers_max || board_.capacity(job->spec.per_worker) == 0) return true;
    return !may_grow(*job);
  });
  std::map<JobId, std::vector<Seat>> grown;
  for (const Job* job : elastic) grown[job->id] = drafts_.contains(job->id) ? drafts_[job->id].seats : job->seats;
  while (!elastic.empty()) {
    const auto next = std::ranges::min_element(elastic, {}, [&](const Job* job) {
      return std::tuple(count_workers(grown[job->id]) - job->spec.workers_min, -job->spec.priority, job->submitted,
                        job->id);
    });
    const Job& job = **next;
    std::vector<Seat>& seats = grown[job.id];
    if (count_workers(seats) >= job.spec.workers_max ||
        !board_.take(job.spec.per_worker, 1, shunned_now(job, now_), seats)) {
      elastic.erase(next);
    }
  }
  for (auto& [id, seats] : grown) {
    const Job& job = state_.jobs.at(id);
    const bool drafted = drafts_.contains(id);
    if (count_workers(seats) <= (drafted ? count_workers(drafts_[id].seats) : job.workers())) continue;
    Draft& draft = drafts_[id];
    if (!drafted) draft.cause = fmt::format("grows from {} to {} workers", job.workers(), count_workers(seats));
    draft.seats = std::move(seats);
  }
}

std::vector<cluster::Event> Placer::finish() {
  std::vector<cluster::Event> events = std::move(held_);
  for (auto& [id, draft] : drafts_) {
    const Job& job = state_.jobs.at(id);
    JobPlaced placed;
    placed.job = id;
    placed.generation = job.generation + 1;
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
