#include "simulate/past.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cluster/apply.h"
#include "core/error.h"
#include "core/text.h"
#include "model/yaml_value.h"

namespace rubato::simulate {

using cluster::Record;
using rubato::NodeId;

namespace {

// From here on agents need not be processes with heartbeats: they would take minutes.
constexpr int kRealNodesMax = 60;
constexpr double kGuess_s = 600;  // when no job at all has run

// What is put together about one job while the journal is read.
struct JobStory {
  PlannedJob plan;
  std::optional<WallTime> running_since;
  int workers = 0;
  double worked_s = 0;
  bool started = false, ended = false, succeeded = false;
  WallTime submitted{};
};

class Reader {
 public:
  explicit Reader(const std::string& file) { past_.scenario.cluster_file = file; }

  void begin(cluster::State state) {
    state_ = std::move(state);
    first_ = state_.time;
    began_ = true;
    if (!state_.spec_text.empty()) take_file(state_.spec_text);
    for (const auto& [id, job] : state_.jobs) {
      if (!cluster::ended(job.phase)) add_job(id, job.spec);
      if (job.phase == cluster::JobPhase::kRunning) start(id, job.workers());
    }
  }

  void take(const Record& record) {
    if (!began_) first_ = record.time;
    began_ = true;
    before(record);
    cluster::apply(state_, record);
    after(record);
  }

  Past finish();

 private:
  Duration at() const { return std::max<Duration>(0s, now_ - first_); }

  void take_file(const std::string& text) {
    if (past_.scenario.cluster_text.empty()) {
      past_.scenario.cluster_text = text;
    } else {
      PlannedFile file;
      file.at = at();
      file.text = text;
      past_.plan.files.push_back(std::move(file));
    }
  }
  void add_job(const JobId& id, const JobSpec& spec) {
    JobStory& story = jobs_[id];
    story.plan.at = at();
    story.plan.spec = spec;
    story.plan.spec.package.clear();  // there is nothing to unpack in a simulation
    story.submitted = now_;
    ++past_.measured.submitted;
  }
  void start(const JobId& id, int workers) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) return;
    JobStory& story = it->second;
    ++past_.measured.starts;
    if (story.started) ++past_.measured.restarts;
    if (!story.started) waits_.push_back(to_seconds(now_ - story.submitted));
    story.started = true;
    story.running_since = now_;
    story.workers = workers;
  }
  void stop(const JobId& id) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end() || !it->second.running_since) return;
    it->second.worked_s += it->second.workers * to_seconds(now_ - *it->second.running_since);
    it->second.running_since.reset();
  }
  void before(const Record& record);
  void after(const Record& record);
  void end_node(const NodeId& node);
  double guess_for(const std::string& name) const;

  Past past_;
  cluster::State state_;
  bool began_ = false;
  WallTime first_{}, now_{};
  std::map<JobId, JobStory> jobs_;
  std::map<NodeId, WallTime> requested_, created_;
  std::vector<double> waits_, jcts_, boots_;
};

// What ends a generation, told before the state forgets it.
void Reader::before(const Record& record) {
  now_ = record.time;
  if (const auto* placed = std::get_if<cluster::JobPlaced>(&record.event)) stop(placed->job);
  if (const auto* held = std::get_if<cluster::JobHeld>(&record.event)) stop(held->job);
  if (const auto* failed = std::get_if<cluster::SeatFailed>(&record.event)) stop(failed->job);
  if (const auto* lost = std::get_if<cluster::NodeLost>(&record.event)) {
    const auto node = state_.nodes.find(lost->node);
    if (node != state_.nodes.end() && node->second.phase == cluster::NodePhase::kUp) {
      past_.plan.losses.push_back({at(), node->second.type});
      ++past_.losses;
      ++past_.measured.crashed;
    }
  }
  if (const auto* gone = std::get_if<cluster::NodeGone>(&record.event)) end_node(gone->node);
}

