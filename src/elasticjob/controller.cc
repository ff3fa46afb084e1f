#include "elasticjob/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "elasticjob/manifest.h"
#include "elasticjob/other_controller.h"
#include "elasticjob/sizing.h"

namespace rubato::elasticjob {

using kubernetes::object_in;
using kubernetes::text_in;
using nlohmann::json;

namespace {

constexpr Duration kRetryFirst = 1s;
constexpr Duration kRetryMax = 60s;
constexpr Duration kRefusedMax = 15s;       // a quota may be raised at any time, and nobody tells us
constexpr Duration kRefusalsApart = 200ms;  // of all jobs together
constexpr auto kAsideFor = std::chrono::seconds(60);
constexpr Duration kServedAgain = 30s;
constexpr int kForeignPodsMax = 100;
constexpr int kNodesPage = 20;           // a node names all the images that it has
constexpr Duration kAgainLeast = 500ms;  // between two turns of a job that nothing new was heard of

Duration pause_after(int failures, Duration most = kRetryMax) {
  return std::min<Duration>(most, kRetryFirst * (1 << std::min(failures, 10)));
}

// Refusals that trying again at once does not change.
bool is_lasting(const rest::CloudError& error) {
  return error.code == ErrorCode::kQuota || error.code == ErrorCode::kAuth || error.code == ErrorCode::kUsage ||
         error.reason == kubernetes::kWebhookFailed;
}

std::optional<Kind> kind_of_pod(const json& document) {
  return parse_kind(text_in(object_in(object_in(document, "metadata"), "labels"), kLabelKind));
}

bool is_owned_by(const json& document, const std::string& uid) {
  for (const json& owner : kubernetes::list_in(object_in(document, "metadata"), "ownerReferences")) {
    if (text_in(owner, "uid") == uid) return true;
  }
  return false;
}

uint64_t version_of(const json& object) {
  return kubernetes::version_number(text_in(object_in(object, "metadata"), "resourceVersion"));
}

std::string uid_of(const json& object) { return text_in(object_in(object, "metadata"), "uid"); }

bool asks_for_other_pods(const Job& before, const Job& now) {
  return before.uid != now.uid || now.deleting || now.suspended || !now.invalid.empty() ||
         before.replicas != now.replicas || before.min_replicas != now.min_replicas ||
         before.max_replicas != now.max_replicas || before.pod_template != now.pod_template;
}

JobKey key_of_job(Kind kind, const json& document) {
  const json& metadata = object_in(document, "metadata");
  return {kind, {text_in(metadata, "namespace"), text_in(metadata, "name")}};
}

}  // namespace

// What a list does not name any more is gone, also when nobody told us of its end.
class Controller::JobSink final : public kubernetes::ObjectSink {
 public:
  JobSink(Controller& controller, Kind kind) : controller_(controller), kind_(kind) {}
  void begin_list(kubernetes::ListStart start) override {
    start_ = start;
    listing_ = true;
    seen_.clear();
    reach(start.version);
    if (start.rewound) controller_.reached_[kind_] = start.version;
  }
  void put(const json& object) override {
    if (listing_) seen_.insert(key_of_job(kind_, object));
    if (!listing_) reach(version_of(object));
    controller_.put_job(kind_, object, news());
  }
  void remove(const json& object) override {
    reach(version_of(object));
    controller_.remove_job(key_of_job(kind_, object), uid_of(object));
  }
  void end_list() override {
    listing_ = false;
    std::vector<std::pair<JobKey, std::string>> gone;
    for (const auto& [key, entry] : controller_.entries_) {
      if (key.kind != kind_ || !entry.job || seen_.contains(key)) continue;
      if (start_.rewound || entry.job->seen_version <= start_.version) gone.emplace_back(key, entry.job->uid);
    }
    for (const auto& [key, uid] : gone) controller_.remove_job(key, uid);
    seen_.clear();
    if (!std::exchange(listed_, true) && --controller_.lists_missing_ == 0) controller_.changed_.notify();
  }

 private:
  Controller& controller_;
  News news() const { return !listing_ ? News::kWatched : start_.rewound ? News::kRewound : News::kListed; }
  void reach(uint64_t version) {
    uint64_t& reached = controller_.reached_[kind_];
    reached = std::max(reached, version);
  }

