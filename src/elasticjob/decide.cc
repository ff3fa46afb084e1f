#include "elasticjob/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/timestamp.h"

namespace rubato::elasticjob {
namespace {

constexpr Duration kBackoffFirst = 10s;
constexpr Duration kBackoffMax = 300s;
// A pod that ends by SIGTERM again and again as soon as it starts must not be replaced in a tight loop.
constexpr Duration kShortLife = 10s;
// A worker has ended well: the group is done. The others are past the exit barrier, or were never in.
constexpr Duration kLastPodsMax = 60s;
// Pods that run but have joined no group, without a host that they could join.
constexpr Duration kStrandedAfter = 120s;
// A host whose container is being created for longer than any image takes: a volume that cannot be mounted, say.
constexpr Duration kHostPendingMax = 15min;
// A pod that is still there so long after its node should have ended it: the node does not answer, or somebody else
// than the node keeps it.
constexpr Duration kGoneAfter = 30s;

// In whole seconds, as the API's own times.
std::string stamp(WallTime time) {
  std::string text = format_time(time);
  return text.substr(0, 19) + "Z";
}

WallTime plus(WallTime time, Duration wait) {
  return time + std::chrono::duration_cast<std::chrono::microseconds>(wait);
}

class Decider {
 public:
  Decider(const Job& job, const std::vector<Pod>& pods, const Trouble& trouble, WallTime now)
      : job_(job), trouble_(trouble), now_(now) {
    out_.status = job.status;
    for (const Pod& pod : pods) {
      if (pod.owner_uid == job.uid) {
        ours_.push_back(&pod);
      } else {
        strangers_.push_back(&pod);
      }
    }
    const auto by_index = [](const Pod* a, const Pod* b) { return a->index < b->index; };
    std::sort(ours_.begin(), ours_.end(), by_index);
  }

  Decision run() {
    if (job_.deleting || job_.ignored)
      return {job_.status, {}, {}, false, std::nullopt};  // the API removes what it owns
    if (is_final(job_.status.phase)) {
      clean_up();
    } else if (!job_.invalid.empty()) {
      set_phase(Phase::kPending, "InvalidSpec", job_.invalid);
      out_.status.block = {"InvalidSpec", job_.invalid};
    } else if (job_.suspended) {
      suspend();
    } else {
      go_on();
    }
    finish_status();
    return std::move(out_);
  }

 private:
  Status& status() { return out_.status; }

  void set_phase(Phase phase, std::string reason, std::string message) {
    status().phase = phase;
    status().reason = std::move(reason);
    status().message = std::move(message);
  }

  void remove(const Pod& pod, std::string reason) {
    if (!pod.deleting) out_.remove.push_back({pod.name, pod.uid, std::move(reason)});
  }

  void come_back_at(WallTime time) { out_.again = out_.again ? std::min(*out_.again, time) : time; }

  void end(Phase phase, std::string reason, std::string message) {
    set_phase(phase, std::move(reason), std::move(message));
    status().completion_time = stamp(now_);
    status().block = {};
    out_.make.clear();
    out_.remove.clear();
    // The end is written down first; cleaning up follows when it is.
    come_back_at(now_);
  }

  void clean_up() {
    for (const Pod* pod : ours_) {
      const bool runs = !pod->ended() || pod->lingers;
      const bool goes = job_.clean_pods == CleanPods::kAll || (job_.clean_pods == CleanPods::kRunning && runs);
      if (goes) remove(*pod, "the job has ended");
    }
    const auto ended = parse_time(job_.status.completion_time);
    if (!job_.ttl_s || !ended) return;
    const WallTime over = plus(*ended, std::chrono::seconds(*job_.ttl_s));
    if (now_ >= over) {
      out_.remove_job = true;
    } else {
      come_back_at(over);
    }
  }

  void suspend() {
    for (const Pod* pod : ours_) remove(*pod, "the job is suspended");
    set_phase(Phase::kSuspended, "Suspended", "spec.suspend is true");
    status().start_time.clear();  // as a Job: its deadline counts from its resumption
    status().block = {};
  }