void Reader::end_node(const NodeId& node) {
  const auto it = requested_.find(node);
  if (it == requested_.end()) return;
  ++past_.measured.removed;
  const double hours = to_seconds(now_ - it->second) / 3600;
  past_.measured.node_hours += hours;
  const auto known = state_.nodes.find(node);
  if (known != state_.nodes.end()) {
    past_.measured.cost += hours * known->second.offering.price_per_hour;
    past_.measured.priced = past_.measured.priced || known->second.offering.price_per_hour > 0;
  }
  requested_.erase(it);
}

void Reader::after(const Record& record) {
  ++past_.measured.records;
  if (const auto* configured = std::get_if<cluster::ClusterConfigured>(&record.event)) {
    take_file(configured->text);
  } else if (const auto* submitted = std::get_if<cluster::JobSubmitted>(&record.event)) {
    add_job(submitted->job, submitted->spec);
  } else if (const auto* started = std::get_if<cluster::JobStarted>(&record.event)) {
    const auto job = state_.jobs.find(started->job);
    if (job != state_.jobs.end()) start(started->job, job->second.workers());
  } else if (const auto* stopping = std::get_if<cluster::JobStopping>(&record.event)) {
    stop(stopping->job);
    if (const auto it = jobs_.find(stopping->job); it != jobs_.end() && !stopping->failed)
      it->second.plan.stop_at = at();
  } else if (const auto* ended = std::get_if<cluster::JobEnded>(&record.event)) {
    stop(ended->job);
    const auto it = jobs_.find(ended->job);
    if (it == jobs_.end()) return;
    it->second.ended = true;
    it->second.succeeded = ended->result == cluster::JobResult::kSucceeded;
    past_.measured.last_end = at();
    past_.measured.succeeded += it->second.succeeded ? 1 : 0;
    past_.measured.failed += ended->result == cluster::JobResult::kFailed ? 1 : 0;
    past_.measured.stopped += ended->result == cluster::JobResult::kStopped ? 1 : 0;
    if (it->second.succeeded) jcts_.push_back(to_seconds(now_ - it->second.submitted));
  } else if (const auto* requested = std::get_if<cluster::NodeRequested>(&record.event)) {
    requested_[requested->node] = created_[requested->node] = now_;
    ++past_.measured.launched;
  } else if (const auto* joined = std::get_if<cluster::NodeJoined>(&record.event)) {
    const auto it = created_.find(joined->node);
    if (it == created_.end()) return;
    boots_.push_back(to_seconds(now_ - it->second));
    created_.erase(it);
    const auto node = state_.nodes.find(joined->node);
    if (node != state_.nodes.end()) past_.scenario.cloud.have[node->second.type] = joined->resources;
  }
  int up = 0;
  if (cluster::node_of(record.event)) {
    for (const auto& [id, node] : state_.nodes) up += node.phase == cluster::NodePhase::kUp ? 1 : 0;
    past_.measured.nodes_most = std::max(past_.measured.nodes_most, up);
  }
}

// As much as other jobs of that name had, else as any.
double Reader::guess_for(const std::string& name) const {
  std::vector<double> same, any;
  for (const auto& [id, story] : jobs_) {
    if (!story.succeeded) continue;
    any.push_back(story.worked_s);
    if (story.plan.spec.name == name) same.push_back(story.worked_s);
  }
  std::vector<double>& known = same.empty() ? any : same;
  if (known.empty()) return kGuess_s;
  std::ranges::sort(known);
  return known[known.size() / 2];
}