  const Kind kind_;
  kubernetes::ListStart start_;
  bool listing_ = false, listed_ = false;
  std::set<JobKey> seen_;
};

class Controller::PodSink final : public kubernetes::ObjectSink {
 public:
  explicit PodSink(Controller& controller) : controller_(controller) {}
  void begin_list(kubernetes::ListStart start) override {
    start_ = start;
    listing_ = true;
    seen_.clear();
    reach(start.version);
    if (start.rewound) controller_.pods_reached_ = start.version;
  }
  void put(const json& object) override {
    if (listing_) seen_.insert(name_of(object));
    if (!listing_) reach(version_of(object));
    controller_.put_pod(object, news());
  }
  void remove(const json& object) override {
    reach(version_of(object));
    const std::optional<Kind> kind = kind_of_pod(object);
    const Pod pod = read_pod(object);
    if (kind) controller_.remove_pod({*kind, pod.job}, pod.name, pod.uid);
  }
  void end_list() override {
    listing_ = false;
    std::vector<std::pair<JobKey, Pod>> gone;
    for (const auto& [key, entry] : controller_.entries_) {
      for (const auto& [name, pod] : entry.pods) {
        if (seen_.contains({key.name.namespace_name, name})) continue;
        if (start_.rewound || pod.seen_version <= start_.version) gone.emplace_back(key, pod);
      }
    }
    for (const auto& [key, pod] : gone) controller_.remove_pod(key, pod.name, pod.uid);
    seen_.clear();
    if (!std::exchange(listed_, true) && --controller_.lists_missing_ == 0) controller_.changed_.notify();
  }

 private:
  static ObjectName name_of(const json& object) {
    const json& metadata = object_in(object, "metadata");
    return {text_in(metadata, "namespace"), text_in(metadata, "name")};
  }

  News news() const { return !listing_ ? News::kWatched : start_.rewound ? News::kRewound : News::kListed; }
  void reach(uint64_t version) { controller_.pods_reached_ = std::max(controller_.pods_reached_, version); }

  Controller& controller_;
  kubernetes::ListStart start_;
  bool listing_ = false, listed_ = false;
  std::set<ObjectName> seen_;
};

// Only nodes with a notice are kept.
class Controller::NodeSink final : public kubernetes::ObjectSink {
 public:
  explicit NodeSink(Controller& controller) : controller_(controller) {}
  void begin_list(kubernetes::ListStart) override { seen_.clear(); }
  void put(const json& object) override {
    const std::string name = text_in(object_in(object, "metadata"), "name");
    seen_.insert(name);
    controller_.put_node(name, read_notice(object));
  }
  void remove(const json& object) override { controller_.put_node(text_in(object_in(object, "metadata"), "name"), {}); }
  void end_list() override {
    std::vector<std::string> gone;
    for (const auto& [name, notice] : controller_.noticed_nodes_) {
      if (!seen_.contains(name)) gone.push_back(name);
    }
    for (const std::string& name : gone) controller_.put_node(name, {});
    seen_.clear();
  }

 private:
  Controller& controller_;
  std::set<std::string> seen_;
};

Controller::Controller(kubernetes::Client& client, ControllerSettings settings, Log log)
    : client_(client),
      world_(client.world()),
      settings_(std::move(settings)),
      log_(std::move(log)),
      changed_(world_.clock.loop()),
      timers_changed_(world_.clock.loop()),
      scope_(world_.clock.loop()) {}
Controller::~Controller() { scope_.cancel(); }

void Controller::wake(const JobKey& key) {
  if (pending_.insert(key).second) line_.push_back(key);
  changed_.notify();
}

void Controller::wake_at(const JobKey& key, Instant at) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  if (found->second.due) {
    if (*found->second.due <= at) return;
    timers_.erase({*found->second.due, key});
  }
  found->second.due = at;
  timers_.insert({at, key});
  timers_changed_.notify();
}

