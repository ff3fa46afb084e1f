#include "elasticjob/sizing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/timestamp.h"
#include "kubernetes/client.h"
#include "policy/speed_model.h"

namespace rubato::elasticjob {

using nlohmann::json;

namespace {

constexpr double kChangeUnknown_s = 30;  // what a change costs a job that does not say how long it takes to start
constexpr double kPodChange_s = 10;      // for pods to end and to be placed, beside that
constexpr double kRestartsApart = 5;     // changes of size are this many restarts apart
constexpr double kGainLeast = 1.05;      // as AdaptDL's on Ray
constexpr double kChangeLeast = 0.15;
constexpr double kKeepUtility = 0.8;  // of the least utility: what is there goes later than it would come
constexpr double kDrift = 0.1;        // of a measured value
constexpr auto kNoRoomAfter = std::chrono::minutes(2);
constexpr auto kRoomMemory = std::chrono::minutes(10);
constexpr int kReadableMax = 1 << 16;
constexpr size_t kReasonBytesMax = 400;

WallTime later(WallTime time, double seconds) {
  return time + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

// Of the job's pods: what is known of its present size.
struct Group {
  int whole = 0;     // run and are ready
  int placed = 0;    // have a node
  int unplaced = 0;  // no node has room for them
  WallTime unplaced_since{};
  std::string unplaced_message;
};

Group group_of(const Job& job, const std::vector<Pod>& pods) {
  Group out;
  for (const Pod& pod : pods) {
    const bool wanted = pod.index >= job.first_index && pod.index < job.first_index + job.replicas;
    if (pod.owner_uid != job.uid || !wanted || pod.ended() || pod.deleting) continue;
    if (pod.phase == PodPhase::kRunning && pod.ready) ++out.whole;
    if (!pod.node.empty()) ++out.placed;
    if (pod.waiting.reason != "Unschedulable") continue;
    ++out.unplaced;
    out.unplaced_since = std::max(out.unplaced_since, pod.created.value_or(WallTime{}));
    out.unplaced_message = pod.waiting.message;
  }
  return out;
}

// Sizes are numbers of pods; the model counts processes.
class Sizer {
 public:
  Sizer(const Job& job, WallTime now) : job_(job), adaptive_(*job.adaptive), now_(now) {
    model_ = policy::model_of(*adaptive_.profile);
    goodput_ = {*model_.perf, model_.grad, model_.limits};
  }

  double cost_s() const {
    const auto& start = adaptive_.profile->start_s;
    return start ? *start + kPodChange_s : kChangeUnknown_s;
  }

  std::optional<SizeNote> change() {
    const int now = job_.replicas;
    const int wanted = worthwhile(adaptive_.least_utility, upper());
    const auto step = [&](int from) { return std::max(1, static_cast<int>(std::floor(from * kChangeLeast))); };
    if (wanted > now) {
      // What the change costs is weighed here: the sizes are those that the job would have on so many machines.
      const int given = given_on(wanted);
      if (given < now + step(now) || goodput(given) < kGainLeast * goodput(now)) return std::nullopt;
      return note(given);
    }
    const int kept = worthwhile(adaptive_.least_utility * kKeepUtility, now);
    if (kept > now - step(now)) return std::nullopt;
    return note(kept);
  }

 private:
  int processes(int pods) const { return pods * adaptive_.processes; }

  bool knows_room() const {
    if (!adaptive_.sized || adaptive_.sized->room == 0) return false;
    const auto at = parse_time(adaptive_.sized->at);
    return at && now_ < *at + kRoomMemory;
  }

  int upper() const {
    const int64_t seen = std::max<int64_t>(adaptive_.profile->max_profiled_replicas, processes(job_.replicas));
    int64_t most = std::min<int64_t>(adaptive_.most, 2 * seen / adaptive_.processes);
    if (knows_room()) most = std::min<int64_t>(most, adaptive_.sized->room);
    return static_cast<int>(std::max<int64_t>(most, adaptive_.least));
  }

  policy::AllocateInput input_of(int pods, int most) const {
    policy::AllocateInput input;
    Resources one;
    one.set(kCpu, 1000);
    policy::AllocateJob job;
    for (int i = 0; i < pods; ++i) {
      input.nodes.push_back({fmt::format("{}", i), times(one, adaptive_.processes), "", std::nullopt});
    }
    for (int i = 0; i < std::min(job_.replicas, pods); ++i) {
      for (int process = 0; process < adaptive_.processes; ++process) job.allocation.push_back(fmt::format("{}", i));
    }
    job.id = job_.uid;
    job.resources = one;
    job.min_replicas = processes(adaptive_.least);
    job.max_replicas = processes(most);
    job.step = adaptive_.processes;
    job.restart_cost_s = cost_s();
    job.done_iters = adaptive_.profile->done_iters;
    job.total_iters = adaptive_.profile->total_iters;
    job.model = model_;
    input.jobs.push_back(std::move(job));
    return input;
  }

  // While each gives so much of a first one's speed.
  int worthwhile(double utility, int most) const {
    most = std::max(most, adaptive_.least);
    policy::AllocateOptions options;
    options.least_utility = utility;
    const policy::AllocateDecision decision = policy::allocate(input_of(most, most), options);
    const auto pods = static_cast<int>(decision.jobs.front().worthwhile / adaptive_.processes);
    return std::clamp(pods, adaptive_.least, most);
  }

  int given_on(int pods) const {
    const policy::AllocateDecision decision = policy::allocate(input_of(pods, pods));
    return static_cast<int>(decision.jobs.front().nodes.size()) / adaptive_.processes;
  }

  double goodput(int pods) const { return goodput_.best_batch(pods, processes(pods)).goodput; }

  std::string why_not_more(int pods) const {
    if (pods >= adaptive_.most) return fmt::format("maxReplicas is {}", adaptive_.most);
    if (knows_room() && pods >= adaptive_.sized->room) return "more found no room of late";
    if (pods >= upper()) return "it has been seen with half as many: more are tried when it has been measured there";
    return fmt::format("more are not worth it: one more would give {:.2f}×", goodput(pods + 1) / goodput(pods));
  }

  SizeNote note(int pods) const {
    const policy::BatchChoice batch = goodput_.best_batch(pods, processes(pods));
    SizeNote out;
    out.workers = pods;
    out.at = format_time(now_).substr(0, 19) + "Z";
    if (knows_room()) out.room = adaptive_.sized->room;
    out.reason = fmt::format(
        "{} workers in place of {}: {:.2f}× the speed of learning ({:.3g} samples/s × efficiency {:.2f}), a change "
        "costs {:.0f} s; {}",
        pods, job_.replicas, goodput(pods) / goodput(job_.replicas), batch.throughput, batch.efficiency, cost_s(),
        why_not_more(pods));
    return out;
  }

  const Job& job_;
  const Adaptive& adaptive_;
  const WallTime now_;
  policy::JobModel model_;
  policy::GoodputModel goodput_;
};

// A group with a worker that no node has room for: a rigid one would never start, an elastic one trains without it.
Sizing make_do(const Job& job, const Group& group, WallTime now) {
  Sizing out;
  const WallTime due = group.unplaced_since + kNoRoomAfter;
  const int fits = std::max(group.placed, job.adaptive->least);
  if (fits >= job.replicas) return out;
  if (now < due) {
    out.again = due;
    return out;
  }
  SizeNote note;
  note.workers = note.room = fits;
  note.at = format_time(now).substr(0, 19) + "Z";
  note.reason = fmt::format("{} workers in place of {}: no node has room for the others ({}); asked again in {}", fits,
                            job.replicas, group.unplaced_message, format_duration(kRoomMemory))
                    .substr(0, kReasonBytesMax);
  out.change = std::move(note);
  return out;
}

bool differs(double a, double b) { return std::abs(a - b) > kDrift * std::max(std::abs(a), std::abs(b)); }

bool differs(const JobProfile::Perf& a, const JobProfile::Perf& b) {
  return differs(a.alpha_c, b.alpha_c) || differs(a.beta_c, b.beta_c) || differs(a.alpha_n, b.alpha_n) ||
         differs(a.beta_n, b.beta_n) || differs(a.alpha_r, b.alpha_r) || differs(a.beta_r, b.beta_r) ||
         differs(a.gamma, b.gamma);
}

// nullopt: not there, or none of ours.
std::optional<json> annotation_in(const json& annotations, const char* name) {
  const std::string text = kubernetes::text_in(annotations, name);
  if (text.empty() || text.size() > kReadableMax) return std::nullopt;
  json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  return document;
}

}  // namespace

Sizing size_job(const Job& job, const std::vector<Pod>& pods, WallTime now) {
  if (!job.adaptive || job.suspended || job.deleting || !job.invalid.empty() || is_final(job.status.phase)) return {};
  if (job.adaptive->least >= job.adaptive->most) return {};
  const Group group = group_of(job, pods);
  if (group.unplaced > 0) return make_do(job, group, now);
  // Its pods come, go or join: their news brings the next turn.
  if (group.whole < job.replicas || !is_known(job.adaptive->profile)) return {};
  Sizer sizer(job, now);
  Sizing out;
  const std::optional<SizeNote>& last = job.adaptive->sized;
  const std::optional<WallTime> changed = last ? parse_time(last->at) : std::nullopt;
  const WallTime due = changed ? later(*changed, kRestartsApart * sizer.cost_s()) : now;
  if (now < due) {
    out.again = due;
    return out;
  }
  out.change = sizer.change();
  // More may have room again, though nothing tells.
  if (!out.change && last && last->room > 0 && changed && now < *changed + kRoomMemory) {
    out.again = *changed + kRoomMemory;
  }
  return out;
}

std::string explain_size(const Job& job) {
  if (!job.adaptive) return "";
  const Adaptive& adaptive = *job.adaptive;
  if (!is_known(adaptive.profile)) {
    return adaptive.profile ? "its workers report no times of steps yet: it keeps its size"
                            : "no worker has reported hints yet (ADAPTDL_SUPERVISOR_URL): it keeps its size";
  }
  if (!adaptive.sized) return "its hints give no reason to change its size";
  return fmt::format("{} (since {})", adaptive.sized->reason, adaptive.sized->at);
}

void read_adaptive(Job& job, const json& annotations, int least, int most, double least_utility) {
  Adaptive out;
  out.least = least;
  out.most = most;
  out.least_utility = std::isfinite(least_utility) ? std::clamp(least_utility, 0.01, 1.0) : 0.5;
  out.processes = std::max(1, std::atoi(job.nproc.c_str()));
  if (const std::optional<json> hints = annotation_in(annotations, kAnnotationHints)) {
    try {
      out.profile = job_profile_from_json(*hints);
    } catch (const Error&) {
      // Somebody else wrote it: the next hints take its place.
    }
  }
  if (const std::optional<json> size = annotation_in(annotations, kAnnotationSized)) {
    SizeNote note;
    note.workers = static_cast<int>(std::clamp<int64_t>(kubernetes::int_in(*size, "workers"), 0, most));
    note.room = static_cast<int>(std::clamp<int64_t>(kubernetes::int_in(*size, "room"), 0, most));
    note.at = kubernetes::text_in(*size, "at");
    note.reason = kubernetes::text_in(*size, "reason").substr(0, kReasonBytesMax);
    if (note.workers >= least) out.sized = std::move(note);
  }
  job.adaptive = std::make_shared<const Adaptive>(std::move(out));
}

json size_patch(const SizeNote& note) {
  json size = {{"workers", note.workers}, {"at", note.at}, {"reason", note.reason}};
  if (note.room > 0) size["room"] = note.room;
  const std::string text = size.dump(-1, ' ', false, json::error_handler_t::replace);
  return {{"metadata", {{"annotations", {{kAnnotationSized, text}}}}}};
}

bool is_news(const JobProfile& before, const JobProfile& after) {
  if (before.perf.has_value() != after.perf.has_value() || before.device != after.device ||
      before.gradient.has_value() != after.gradient.has_value() ||
      before.max_profiled_replicas != after.max_profiled_replicas || before.local_min != after.local_min ||
      before.local_max != after.local_max || before.gradient_accumulation != after.gradient_accumulation ||
      before.init_batch_size != after.init_batch_size || before.max_batch_size != after.max_batch_size ||
      before.total_iters != after.total_iters || before.perf_by_device.size() != after.perf_by_device.size())
    return true;
  if (after.perf && differs(*before.perf, *after.perf)) return true;
  // Only their ratio says what a larger batch teaches.
  if (after.gradient && differs(before.gradient->norm / std::max(before.gradient->var, 1e-12),
                                after.gradient->norm / std::max(after.gradient->var, 1e-12)))
    return true;
  return differs(before.done_iters.value_or(0), after.done_iters.value_or(0)) ||
         differs(before.start_s.value_or(0), after.start_s.value_or(0));
}

}  // namespace rubato::elasticjob