Past Reader::finish() {
  if (past_.scenario.cluster_text.empty())
    throw Error(ErrorCode::kUsage, "the journal has no cluster file", past_.scenario.cluster_file);
  if (jobs_.empty()) throw Error(ErrorCode::kUsage, "the journal has no jobs", past_.scenario.cluster_file);
  for (const auto& [id, story] : jobs_) {
    PlannedJob plan = story.plan;
    plan.work_s = story.worked_s;
    if (!story.ended) {
      ++past_.guessed;
      ++past_.measured.unfinished;
      plan.work_s = std::max(plan.work_s, guess_for(plan.spec.name));
    }
    past_.plan.jobs.push_back(std::move(plan));
  }
  std::ranges::stable_sort(past_.plan.jobs, {}, &PlannedJob::at);
  const std::map<NodeId, WallTime> still = requested_;
  for (const auto& [node, since] : still) {
    end_node(node);
    --past_.measured.removed;
  }
  past_.measured.wait_s = distribution_of(waits_);
  past_.measured.jct_s = distribution_of(jcts_);
  past_.measured.boot_s = distribution_of(boots_);
  past_.measured.simulated = past_.measured.duration = at();
  Scenario& scenario = past_.scenario;
  scenario.name = past_.measured.scenario = "your history";
  scenario.duration = std::max<Duration>(at(), 1s);
  scenario.spec = read_cluster_spec(scenario.cluster_text, scenario.cluster_file);
  scenario.fidelity = scenario.spec.max_workers <= kRealNodesMax ? Fidelity::kReal : Fidelity::kLight;
  if (!boots_.empty()) {
    std::ranges::sort(boots_);
    scenario.cloud.call = Span{1ms, 2ms};  // it is a part of what was measured
    scenario.cloud.boot = Span{seconds(boots_[boots_.size() / 10]), seconds(boots_[boots_.size() * 9 / 10])};
  }
  past_.assumptions = fmt::format(
      "Each job has the worker-time that it had then; two workers are twice as fast as one. Nodes join within {} to "
      "{}, "
      "as then. {} node losses strike at the same times. {} jobs whose work is not known get that of their like.",
      format_duration(scenario.cloud.boot.from), format_duration(scenario.cloud.boot.to), past_.losses, past_.guessed);
  return std::move(past_);
}

}  // namespace

Past read_past(const JournalSnapshot* snapshot, const std::vector<JournalRecord>& records, const std::string& file) {
  Reader reader(file);
  uint64_t after = 0;
  if (snapshot) {
    reader.begin(cluster::decode_snapshot(snapshot->bytes));
    after = snapshot->offset;
  }
  for (const JournalRecord& record : records) {
    if (record.offset > after) reader.take(cluster::decode(record.offset, record.bytes));
  }
  return reader.finish();
}

std::string changed_file(const std::string& text, const std::string& file, std::string_view change) {
  const auto parts = split_once(change, '=');
  if (!parts || trim(parts->first).empty())
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is no change", change), "", "write KEY=VALUE: max_workers=8");
  nlohmann::ordered_json document = value_of(Yaml::parse(text, file));
  nlohmann::ordered_json* at = &document;
  const std::vector<std::string_view> path = split(trim(parts->first), '.');
  for (size_t i = 0; i < path.size(); ++i) {
    if (!at->is_object()) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("'{}' cannot be set: '{}' is not a mapping", parts->first, path[i - 1]),
                  fmt::format("--change {}", change), "see 'rubato config show' for the file's keys");
    }
    if (i + 1 < path.size() && !at->contains(std::string(path[i]))) {
      std::vector<std::string> keys;
      for (const auto& [key, value] : at->items()) keys.push_back(key);
      const auto near = nearest(path[i], keys);
      throw Error(ErrorCode::kUsage, fmt::format("the cluster file has no '{}'", path[i]),
                  fmt::format("--change {}", change),
                  near ? fmt::format("did you mean {}?", *near) : "see 'rubato config show' for the file's keys");
    }
    at = &(*at)[std::string(path[i])];
  }
  *at = value_of(Yaml::parse(parts->second, "--change"));
  const std::string changed = yaml_text(document);
  try {
    (void)read_cluster_spec(changed, file);
  } catch (const Error& error) {  // the line in a text that nobody has seen says nothing
    throw Error(ErrorCode::kUsage, error.message, fmt::format("--change {}", change), error.hint);
  }
  return changed;
}

Past changed_past(const Past& past, const std::vector<std::string>& changes) {
  Past out = past;
  for (const std::string& change : changes) {
    out.scenario.cluster_text = changed_file(out.scenario.cluster_text, out.scenario.cluster_file, change);
    for (PlannedFile& file : out.plan.files) file.text = changed_file(file.text, out.scenario.cluster_file, change);
  }
  out.scenario.spec = read_cluster_spec(out.scenario.cluster_text, out.scenario.cluster_file);
  return out;
}

}  // namespace rubato::simulate