// News come by several ways, and overtake each other: by the watch, by lists, as answers to what we wrote. Older news
// of an object are dropped, and so is an answer about one that the watch has seen the end of since.
void Controller::put_job(Kind kind, const json& document, News news) {
  auto job = std::make_shared<const Job>(read_job(kind, document));
  const JobKey key{kind, job->name};
  const auto known = entries_.find(key);
  const bool is_known = known != entries_.end() && known->second.job;
  if (news != News::kRewound && is_known && known->second.job->seen_version > job->seen_version) return;
  if (news == News::kAnswered && !is_known && job->seen_version <= reached_[kind]) return;
  Entry& entry = entries_[key];
  const bool same = entry.job && entry.job->resource_version == job->resource_version;
  entry.job = std::move(job);
  if (!same) wake(key);
}

void Controller::remove_job(const JobKey& key, const std::string& uid) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second.job || found->second.job->uid != uid) return;
  found->second.job.reset();
  wake(key);
}

void Controller::put_pod(const json& document, News news) {
  const std::optional<Kind> kind = kind_of_pod(document);
  Pod pod = read_pod(document);
  if (!kind || pod.job.name.empty()) return;
  const JobKey key{*kind, pod.job};
  Entry& entry = entries_[key];
  const auto known = entry.pods.find(pod.name);
  const bool is_known = known != entry.pods.end();
  if (news != News::kRewound && is_known && known->second.seen_version > pod.seen_version) return;
  if (news == News::kAnswered && !is_known && pod.seen_version <= pods_reached_) return;
  const bool as_it_came = news == News::kWatched || news == News::kAnswered;
  settle_times(pod, is_known ? &known->second : nullptr, world_.clock.wall(), as_it_came);
  const std::string name = pod.name;
  entry.pods[name] = std::move(pod);
  wake(key);
}

void Controller::remove_pod(const JobKey& key, const std::string& name, const std::string& uid) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  const auto pod = found->second.pods.find(name);
  if (pod != found->second.pods.end() && pod->second.uid == uid) found->second.pods.erase(pod);
  wake(key);
}

void Controller::put_node(const std::string& name, NodeNotice notice) {
  const auto known = noticed_nodes_.find(name);
  const NodeNotice before = known == noticed_nodes_.end() ? NodeNotice{} : known->second;
  if (before == notice) return;
  if (notice.kind == Notice::kNone) {
    noticed_nodes_.erase(name);
    return;
  }
  log_.info("a node gives notice", {{"node", name}, {"taint", notice.taint}});
  noticed_nodes_[name] = std::move(notice);
  for (const auto& [key, entry] : entries_) {
    for (const auto& [pod_name, pod] : entry.pods) {
      if (pod.node == name) wake(key);
    }
  }
}

Task<void> Controller::keep_time() {
  while (true) {
    if (timers_.empty()) {
      co_await timers_changed_.wait();
      continue;
    }
    const Instant next = timers_.begin()->first;
    if (world_.clock.now() < next) {
      co_await timers_changed_.wait_until(next);
      continue;
    }
    const JobKey key = timers_.begin()->second;
    timers_.erase(timers_.begin());
    const auto found = entries_.find(key);
    if (found != entries_.end()) found->second.due.reset();
    wake(key);
  }
}

Task<void> Controller::work() {
  while (true) {
    // In the order in which they were woken: jobs that are refused again and again keep nobody else waiting.
    const auto next = std::ranges::find_if(line_, [&](const JobKey& key) {
      const auto found = entries_.find(key);
      return found == entries_.end() || !found->second.busy;
    });
    if (next == line_.end() || lists_missing_ > 0) {
      co_await changed_.wait();
      continue;
    }
    const JobKey key = *next;
    line_.erase(next);
    pending_.erase(key);
    const auto found = entries_.find(key);
    if (found == entries_.end()) continue;
    found->second.busy = true;
    Task<void> turn = reconcile(key);
    co_await std::move(turn);
    // Others may wait for this very job.
    changed_.notify();
  }
}