  void go_on() {
    if (status().start_time.empty()) status().start_time = stamp(now_);
    if (past_deadline()) return;
    count_failures();
    if (permanent_) return end(Phase::kFailed, "PermanentExitCode", last_failure_);
    if (status().failures > job_.backoff_limit) {
      return end(Phase::kFailed, "BackoffLimitExceeded",
                 fmt::format("failed {} times, backoffLimit is {}: {}", status().failures, job_.backoff_limit,
                             last_failure_.empty() ? "see the pods' logs" : last_failure_));
    }
    if (const int restarts = count_restarts(); restarts > 0 && restarts >= job_.backoff_limit) {
      return end(
          Phase::kFailed, "BackoffLimitExceeded",
          fmt::format("its containers were restarted {} times, backoffLimit is {}", restarts, job_.backoff_limit));
    }
    if (finishing()) return;
    if (job_.is_rigid) {
      keep_rigid_group();
      return judge();
    }
    drop_surplus();
    replace_ended();
    replace_outdated();
    rescue_stranded();
    heed_notices();
    make_missing();
    judge();
  }

  bool past_deadline() {
    const auto started = parse_time(status().start_time);
    if (!job_.active_deadline_s || !started) return false;
    const WallTime deadline = plus(*started, std::chrono::seconds(*job_.active_deadline_s));
    if (now_ < deadline) {
      come_back_at(deadline);
      return false;
    }
    end(Phase::kFailed, "DeadlineExceeded",
        fmt::format("it ran for longer than activeDeadlineSeconds: {}", *job_.active_deadline_s));
    return true;
  }

  void count_failures() {
    for (const Pod* pod : ours_) {
      if (pod->phase != PodPhase::kFailed || is_excused(*pod)) continue;
      status().failures = std::max(status().failures, pod->attempt + 1);
      permanent_ = permanent_ || (job_.ends_by_exit_code && pod->exit_code && *pod->exit_code < 128);
      last_failure_ = fmt::format("{}: {}{}{}{}", pod->name, pod->reason.empty() ? "failed" : pod->reason,
                                  pod->exit_code ? fmt::format(" (exit code {})", *pod->exit_code) : "",
                                  pod->message.empty() ? "" : ": ", pod->message);
    }
  }

  // Where kubelets restart the containers (Kubeflow's OnFailure and Always), no pod ever fails: each restart counts.
  int count_restarts() const {
    if (job_.launch != Launch::kAsIs || job_.is_rigid) return 0;
    int out = 0;
    for (const Pod* pod : ours_) out += pod->phase == PodPhase::kRunning && !pod->deleting ? pod->restarts : 0;
    return out;
  }

  // Our launchers end together. Others that ended well leave some who go on: a rank 0 that evaluates, say. The job has
  // succeeded when nobody is left.
  bool finishing() {
    if (job_.is_rigid) return finishing_group();
    std::optional<WallTime> first;
    for (const Pod* pod : ours_) {
      if (!has_done_its_work(*pod)) continue;
      const WallTime at = pod->finished.value_or(now_);
      first = first ? std::min(*first, at) : at;
    }
    if (!first) return false;
    const WallTime last_call = plus(*first, kLastPodsMax);
    bool waiting = false;
    for (const Pod* pod : ours_) {
      if (pod->ended()) continue;
      waiting = true;
      const bool too_late = now_ >= last_call && !may_still_work(*pod, *first);
      if (pod->phase == PodPhase::kPending || too_late) remove(*pod, "the job is done");
    }
    if (!waiting) {
      end(Phase::kSucceeded, "Completed", "all workers ended well");
      return true;
    }
    if (now_ < last_call) come_back_at(last_call);
    wait_for_the_others();
    return true;
  }

  // One that was told to go and went in peace has not.
  static bool has_done_its_work(const Pod& pod) { return pod.phase == PodPhase::kSucceeded && !pod.deleting; }

  // One of somebody else's launcher that began again after the end finds nobody any more.
  bool may_still_work(const Pod& pod, WallTime first_end) const {
    return job_.launch == Launch::kAsIs && pod.started && *pod.started <= first_end;
  }

