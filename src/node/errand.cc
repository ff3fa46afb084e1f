#include "node/errand.h"

#include <fmt/format.h>

#include <csignal>

#include "core/text.h"
#include "node/job_launch.h"

namespace rubato::node {

using elastic::Errand;
using elastic::ErrandReport;
using elastic::ErrandState;
using elastic::Phase;

namespace {

// A package that did not come or unpack, a port that is not to be had: tried again after this.
constexpr Duration kTryAgain = 5s;
// As a shell says "command not found": no worker was there to end with a code of its own.
constexpr int kNotStarted = 127;
// Enough for a Python traceback of moderate depth.
constexpr size_t kLastWords = 30;
constexpr size_t kLastWordBytes = 500;

std::string words(const Error& error) {
  std::string text = error.message;
  if (!error.where.empty()) text += fmt::format(" ({})", error.where);
  if (!error.hint.empty()) text += "; " + error.hint;
  return text;
}

}  // namespace

ErrandRunner::Group::Group(NodeParts& parts, LaunchSpec spec_in, agent::WorkerGroup::Setup setup,
                           Devices::Share devices_in)
    : spec(std::move(spec_in)),
      devices(std::move(devices_in)),
      workers(parts.world, spec, std::move(setup), parts.events, parts.stir) {}

ErrandRunner::ErrandRunner(NodeParts& parts, JobId job)
    : parts_(parts),
      job_(std::move(job)),
      log_(parts.world, parts.settings.folder + "/spool/" + job_.value, parts.stir, parts.first_sequence, parts.self),
      scope_(parts.world.clock.loop()) {
  errand_.job = job_;
  errand_.phase = Phase::kEnded;
}

void ErrandRunner::obey(const Errand& errand) {
  const bool newer = errand.generation != errand_.generation;
  const bool goes_on = errand.phase != Phase::kEnded;
  if (newer) {
    port_.reset();
    forced_.clear();
  }
  if (goes_on && (gone_ || abandoned_)) prepared_ = false;  // its folder is gone
  if (goes_on) gone_ = false;
  abandoned_ = false;
  errand_ = errand;
}

void ErrandRunner::abandon() {
  abandoned_ = true;
  errand_.phase = Phase::kEnded;
}

void ErrandRunner::leave(const std::string& reason) {
  leaving_ = reason;
  stop_workers();
}

void ErrandRunner::renew() {
  if (group_ && group_->workers.alive()) {
    if (const std::optional<Instant> until = parts_.lease_end(group_->terms)) group_->workers.end_by(*until);
  }
  if (waits_for_lease_ && !is_lease_over(elastic::lease_terms(errand_))) parts_.stir();
}

bool ErrandRunner::is_lease_over(const elastic::LeaseTerms& terms) const {
  const std::optional<Instant> until = parts_.lease_end(terms);
  return until && *until <= parts_.world.clock.now();
}

void ErrandRunner::kill() {
  if (group_) group_->workers.kill();
}

void ErrandRunner::stop_workers() {
  if (group_ && group_->workers.alive()) group_->workers.stop(SIGTERM, errand_.grace);
}

void ErrandRunner::follow() {
  if (idle()) settle_log();
  log_.flush();
  switch (errand_.phase) {
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
void ErrandRunner::settle_log() {
  if (!group_ || std::exchange(settled_, true)) return;
  if (group_->workers.finished()) finished_ = started_;
  log_.settle();
  log_.finish_outputs();
  for (const int rank : group_->workers.forced()) forced_.push_back(fmt::format("rank {}", rank));
  group_->devices = Devices::Share();
}

void ErrandRunner::follow_gathering() {
  if (!idle()) {
    stop_workers();
    return;
  }
  if (!leaving_.empty()) return;
  if (!prepared_) {
    begin_preparing();
  } else if (!port_) {
    try {
      port_ = parts_.world.network.lease_port(0);
      problem_.clear();
    } catch (const Error& error) {
      problem_ = words(error);
      prepared_ = false;  // the way back here, after a pause
      begin_preparing();
    }
  }
}

void ErrandRunner::follow_running() {
  waits_for_lease_ = false;
  if (started_ >= errand_.generation || !leaving_.empty()) return;
  // The order may be older than it looks: this agent stood still, and the next generation runs elsewhere.
  waits_for_lease_ = is_lease_over(elastic::lease_terms(errand_));
  if (waits_for_lease_) return;
  if (!idle()) {
    // All others have been told that these are gone.
    kill();
  } else if (!prepared_) {
    begin_preparing();
  } else {
    start_workers();
  }
}

void ErrandRunner::follow_ended() {
  port_.reset();
  scope_.cancel();
  preparing_ = false;
  if (!idle()) {
    stop_workers();
    return;
  }
  // A head that has forgotten the job does not want its lines either.
  if (!abandoned_ && (gone_ || !log_.all_kept())) return;
  group_.reset();
  parts_.discard(folder());
  prepared_ = false;
  if (abandoned_) log_.remove();
  gone_ = true;
  if (parts_.supervisor) parts_.supervisor->forget(job_);
}

void ErrandRunner::begin_preparing() {
  if (std::exchange(preparing_, true)) return;
  scope_.spawn(prepare());
}

Task<void> ErrandRunner::prepare() {
  if (!problem_.empty()) co_await Sleep(parts_.world.clock.loop(), parts_.world.clock.now() + kTryAgain);
  problem_.clear();
  try {
    co_await make_work_folder();
    prepared_ = true;
    if (!errand_.spec.prewarm.empty()) parts_.prewarm(errand_, python(), folder() + "/work");
  } catch (const Error& error) {
    problem_ = words(error);
    // Once, however often it is tried: a person who wonders why nothing starts looks here.
    if (std::exchange(told_, problem_) != problem_) {
      log_.add(errand_.generation, errand_.place.first_rank, true, "rubato: " + problem_);
    }
  }
  preparing_ = false;
  parts_.stir();
}

Task<void> ErrandRunner::make_work_folder() {
  Files& files = parts_.world.files;
  const std::string work = folder() + "/work";
  files.make_folders(folder());
  if (files.exists(work)) co_return;
  if (errand_.spec.package.empty()) {
    files.make_folders(work);
    co_return;
  }
  const std::string package = co_await parts_.packages.get(errand_.spec.package);
  const std::string draft = folder() + "/work.draft";
  files.remove_tree(draft);
  co_await copy_tree(parts_.world, package, draft);
  files.move(draft, work);
}

const std::string& ErrandRunner::python() const {
  return errand_.spec.python.empty() ? parts_.settings.python : errand_.spec.python;
}

agent::WorkerGroup::Setup ErrandRunner::make_setup(const std::string& visible_devices) {
  const NodeSettings& settings = parts_.settings;
  std::optional<std::string> devices;
  if (parts_.devices.count() > 0) devices = visible_devices;
  agent::WorkerGroup::Setup setup;
  setup.python = python();
  setup.environment = job_environment(settings.environment, errand_, settings.node, devices, settings.old_torch);
  if (parts_.supervisor) {
    parts_.supervisor->follow(errand_);
    setup.environment["ADAPTDL_SUPERVISOR_URL"] = parts_.supervisor->url_for(job_);
  }
  setup.log_folder = folder() + "/attempts";
  setup.cwd = folder() + "/work";
  setup.own_variables = own_variables;
  const Generation generation = errand_.generation;
  last_words_.clear();
  setup.lines = [this, generation](int rank, bool is_stderr, agent::LineSplitter::Line line) {
    if (is_stderr) remember(rank, line.text);
    log_.add(generation, rank, is_stderr, std::move(line.text), line.end, line.continues);
  };
  setup.gate.open = [this] { return log_.has_room(parts_.head_takes_lines()); };
  setup.gate.changed = &parts_.room;
  setup.kept_in = [this, generation](int rank, bool is_stderr) {
    return log_.begin_output(OutputId{generation, rank, is_stderr});
  };
  return setup;
}

void ErrandRunner::start_workers() {
  group_.reset();
  started_ = errand_.generation;
  settled_ = false;
  finished_ = 0;
  no_start_.reset();
  try {
    // AdaptDL makes files in its folder, but not the folder.
    if (!errand_.output.empty()) parts_.world.files.make_folders(errand_.output + "/" + std::string(kAdaptdlFolder));
    Devices::Share devices = parts_.devices.take(errand_.workers, errand_.spec.per_worker.of(kGpu));
    agent::WorkerGroup::Setup setup = make_setup(devices.visible());
    LaunchSpec spec = launch_spec(errand_);
    if (!parts_.is_warm_for(job_)) spec.prewarm.clear();
    group_ = std::make_unique<Group>(parts_, std::move(spec), std::move(setup), std::move(devices));
    group_->terms = elastic::lease_terms(errand_);
    port_.reset();
    group_->workers.start(errand_view(errand_));
    if (const std::optional<Instant> until = parts_.lease_end(group_->terms)) group_->workers.end_by(*until);
  } catch (const Error& error) {
    could_not_start(error);
  }
  parts_.stir();
}

void ErrandRunner::could_not_start(const Error& error) {
  group_.reset();
  log_.finish_outputs();
  elastic::Failure failure;
  failure.rank = errand_.place.first_rank;
  failure.generation = errand_.generation;
  failure.exit_code = kNotStarted;
  failure.at = parts_.world.clock.now();
  failure.message = words(error);
  log_.add(errand_.generation, failure.rank, true, "rubato: " + failure.message);
  no_start_ = std::move(failure);
}

ErrandReport ErrandRunner::report() {
  ErrandReport report;
  report.job = job_;
  report.generation = errand_.generation;
  report.problem = leaving_.empty() ? problem_ : leaving_;
  report.forced = forced_;
  report.succeeded = finished_;
  // Nobody starts the next generation before the last lines of one that is done are out: it ends the job.
  if (finished_ != 0 && !log_.all_kept() && errand_.phase != Phase::kRunning) return report;
  switch (errand_.phase) {
    case Phase::kGathering:
      if (port_ && idle() && leaving_.empty()) {
        report.state = ErrandState::kReady;
        report.port = port_->port();
      }
      return report;
    case Phase::kRunning:
      return running_report(std::move(report));
    case Phase::kEnded:
      if (gone_) report.state = ErrandState::kGone;
      return report;
  }
  CHECK(false);
}

ErrandReport ErrandRunner::running_report(ErrandReport report) {
  if (started_ != errand_.generation) return report;
  using State = agent::WorkerGroup::State;
  const State state = no_start_ ? State::kFailed : group_ ? group_->workers.state() : State::kIdle;
  // Whoever hears that they have ended may look for their last lines.
  if (!idle() || (state != State::kIdle && !log_.all_kept())) {
    report.state = ErrandState::kRunning;
    return report;
  }
  switch (state) {
    case State::kIdle:  // stopped by us
    case State::kRunning:
      break;
    case State::kSucceeded:
      // Who was told to stop and ended with 0 has saved; that is no end of its work.
      if (finished_ == started_) report.state = ErrandState::kSucceeded;
      break;
    case State::kFailed:
      report.state = ErrandState::kFailed;
      report.failures = failures();
      report.fenced = group_ && group_->workers.ended_by_lease();
      break;
  }
  return report;
}

std::vector<elastic::Failure> ErrandRunner::failures() const {
  std::vector<elastic::Failure> list;
  if (no_start_) list = {*no_start_};
  if (!no_start_ && group_) list = group_->workers.failures();
  for (elastic::Failure& failure : list) {
    // Several nodes may be one machine: the node's name says more.
    failure.host = parts_.settings.node.value;
    if (group_ && group_->workers.ended_by_lease() && failure.message.empty())
      failure.message = "ended by its node, which had not reached the head, nor enough nodes of the job, for too long";
    // A script without torch's @record leaves no error file, but Python has printed why it ended.
    const auto words = last_words_.find(failure.rank);
    if (failure.message.empty() && failure.traceback.empty() && words != last_words_.end()) {
      failure.message = words->second.back();
      failure.traceback = join(words->second, "\n");
    }
  }
  return list;
}

void ErrandRunner::remember(int rank, const std::string& line) {
  if (trim(line).empty()) return;
  std::deque<std::string>& words = last_words_[rank];
  words.push_back(line.substr(0, kLastWordBytes));
  if (words.size() > kLastWords) words.pop_front();
}

}  // namespace rubato::node