Task<void> Controller::reconcile(JobKey key) {
  Entry& entry = entries_.at(key);  // busy: nobody erases it meanwhile
  std::string failure;
  if (entry.job && !entry.job->deleting && !entry.job->ignored) {
    std::optional<WallTime> again;
    try {
      Task<std::optional<WallTime>> turn = take_turn(key, entry.job);
      again = co_await std::move(turn);
      entry.errors = 0;
    } catch (const Error& error) {
      failure = error.message;
    }
    const Instant now = world_.clock.now();
    if (!failure.empty()) {
      log_.warning("will try again", {{"job", to_string(key.name)}, {"why", failure}});
      wake_at(key, now + pause_after(entry.errors++));
    } else if (again) {
      const Duration wait = std::max<Duration>(kAgainLeast, *again - world_.clock.wall());
      wake_at(key, now + wait);
    }
  }
  entry.busy = false;
  if (!entry.job && entry.pods.empty()) {
    if (entry.due) timers_.erase({*entry.due, key});
    entries_.erase(key);
  }
}

Task<std::optional<WallTime>> Controller::take_turn(JobKey key, std::shared_ptr<const Job> job) {
  Entry& entry = entries_.at(key);
  Task<std::string> finding = find_other_controller(key, job);
  std::string other = co_await std::move(finding);
  if (!other.empty()) {
    Task<void> leaving = step_aside(key, job, std::move(other));
    co_await std::move(leaving);
    co_return world_.clock.wall() + kAsideFor;
  }
  std::vector<Pod> pods;
  for (const auto& [name, pod] : entry.pods) {
    pods.push_back(pod);
    const auto noticed = noticed_nodes_.find(pod.node);
    if (noticed != noticed_nodes_.end() && !tolerates(pod.tolerated, noticed->second.taint))
      pods.back().notice = noticed->second;
  }
  Sizing sizing = size_job(*job, pods, world_.clock.wall());
  if (sizing.change) {
    Task<void> writing = write_size(key, job, std::move(*sizing.change));
    co_await std::move(writing);
    co_return std::nullopt;  // the job as it is now has a turn of its own
  }
  Decision decision = decide(*job, pods, entry.trouble, world_.clock.wall());
  if (decision.make.empty() && !entry.trouble.block.reason.empty()) {
    // What was refused is not wanted any more.
    entry.trouble = {};
    entry.refusals = 0;
    decision = decide(*job, pods, entry.trouble, world_.clock.wall());
  }
  std::optional<WallTime> again = decision.again;
  if (sizing.again) again = again ? std::min(*again, *sizing.again) : *sizing.again;
  Task<void> acting = act(key, job, std::move(decision));
  co_await std::move(acting);
  co_return again;
}

Task<std::string> Controller::find_other_controller(JobKey key, std::shared_ptr<const Job> job) {
  if (key.kind == Kind::kElasticJob) co_return "";
  Entry& entry = entries_.at(key);
  if (is_run_by_another(*job, world_.clock.wall())) {
    entry.alone_uid.clear();
    co_return fmt::format("{} writes its status", job->other_writer);
  }
  if (entry.alone_uid == job->uid) co_return "";
  const kubernetes::ListPage page =
      co_await client_.list(kubernetes::pods(), key.name.namespace_name, foreign_selector(*job), kForeignPodsMax, "");
  const json document = kubernetes::read_document(page.body, "the pods of a job");
  for (const json& pod : kubernetes::list_in(document, "items")) {
    if (is_foreign_pod(*job, pod))
      co_return fmt::format("its pod {} is not ours", text_in(object_in(pod, "metadata"), "name"));
  }
  entry.alone_uid = job->uid;
  co_return "";
}

// A word in the log, in the events and in the conditions; once for each job, so that nobody has to fight over it.
Task<void> Controller::step_aside(JobKey key, std::shared_ptr<const Job> job, std::string why) {
  Entry& entry = entries_.at(key);
  if (entry.aside_uid == job->uid) co_return;
  const std::string message = fmt::format(
      "another controller runs this job ({}), so that rubato leaves it alone: stop that controller, or start the "
      "operator without --adopt {}",
      why, to_string(key.kind));
  const json patch = aside_patch(*job, message, world_.clock.wall());
  if (!patch.is_null()) {
    try {
      co_await patch_status(job, patch, kAsideManager);
    } catch (const rest::CloudError& error) {
      if (error.code != ErrorCode::kConflict) throw;
      co_return;  // they have written since: the news of that is on its way, and brings the next turn
    }
  }
  log_.warning("another controller runs a job", {{"job", to_string(key.name)}, {"why", why}});
  Task<void> reporting = report(job, true, kAsideReason, message);
  co_await std::move(reporting);
  entry.aside_uid = job->uid;
}