  // All of a rigid group must end well: what one that is lost has not done, the next group does.
  bool finishing_group() {
    int done = 0, size = 0;
    for (const Pod* pod : ours_) {
      if (!has_done_its_work(*pod)) continue;
      ++done;
      size = std::max(size, pod->group_size);
    }
    if (done == 0) return false;
    if (done == size && done == static_cast<int>(ours_.size())) {
      end(Phase::kSucceeded, "Completed", "all workers ended well");
      return true;
    }
    for (const Pod* pod : ours_) {
      const bool lost = pod->deleting || pod->phase == PodPhase::kFailed;
      if (lost || static_cast<int>(ours_.size()) != size) return false;
    }
    wait_for_the_others();
    return true;
  }

  void wait_for_the_others() {
    set_phase(Phase::kRunning, "Finishing", "a worker has ended well; waiting for the others");
    status().block = {};
  }

  bool is_wanted(int index) const { return index >= job_.first_index && index < job_.first_index + job_.replicas; }

  void drop_surplus() {
    for (const Pod* pod : ours_) {
      if (!is_wanted(pod->index)) remove(*pod, "scaled down");
    }
  }

  void replace_ended() {
    for (const Pod* pod : ours_) {
      if (!is_wanted(pod->index) || pod->phase != PodPhase::kFailed || pod->deleting) continue;
      const WallTime at = pod->finished.value_or(WallTime{});
      const bool short_life = !pod->started || at - *pod->started < kShortLife;
      const bool excused = is_excused(*pod);
      const Duration wait = excused ? (short_life ? kShortLife : Duration{}) : backoff_after(pod->attempt + 1);
      const WallTime due = plus(at, wait);
      if (now_ >= due) {
        remove(*pod, excused ? "it was ended, not failed: replaced" : "it failed: replaced");
      } else {
        come_back_at(due);
      }
    }
  }

  // It does not start, and another one would be made today: what it waits for may have been mended.
  bool is_outdated(const Pod& pod) const {
    return pod.phase == PodPhase::kPending && !pod.waiting.reason.empty() && !pod.deleting && pod.template_hash != 0 &&
           pod.template_hash != job_.template_hash;
  }

  void replace_outdated() {
    for (const Pod* pod : ours_) {
      if (is_wanted(pod->index) && is_outdated(*pod)) remove(*pod, "it does not start, and its template has changed");
    }
  }

  bool must_leave(const Pod& pod) const {
    return pod.notice.kind == Notice::kGoing && !pod.ended() && !pod.deleting && is_wanted(pod.index);
  }

  // See node_notice.h.
  void heed_notices() {
    for (const Pod* pod : ours_) {
      if (must_leave(*pod)) remove(*pod, "notice: its node is about to go: " + pod->notice.taint);
    }
    if (!out_.remove.empty() || job_.replicas <= job_.min_replicas) return;
    int ready = 0;
    for (const Pod* pod : ours_) ready += is_wanted(pod->index) && pod->ready && !pod->deleting ? 1 : 0;
    if (ready < job_.replicas) return;
    for (const Pod* pod : ours_) {
      if (pod->notice.kind == Notice::kCordoned) return remove(*pod, "notice: its node is cordoned");
    }
  }

  void keep_rigid_group() {
    if (ours_.empty()) {
      // A group whose pods the server refuses has not begun: it is tried again under its number.
      const bool refused = !trouble_.block.reason.empty() && status().groups > 0;
      if (!refused) ++status().groups;
      for (int index = 0; index < job_.replicas; ++index) {
        out_.make.push_back({index, status().failures, index == 0, status().groups - 1});
      }
      return;
    }
    bool intact = true, begun = false;
    for (const Pod* pod : ours_) {
      intact = intact && !pod->ended() && !pod->deleting && !must_leave(*pod) && pod->group_size == job_.replicas &&
               pod->group == status().groups - 1 && !is_outdated(*pod);
      begun = begun || pod->phase != PodPhase::kPending;
    }
    const bool complete = static_cast<int>(ours_.size()) == job_.replicas;
    if (intact && complete) return;
    // We died while we made them, or the server refused some: the others wait for those that are missing.
    if (intact && (!begun || !trouble_.block.reason.empty())) return make_missing_of_group();
    for (const Pod* pod : ours_) {
      if (pod->phase != PodPhase::kFailed) remove(*pod, "its group is made anew");
    }
    replace_ended();
  }

  void make_missing_of_group() {
    std::set<int> there;
    for (const Pod* pod : ours_) there.insert(pod->index);
    for (int index = 0; index < job_.replicas; ++index) {
      if (there.contains(index)) continue;
      out_.make.push_back({index, status().failures, index == 0, status().groups - 1});
    }
  }

