#include "node/job_order_runner.h"

#include <fmt/format.h>

#include <csignal>

#include "core/text.h"
#include "node/job_launch.h"

namespace rubato::node {

using elastic::JobOrder;
using elastic::JobOrderReport;
using elastic::JobOrderState;
using elastic::Phase;

namespace {

// A package that did not come or unpack, a port that is not to be had: tried again after this.
constexpr Duration kTryAgain = 5s;
// Who has not ended by then is killed by us and named, before the guard would do it.
constexpr Duration kBeforeGuard = 200ms;
constexpr Duration kNoEnd = std::chrono::hours(24 * 365);
// As a shell says "command not found": no worker was there to end with a code of its own.
constexpr int kNotStarted = 127;
// Enough for a Python traceback of moderate depth.
constexpr size_t kLastWords = 30;
constexpr size_t kLastWordBytes = 500;

std::string text_of(const Error& error) {
  std::string text = error.message;
  if (!error.where.empty()) text += fmt::format(" ({})", error.where);
  if (!error.hint.empty()) text += "; " + error.hint;
  return text;
}

}  // namespace

JobOrderRunner::Group::Group(NodeParts& parts, LaunchSpec spec_in, agent::WorkerGroup::Setup setup,
                           Devices::Share devices_in)
    : spec(std::move(spec_in)),
      devices(std::move(devices_in)),
      workers(parts.world, spec, std::move(setup), parts.events, parts.wake) {}

JobOrderRunner::JobOrderRunner(NodeParts& parts, JobId job)
    : parts_(parts),
      job_(std::move(job)),
      log_(parts.world, parts.settings.folder + "/spool/" + job_.value, parts.wake, parts.first_sequence, parts.self),
      scope_(parts.world.clock.loop()) {
  job_order_.job = job_;
  job_order_.phase = Phase::kEnded;
}

void JobOrderRunner::obey(const JobOrder& job_order) {
  const bool newer = job_order.generation != job_order_.generation;
  const bool goes_on = job_order.phase != Phase::kEnded;
  if (newer) {
    port_.reset();
    forced_.clear();
  }
  if (goes_on && (gone_ || abandoned_)) prepared_ = false;  // its folder is gone
  if (goes_on) gone_ = false;
  abandoned_ = false;
  job_order_ = job_order;
}

void JobOrderRunner::abandon() {
  abandoned_ = true;
  job_order_.phase = Phase::kEnded;
}

void JobOrderRunner::leave(const std::string& reason, bool in_peace) {
  if (in_peace && leaving_.empty() && may_leave_in_peace()) {
    peace_until_ = parts_.world.clock.now() + agent::peace_for(job_order_.grace);
    scope_.spawn(end_peace());
  }
  leaving_ = reason;
  if (!this->in_peace()) stop_workers();
}

bool JobOrderRunner::in_peace() const { return parts_.world.clock.now() < peace_until_; }

Task<void> JobOrderRunner::end_peace() {
  co_await Sleep(parts_.world.clock.loop(), peace_until_);
  parts_.wake();
}

void JobOrderRunner::renew() {
  bound_workers();
  if (waits_for_lease_ && !is_lease_over(elastic::lease_terms(job_order_))) parts_.wake();
}

void JobOrderRunner::set_drain_end(std::optional<Instant> end) {
  drain_end_ = end;
  bound_workers();
}

// The lease, or the end of the machine: whichever is first.
void JobOrderRunner::bound_workers() {
  if (idle()) return;
  std::optional<Instant> until = parts_.lease_end(group_->terms);
  if (drain_end_) until = std::min(until.value_or(*drain_end_), *drain_end_);
  // One who was bounded and is not any more lives as long as it will.
  if (!until && bounded_) until = parts_.world.clock.now() + kNoEnd;
  bounded_ = until.has_value();
  if (until) group_->workers.end_by(*until);
}

bool JobOrderRunner::is_lease_over(const elastic::LeaseTerms& terms) const {
  const std::optional<Instant> until = parts_.lease_end(terms);
  return until && *until <= parts_.world.clock.now();
}

void JobOrderRunner::kill() {
  if (group_) group_->workers.kill();
}

void JobOrderRunner::stop_workers() {
  if (idle()) return;
  Duration grace = job_order_.grace;
  if (drain_end_) grace = std::clamp<Duration>(*drain_end_ - kBeforeGuard - parts_.world.clock.now(), 0s, grace);
  group_->workers.stop(SIGTERM, grace);
}

void JobOrderRunner::follow() {
  if (idle()) settle_log();
  if (!leaving_.empty() && !in_peace()) stop_workers();
  log_.flush();
  switch (job_order_.phase) {
    case Phase::kGathering:
      follow_gathering();
      break;
    case Phase::kRunning:
      follow_running();
      break;
    case Phase::kEnded:
      follow_ended();
      break;
  }
}

// The last line is in: what is to be said about dropped ones is said now.
void JobOrderRunner::settle_log() {
  if (!group_ || std::exchange(settled_, true)) return;
  if (group_->workers.finished() && !group_->waits) finished_ = started_;
  log_.settle();
  log_.finish_outputs();
  parts_.checkpoints.end(job_);
  for (const int rank : group_->workers.forced()) forced_.push_back(fmt::format("rank {}", rank));
  group_->devices = Devices::Share();
}

void JobOrderRunner::follow_gathering() {
  if (job_order_.kept > 0 && follow_kept()) return;
  if (!idle()) {
    stop_workers();
    return;
  }
  if (!leaving_.empty()) return;
  // Fetched while others gather; what they still bring comes when they are to start.
  (void)are_checkpoints_here();
  if (!prepared_) {
    begin_preparing();
  } else if (!parts_.checkpoints.all_kept(job_)) {
    return;  // other nodes are to go on from it
  } else if (!port_) {
    begin_anew();
    lease_port();
  }
}

bool JobOrderRunner::lease_port() {
  if (port_) return true;
  try {
    port_ = parts_.world.network.lease_port(0);
    problem_.clear();
    return true;
  } catch (const Error& error) {
    problem_ = text_of(error);
    prepared_ = false;  // the way back here, after a pause
    begin_preparing();
    return false;
  }
}

void JobOrderRunner::follow_running() {
  waits_for_lease_ = false;
  if (job_order_.plan && in_place_) {
    follow_plan();
    return;
  }
  if (started_ >= job_order_.generation || !leaving_.empty()) return;
  // The order may be older than it looks: this agent stood still, and the next generation runs elsewhere.
  waits_for_lease_ = is_lease_over(elastic::lease_terms(job_order_));
  if (waits_for_lease_) return;
  if (!idle()) {
    // All others have been told that these are gone.
    kill();
  } else if (!prepared_) {
    begin_preparing();
  } else if (are_checkpoints_here()) {
    start_workers();
  }
}

bool JobOrderRunner::is_all_kept() const { return log_.all_kept() && parts_.checkpoints.all_kept(job_); }

bool JobOrderRunner::are_checkpoints_here() {
  const bool here = parts_.checkpoints.restore(job_, job_order_.generation, job_order_.checkpoints);
  return here && !job_order_.more_checkpoints;
}

void JobOrderRunner::begin_checkpoints() {
  const Generation generation = job_order_.generation;
  const int rank = job_order_.place.first_rank;
  parts_.checkpoints.begin(job_, generation, [this, generation, rank](const std::string& text) {
    log_.add(generation, rank, true, text);
    parts_.wake();
  });
}

void JobOrderRunner::follow_ended() {
  if (job_order_.kept > 0 && holds_workers()) return;
  port_.reset();
  scope_.cancel();
  preparing_ = false;
  if (!idle()) {
    if (!job_order_.plan || !leaves_by_plan()) stop_workers();
    return;
  }
  // A head that has forgotten the job does not want its lines either.
  if (!abandoned_ && (gone_ || !is_all_kept())) return;
  group_.reset();
  in_place_.reset();
  anew_for_ = 0;
  parts_.discard(folder());
  parts_.checkpoints.forget(job_);
  prepared_ = false;
  if (abandoned_) log_.remove();
  gone_ = true;
  if (parts_.supervisor) parts_.supervisor->forget(job_);
}

void JobOrderRunner::begin_preparing() {
  if (std::exchange(preparing_, true)) return;
  scope_.spawn(prepare());
}

Task<void> JobOrderRunner::prepare() {
  if (!problem_.empty()) co_await Sleep(parts_.world.clock.loop(), parts_.world.clock.now() + kTryAgain);
  problem_.clear();
  try {
    co_await make_work_folder();
    prepared_ = true;
    if (!job_order_.spec.prewarm.empty()) parts_.prewarm(job_order_, python(), folder() + "/work");
  } catch (const Error& error) {
    problem_ = text_of(error);
    // Once, however often it is tried: a person who wonders why nothing starts looks here.
    if (std::exchange(told_, problem_) != problem_) {
      log_.add(job_order_.generation, job_order_.place.first_rank, true, "rubato: " + problem_);
    }
  }
  preparing_ = false;
  parts_.wake();
}

Task<void> JobOrderRunner::make_work_folder() {
  Files& files = parts_.world.files;
  const std::string work = folder() + "/work";
  files.make_folders(folder());
  if (files.exists(work)) co_return;
  if (job_order_.spec.package.empty()) {
    files.make_folders(work);
    co_return;
  }
  const std::string package = co_await parts_.packages.get(job_order_.spec.package);
  const std::string draft = folder() + "/work.draft";
  files.remove_tree(draft);
  co_await copy_tree(parts_.world, package, draft);
  files.move(draft, work);
}

const std::string& JobOrderRunner::python() const {
  return job_order_.spec.python.empty() ? parts_.settings.python : job_order_.spec.python;
}

agent::WorkerGroup::Setup JobOrderRunner::make_setup(const std::string& visible_devices) {
  const NodeSettings& settings = parts_.settings;
  std::optional<std::string> devices;
  if (parts_.devices.count() > 0) devices = visible_devices;
  agent::WorkerGroup::Setup setup;
  setup.python = python();
  setup.environment = job_environment(settings.environment, job_order_, settings.node, devices, settings.old_torch);
  // AdaptDL's scripts keep data there. Of this node alone: who has a disk for all nodes names it.
  setup.environment.try_emplace("ADAPTDL_SHARE_PATH", share_folder());
  if (parts_.supervisor) {
    parts_.supervisor->follow(job_order_);
    setup.environment["ADAPTDL_SUPERVISOR_URL"] = parts_.supervisor->url_for(job_);
  }
  setup.log_folder = folder() + "/attempts";
  setup.cwd = folder() + "/work";
  setup.own_variables = [this](const agent::WorkerPlace& place) {
    agent::Environment env = own_variables(place);
    if (!place.worker_id.empty()) {
      env.merge(in_place_->variables(place.worker_id));
      // The group's devices may be others by now than when it was made.
      const bool ours = parts_.devices.count() > 0 && !job_order_.spec.env.contains("CUDA_VISIBLE_DEVICES");
      if (ours) env["CUDA_VISIBLE_DEVICES"] = group_->devices.visible();
    }
    return env;
  };
  if (in_place_) {
    setup.survives = [this] {
      in_place_->read_reports();
      return in_place_->all_declared(group_->workers);
    };
  }
  last_output_.clear();
  setup.lines_of = [this](Generation generation) {
    return agent::LineSink([this, generation](int rank, bool is_stderr, agent::LineSplitter::Line line) {
      if (is_stderr) remember(rank, line.text);
      log_.add(generation, rank, is_stderr, std::move(line.text), line.end, line.continues);
    });
  };
  setup.lines = setup.lines_of(job_order_.generation);
  setup.gate.open = [this] { return log_.has_room(parts_.head_takes_lines()); };
  setup.gate.changed = &parts_.room;
  setup.kept_in = [this](int rank, bool is_stderr) {
    return log_.begin_output(OutputId{job_order_.generation, rank, is_stderr});
  };
  return setup;
}

// For workers that are about to start. Throws Error.
void JobOrderRunner::make_group() {
  group_.reset();
  // AdaptDL makes files in its folders, but not the folders.
  parts_.world.files.make_folders(share_folder());
  if (!job_order_.output.empty()) parts_.world.files.make_folders(job_order_.output);
  begin_checkpoints();
  Devices::Share devices = parts_.devices.take(job_order_.workers, job_order_.spec.per_worker.of(kGpu));
  agent::WorkerGroup::Setup setup = make_setup(devices.visible());
  LaunchSpec spec = launch_spec(job_order_);
  if (!parts_.is_warm_for(job_)) spec.prewarm.clear();
  group_ = std::make_unique<Group>(parts_, std::move(spec), std::move(setup), std::move(devices));
  group_->terms = elastic::lease_terms(job_order_);
  settled_ = bounded_ = false;
}

void JobOrderRunner::start_workers() {
  started_ = job_order_.generation;
  finished_ = 0;
  no_start_.reset();
  try {
    make_group();
    port_.reset();
    group_->workers.start(job_order_view(job_order_));
    bound_workers();
  } catch (const Error& error) {
    could_not_start(error);
  }
  parts_.wake();
}

void JobOrderRunner::could_not_start(const Error& error) {
  group_.reset();
  log_.finish_outputs();
  elastic::Failure failure;
  failure.rank = job_order_.place.first_rank;
  failure.generation = job_order_.generation;
  failure.exit_code = kNotStarted;
  failure.at = parts_.world.clock.now();
  failure.message = text_of(error);
  log_.add(job_order_.generation, failure.rank, true, "rubato: " + failure.message);
  no_start_ = std::move(failure);
}

JobOrderReport JobOrderRunner::report() {
  JobOrderReport report;
  report.job = job_;
  report.generation = job_order_.generation;
  report.problem = leaving_.empty() ? problem_ : leaving_;
  if (report.problem.empty() && idle()) report.problem = parts_.checkpoints.progress(job_);
  report.forced = forced_;
  report.succeeded = finished_;
  report.in_place = in_place_report();
  // Nobody starts the next generation before the last lines of one that is done are out: it ends the job.
  if (finished_ != 0 && !is_all_kept() && job_order_.phase != Phase::kRunning) return report;
  switch (job_order_.phase) {
    case Phase::kGathering:
      if (job_order_.kept > 0 && in_place_) return kept_report(std::move(report));
      if (port_ && idle() && leaving_.empty()) {
        report.state = JobOrderState::kReady;
        report.port = port_->port();
      }
      return report;
    case Phase::kRunning:
      return running_report(std::move(report));
    case Phase::kEnded:
      if (gone_) report.state = JobOrderState::kGone;
      return report;
  }
  CHECK(false);
}

JobOrderReport JobOrderRunner::running_report(JobOrderReport report) {
  if (started_ != job_order_.generation) return report;
  using State = agent::WorkerGroup::State;
  const State state = no_start_ ? State::kFailed : group_ ? group_->workers.state() : State::kIdle;
  // Whoever hears that they have ended may look for their last lines, or go on from what they have saved.
  if (!idle() || (state != State::kIdle && !is_all_kept())) {
    report.state = JobOrderState::kRunning;
    if (!idle()) report.failures = dead_members();
    return report;
  }
  switch (state) {
    case State::kIdle:  // stopped by us
    case State::kRunning:
      break;
    case State::kSucceeded:
      // Who was told to stop and ended with 0 has saved; that is no end of its work.
      if (finished_ == started_) report.state = JobOrderState::kSucceeded;
      break;
    case State::kFailed:
      report.state = JobOrderState::kFailed;
      report.failures = failures();
      report.fenced = group_ && group_->workers.ended_by_lease();
      break;
  }
  return report;
}

std::vector<elastic::Failure> JobOrderRunner::failures() const {
  std::vector<elastic::Failure> list;
  if (no_start_) list = {*no_start_};
  if (!no_start_ && group_) list = group_->workers.failures();
  return explained(std::move(list));
}

std::vector<elastic::Failure> JobOrderRunner::explained(std::vector<elastic::Failure> list) const {
  for (elastic::Failure& failure : list) {
    // Several nodes may be one machine: the node's name says more.
    failure.host = parts_.settings.node.value;
    if (group_ && group_->workers.ended_by_lease() && failure.message.empty())
      failure.message = "ended by its node, which had not reached the head, nor enough nodes of the job, for too long";
    // A script without torch's @record leaves no error file, but Python has printed why it ended.
    const auto kept = last_output_.find(failure.rank);
    if (failure.message.empty() && failure.traceback.empty() && kept != last_output_.end()) {
      failure.message = kept->second.back();
      failure.traceback = join(kept->second, "\n");
    }
  }
  return list;
}

void JobOrderRunner::remember(int rank, const std::string& line) {
  if (trim(line).empty()) return;
  std::deque<std::string>& kept = last_output_[rank];
  kept.push_back(line.substr(0, kLastWordBytes));
  if (kept.size() > kLastWords) kept.pop_front();
}

}  // namespace rubato::node