Task<void> Controller::write_size(JobKey key, std::shared_ptr<const Job> job, SizeNote size) {
  json patch = size_patch(size);
  const json written = co_await client_.merge_patch(resource_of(key.kind), key.name, "", std::move(patch));
  put_job(key.kind, written, News::kAnswered);
  log_.info("another size", {{"job", to_string(key.name)}, {"workers", size.workers}, {"why", size.reason}});
  Task<void> reporting = report(job, false, "Resized", size.reason);
  co_await std::move(reporting);
}

Task<void> Controller::act(JobKey key, std::shared_ptr<const Job> job, Decision decision) {
  Task<void> writing = write_status(key, job, decision.status);
  co_await std::move(writing);
  Task<void> removing = remove_pods(key, job, std::move(decision.remove));
  co_await std::move(removing);
  if (decision.remove_job) {
    log_.info("its time after the end is over: deleting", {{"job", to_string(key.name)}});
    co_await client_.remove(resource_of(key.kind), key.name, job->uid);
  }
  if (decision.make.empty()) co_return;
  Task<void> making = make_pods(key, job, std::move(decision.make));
  co_await std::move(making);
}

// torchelastic's CRD has no status subresource: there the status is a field as any other.
Task<json> Controller::patch_status(std::shared_ptr<const Job> job, json patch, const char* manager) {
  const kubernetes::Resource& resource = resource_of(job->kind);
  bool has_no_status = false;
  try {
    co_return co_await client_.merge_patch(resource, job->name, "status", patch, manager);
  } catch (const rest::CloudError& error) {
    has_no_status = error.code == ErrorCode::kNotFound && job->kind != Kind::kElasticJob;
    if (!has_no_status) throw;
  }
  patch["metadata"]["uid"] = job->uid;  // or the job is gone, and perhaps another one has its name
  co_return co_await client_.merge_patch(resource, job->name, "", std::move(patch), manager);
}

Task<void> Controller::write_status(JobKey key, std::shared_ptr<const Job> job, const Status& status_in) {
  const Status status = status_in;
  json metadata = metadata_patch(*job, status);
  json patch = status_patch(*job, status);
  try {
    if (!metadata.is_null()) {
      const json written = co_await client_.merge_patch(resource_of(key.kind), key.name, "", std::move(metadata));
      put_job(key.kind, written, News::kAnswered);
    }
    if (patch.is_null()) co_return;
    const json written = co_await patch_status(job, std::move(patch), kubernetes::kFieldManager);
    put_job(key.kind, written, News::kAnswered);
  } catch (const rest::CloudError& error) {
    if (error.code != ErrorCode::kNotFound) throw;
    throw Error(ErrorCode::kUnavailable, "the job is gone: its end will be heard of soon");
  }
  const bool new_phase = job->status.phase != status.phase || job->status.conditions.empty();
  if (new_phase) {
    log_.info("job", {{"job", to_string(key.name)}, {"phase", to_string(status.phase)}, {"why", status.message}});
    Task<void> reporting =
        report(job, status.phase == Phase::kFailed || status.phase == Phase::kRestarting,
               status.phase == Phase::kPending ? "Created" : std::string(to_string(status.phase)), status.message);
    co_await std::move(reporting);
  }
  if (!status.block.reason.empty() && job->status.block.reason != status.block.reason) {
    log_.warning("job is blocked",
                 {{"job", to_string(key.name)}, {"reason", status.block.reason}, {"why", status.block.message}});
    Task<void> reporting = report(job, true, status.block.reason, status.block.message);
    co_await std::move(reporting);
  }
}

Task<void> Controller::remove_pods(JobKey key, std::shared_ptr<const Job> job, std::vector<RemovePod> orders) {
  for (const RemovePod& order : orders) {
    log_.info("deleting a pod", {{"job", to_string(key.name)}, {"pod", order.name}, {"why", order.reason}});
    const ObjectName name{key.name.namespace_name, order.name};
    const bool was_there = co_await client_.remove(kubernetes::pods(), name, order.uid);
    Entry& entry = entries_.at(key);
    const auto known = entry.pods.find(order.name);
    if (known == entry.pods.end() || known->second.uid != order.uid) continue;
    // Until the watch says so itself.
    if (was_there) {
      known->second.deleting = true;
    } else {
      entry.pods.erase(known);
    }
    Task<void> reporting = report(job, false, "DeletedPod", fmt::format("{}: {}", order.name, order.reason));
    co_await std::move(reporting);
  }
}