  bool may_be_in_a_group(const Pod& pod) const {
    return pod.phase == PodPhase::kRunning || pod.phase == PodPhase::kUnknown;
  }

  bool has_host() const {
    return std::any_of(ours_.begin(), ours_.end(), [](const Pod* pod) { return pod->is_host && !pod->ended(); });
  }

  static bool is_pending_host(const Pod& pod) { return pod.is_host && pod.phase == PodPhase::kPending; }

  // It may still come: its image is being pulled, say.
  bool has_host_on_its_way() {
    bool comes = false;
    for (const Pod* pod : ours_) {
      if (!is_pending_host(*pod) || !pod->waiting.reason.empty()) continue;
      const WallTime due = plus(pod->created.value_or(now_), kHostPendingMax);
      if (now_ >= due) continue;
      comes = true;
      if (pod->created) come_back_at(due);
    }
    return comes;
  }

  // The pod that was to open the group died before anyone joined, or finds no node while the others hold the room:
  // those that wait for it would wait for ever. They all start anew, the host first.
  void rescue_stranded() {
    if (job_.launch != Launch::kRubato || !job_.etcd.empty() || !job_.ready_means_joined || has_host_on_its_way())
      return;
    bool any = false;
    WallTime latest{};
    for (const Pod* pod : ours_) {
      if (!may_be_in_a_group(*pod)) continue;
      if (pod->is_host) return;
      if (pod->ready || pod->joined || pod->deleting || !pod->started) return;
      any = true;
      latest = std::max(latest, *pod->started);
    }
    if (!any) return;
    const WallTime due = plus(latest, kStrandedAfter);
    if (now_ < due) return come_back_at(due);
    for (const Pod* pod : ours_) {
      if (may_be_in_a_group(*pod) || is_pending_host(*pod)) remove(*pod, "it found no group to join");
    }
  }

  static std::set<std::string_view> names_of(const std::vector<const Pod*>& pods) {
    std::set<std::string_view> out;
    for (const Pod* pod : pods) out.insert(pod->name);
    return out;
  }

  void make_missing() {
    bool group = has_host();
    for (const Pod* pod : ours_) group = group || may_be_in_a_group(*pod);
    const std::set<std::string_view> ours = names_of(ours_), theirs = names_of(strangers_);
    for (int index = job_.first_index; index < job_.first_index + job_.replicas; ++index) {
      const std::string name = worker_name(job_, index);
      const bool taken = theirs.contains(name);
      if (taken) name_taken_ = name;
      if (ours.contains(name) || taken) continue;
      out_.make.push_back({index, status().failures, !std::exchange(group, true)});
    }
  }

  void judge() {
    int live = 0, ready = 0;
    bool failed_pods = false;
    for (const Pod* pod : ours_) {
      failed_pods = failed_pods || pod->phase == PodPhase::kFailed;
      if (pod->ended() || pod->deleting || !is_wanted(pod->index)) continue;
      if (pod->phase == PodPhase::kRunning) ++live;
      if (pod->ready) ++ready;
    }
    status().block = blocked();
    watch_for_pods_that_stay();
    if (live >= job_.min_replicas) {
      set_phase(Phase::kRunning, "Running", fmt::format("{} of {} workers run", live, job_.replicas));
    } else if (status().failures > 0 && failed_pods) {
      set_phase(
          Phase::kRestarting, "Restarting",
          fmt::format("failure {} of {} that are forgiven: {}", status().failures, job_.backoff_limit, last_failure_));
    } else {
      set_phase(Phase::kPending, "Starting", fmt::format("{} of at least {} workers run", live, job_.min_replicas));
    }
  }

  bool is_lost(const Pod& pod) const {
    if (!pod.deleting || pod.ended()) return false;
    return pod.phase == PodPhase::kUnknown || is_overdue(pod);
  }
  // Nothing of it runs any more, and somebody keeps its object, and with it its name.
  bool is_held(const Pod& pod) const { return pod.deleting && pod.ended() && !pod.held_by.empty() && is_overdue(pod); }
  bool is_overdue(const Pod& pod) const { return pod.delete_by && now_ >= plus(*pod.delete_by, kGoneAfter); }