Task<bool> Controller::ensure_services(JobKey key, std::shared_ptr<const Job> job) {
  Entry& entry = entries_.at(key);
  const bool known = entry.services_uid == job->uid && entry.services_for >= job->replicas;
  // Launchers of others have one for each pod: so many are not looked at again.
  if (known && job->launch == Launch::kAsIs) co_return true;
  for (json& service : make_services(*job)) {
    const ObjectName name{key.name.namespace_name, text_in(object_in(service, "metadata"), "name")};
    if (known) {
      // Newcomers find their group by it, and anybody may have deleted it.
      const std::optional<json> still = co_await client_.find(kubernetes::services(), name);
      if (still && is_owned_by(*still, job->uid)) continue;
    }
    bool taken = false;
    Block refusal;
    try {
      co_await client_.create(kubernetes::services(), key.name.namespace_name, std::move(service));
    } catch (const rest::CloudError& error) {
      taken = error.reason == "AlreadyExists";
      if (!taken && !is_lasting(error)) throw;
      if (!taken) refusal = {error.code == ErrorCode::kQuota ? "QuotaExceeded" : "ServiceRefused", error.message};
    }
    if (!refusal.reason.empty()) {
      refuse(key, std::move(refusal));
      co_return false;
    }
    if (!taken) continue;
    // One of an earlier job of this name will be collected soon, and would be missed then.
    const std::optional<json> there = co_await client_.find(kubernetes::services(), name);
    if (there && is_owned_by(*there, job->uid)) continue;
    refuse(key, {"NameTaken", fmt::format("the service {} is there and is not this job's", to_string(name))});
    co_return false;
  }
  entry.services_uid = job->uid;
  entry.services_for = job->replicas;
  co_return true;
}

void Controller::refuse(const JobKey& key, Block block) {
  Entry& entry = entries_.at(key);
  entry.trouble.block = std::move(block);
  const auto is_refused = [](const auto& one) { return one.second.refusals > 0; };
  const Duration longest =
      std::max<Duration>(kRefusedMax, kRefusalsApart * std::ranges::count_if(entries_, is_refused));
  entry.make_after = world_.clock.now() + pause_after(entry.refusals++, longest);
  wake(key);
  wake_at(key, entry.make_after);
}

Task<void> Controller::make_pods(JobKey key, std::shared_ptr<const Job> job, std::vector<MakePod> orders) {
  Entry& entry = entries_.at(key);
  if (world_.clock.now() < entry.make_after) {
    wake_at(key, entry.make_after);
    co_return;
  }
  Task<bool> services = ensure_services(key, job);
  const bool reachable = co_await std::move(services);
  if (!reachable) co_return;
  for (const MakePod& order : orders) {
    // Hundreds of pods take a while: who stops or shrinks the job meanwhile need not wait for them.
    if (!entry.job || asks_for_other_pods(*job, *entry.job)) co_return;
    Task<bool> making = make_one_pod(key, job, order);
    const bool made = co_await std::move(making);
    if (!made) co_return;
  }
  if (entry.trouble.block.reason.empty()) co_return;
  entry.trouble = {};
  entry.refusals = 0;
  wake(key);
}

Task<bool> Controller::make_one_pod(JobKey key, std::shared_ptr<const Job> job, MakePod order) {
  const std::string name = worker_name(*job, order.index);
  json document;
  Block refusal;
  bool taken = false;
  try {
    document = make_pod(*job, order, settings_.delivery, supervisor_url(settings_.supervisor, *job));
    const json made = co_await client_.create(kubernetes::pods(), key.name.namespace_name, std::move(document));
    put_pod(made, News::kAnswered);
  } catch (const rest::CloudError& error) {
    taken = error.reason == "AlreadyExists";
    if (!taken && !is_lasting(error)) throw;
    refusal = {error.code == ErrorCode::kQuota ? "QuotaExceeded" : "PodRefused", error.message};
  } catch (const json::exception& error) {
    refusal = {"InvalidSpec", fmt::format("no pod can be made of the template: {}", error.what())};
  }
  if (taken) {
    // Made by us before we died, or somebody else's, without our labels: see which.
    const ObjectName object{key.name.namespace_name, name};
    const std::optional<json> found = co_await client_.find(kubernetes::pods(), object);
    const std::optional<Kind> its_kind = found ? kind_of_pod(*found) : std::nullopt;
    if (its_kind && JobKey{*its_kind, read_pod(*found).job} == key) {
      put_pod(*found, News::kAnswered);
      co_return true;
    }
    refusal = {"NameTaken", fmt::format("there is a pod {} that belongs to somebody else", name)};
  }
  if (refusal.reason.empty()) {
    log_.info("made a pod", {{"job", to_string(key.name)}, {"pod", name}, {"host", order.is_host}});
    Task<void> reporting = report(job, false, "CreatedPod", name);
    co_await std::move(reporting);
    co_return true;
  }
  refuse(key, std::move(refusal));
  co_return false;
}

Task<void> Controller::report(std::shared_ptr<const Job> job, bool is_warning, std::string reason,
                              std::string message) {
  json event = make_event(*job, is_warning, reason, message, world_.random.hex(16), world_.clock.wall());
  try {
    co_await client_.create(kubernetes::events(), job->name.namespace_name, std::move(event));
  } catch (const Error& error) {
    log_.debug("cannot write an event", {{"why", error.message}});
  }
}

// Without the right to see nodes jobs run as well: pods are moved when they are evicted, not before.
Task<void> Controller::follow_nodes() {
  try {
    Task<void> following = node_reflector_->run();
    co_await std::move(following);
  } catch (const Error& error) {
    log_.info("nodes cannot be seen: their taints are no notices", {{"why", error.message}});
  }
}

// Who installed an adopted kind may take it away, and bring it later: that is no reason to leave all other jobs alone.
Task<void> Controller::follow_when_served(kubernetes::Reflector& reflector, kubernetes::ObjectSink& sink) {
  bool told = false;
  while (true) {
    std::string why;
    try {
      Task<void> following = reflector.run();
      co_await std::move(following);
    } catch (const Error& error) {
      if (error.code != ErrorCode::kNotFound) throw;
      why = error.message;
    }
    if (!std::exchange(told, true)) {
      log_.warning("an adopted kind is not served: is its CRD installed? It is waited for", {{"why", why}});
      sink.end_list();  // it has no jobs
    }
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kServedAgain);
  }
}

Task<void> Controller::run() {
  lists_missing_ = settings_.kinds.size() + 1;
  const auto follow = [&](kubernetes::ReflectorSpec spec, std::unique_ptr<kubernetes::ObjectSink> sink, bool is_ours) {
    spec.namespace_name = settings_.namespace_name;
    sinks_.push_back(std::move(sink));
    reflectors_.push_back(std::make_unique<kubernetes::Reflector>(client_, std::move(spec), *sinks_.back(), log_));
    scope_.spawn(is_ours ? reflectors_.back()->run() : follow_when_served(*reflectors_.back(), *sinks_.back()));
  };
  for (const Kind kind : settings_.kinds) {
    kubernetes::ReflectorSpec spec;
    spec.resource = resource_of(kind);
    follow(std::move(spec), std::make_unique<JobSink>(*this, kind), kind == Kind::kElasticJob);
  }
  kubernetes::ReflectorSpec pods;
  pods.resource = kubernetes::pods();
  pods.label_selector = kLabelKind;
  follow(std::move(pods), std::make_unique<PodSink>(*this), true);
  kubernetes::ReflectorSpec nodes;
  nodes.resource = kubernetes::nodes();
  nodes.page_size = kNodesPage;
  node_sink_ = std::make_unique<NodeSink>(*this);
  node_reflector_ = std::make_unique<kubernetes::Reflector>(client_, std::move(nodes), *node_sink_, log_);
  scope_.spawn(follow_nodes());
  scope_.spawn(keep_time());
  for (int i = 0; i < settings_.parallel; ++i) scope_.spawn(work());
  Task<void> joined = scope_.join();
  co_await std::move(joined);
}

}  // namespace rubato::elasticjob