  void watch_for_pods_that_stay() {
    for (const Pod* pod : ours_) {
      if (pod->deleting && pod->delete_by && !is_overdue(*pod) && (!pod->ended() || !pod->held_by.empty()))
        come_back_at(plus(*pod->delete_by, kGoneAfter));
    }
  }

  // The launchers of a group keep the range that they were started with.
  const Pod* outside_of_range() const {
    for (const Pod* pod : ours_) {
      if (pod->ended() || pod->deleting || pod->group_max == 0) continue;
      if (job_.replicas > pod->group_max || job_.replicas < pod->group_min) return pod;
    }
    return nullptr;
  }

  Block blocked() const {
    if (!trouble_.block.reason.empty()) return trouble_.block;
    for (const Pod* pod : ours_) {
      if (!pod->ended() && !pod->deleting && !pod->waiting.reason.empty()) return pod->waiting;
    }
    if (!name_taken_.empty()) {
      return {"NameTaken",
              fmt::format("the pod {} is there and belongs to somebody else; it is waited for until it is gone",
                          name_taken_)};
    }
    for (const Pod* pod : ours_) {
      if (is_lost(*pod)) {
        return {"NodeLost",
                fmt::format("the node of pod {} does not answer: its worker may still run, so that it is not "
                            "replaced before the node returns or the pod is deleted by force",
                            pod->name)};
      }
    }
    for (const Pod* pod : ours_) {
      if (is_wanted(pod->index) && is_held(*pod)) {
        return {"HeldByFinalizer", fmt::format("pod {} has ended and is deleted, but its finalizer {} keeps it: it is "
                                               "not replaced before that is gone",
                                               pod->name, pod->held_by)};
      }
    }
    if (const Pod* pod = outside_of_range()) {
      return {"RangeChanged",
              fmt::format("{} workers are wanted, and the group that trains was started for {} to {}: "
                          "suspend and resume the job to start it with {} to {}",
                          job_.replicas, pod->group_min, pod->group_max, job_.min_replicas, job_.max_replicas)};
    }
    if (!job_.range_note.empty()) return {"ReplicasOutOfRange", job_.range_note};
    return {};
  }

  void finish_status() {
    Status& s = status();
    s.observed_generation = job_.generation;
    s.replicas = s.ready = 0;
    for (const Pod* pod : ours_) {
      if (pod->ended() || pod->deleting) continue;
      ++s.replicas;
      if (pod->ready) ++s.ready;
    }
    std::vector<Condition> before = std::exchange(s.conditions, {});
    const auto put = [&](std::string type, bool is_true, std::string reason, std::string message) {
      Condition now{std::move(type), is_true, std::move(reason), std::move(message), stamp(now_)};
      if (now.reason.empty()) now.reason = "None";
      for (const Condition& old : before) {
        if (old.type == now.type && old.is_true == now.is_true) now.since = old.since;
      }
      s.conditions.push_back(std::move(now));
    };
    const bool ended = is_final(s.phase);
    put("Running", s.phase == Phase::kRunning, s.reason, s.message);
    put("Blocked", !s.block.reason.empty(), s.block.reason.empty() ? "None" : s.block.reason, s.block.message);
    put("Suspended", s.phase == Phase::kSuspended, s.phase == Phase::kSuspended ? "Suspended" : "Resumed", "");
    put("Succeeded", s.phase == Phase::kSucceeded, ended ? s.reason : "NotEnded", ended ? s.message : "");
    put("Failed", s.phase == Phase::kFailed, ended ? s.reason : "NotEnded", ended ? s.message : "");
  }

  const Job& job_;
  const Trouble& trouble_;
  const WallTime now_;
  std::vector<const Pod*> ours_, strangers_;
  std::string last_failure_, name_taken_;
  bool permanent_ = false;
  Decision out_;
};

}  // namespace

Duration backoff_after(int failures) {
  const int doublings = std::clamp(failures - 1, 0, 10);
  return std::min<Duration>(kBackoffMax, kBackoffFirst * (1 << doublings));
}

Decision decide(const Job& job, const std::vector<Pod>& pods, const Trouble& trouble, WallTime now) {
  return Decider(job, pods, trouble, now).run();
}

}  // namespace rubato::elasticjob
