#include "agent/worker_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "agent/error_file.h"
#include "agent/template.h"

namespace rubato::agent {

namespace {
// A failure is told with its last line, but nobody waits long for a reader that is behind.
constexpr Duration kReadLastMax = 1s;

std::optional<PythonMain> warm_main(const LaunchSpec& spec, const std::vector<std::string>& argv) {
  PythonMain main;
  size_t before_args = 0;  // of argv
  switch (spec.kind) {
    case ProgramKind::kScript:
      main.kind = PythonMain::Kind::kScript;
      before_args = 3;
      break;
    case ProgramKind::kModule:
      main.kind = PythonMain::Kind::kModule;
      before_args = 4;
      break;
    case ProgramKind::kRunPath:
      main.kind = PythonMain::Kind::kRunPath;
      before_args = 5;
      break;
    case ProgramKind::kBinary:
      return std::nullopt;
  }
  main.target = argv[before_args - 1];
  main.args.assign(argv.begin() + static_cast<std::ptrdiff_t>(before_args), argv.end());
  return main;
}

Task<bool> joined(Scope& scope) {
  co_await scope.join();
  co_return true;
}
}  // namespace

WorkerGroup::WorkerGroup(World& world, const LaunchSpec& spec, Setup setup, EventLog& events,
                         std::function<void()> on_change)
    : world_(world),
      spec_(spec),
      setup_(std::move(setup)),
      events_(events),
      on_change_(std::move(on_change)),
      killer_(world.clock.loop(), [this] { grace_is_over(); }),
      scope_(world.clock.loop()) {}

void WorkerGroup::start(const elastic::View& view) {
  CHECK(!alive());
  clear();
  generation_ = view.legacy.generation;
  state_ = State::kRunning;
  try {
    for (int local_rank = 0; local_rank < spec_.nproc; ++local_rank) spawn(local_rank, view);
  } catch (const Error&) {
    clear();
    throw;
  }
  for (const auto& worker : workers_) scope_.spawn(watch(*worker));
}

void WorkerGroup::add(const elastic::View& view, int local_rank, const std::string& id) {
  if (!alive()) clear();
  CHECK(!stopping_);
  generation_ = view.legacy.generation;
  state_ = State::kRunning;
  spawn(local_rank, view, id);
  scope_.spawn(watch(*workers_.back()));
}

void WorkerGroup::advance(Generation generation, const std::map<std::string, int>& ranks) {
  generation_ = generation;
  failures_.clear();
  for (const auto& worker : workers_) {
    if (const auto rank = ranks.find(worker->id); rank != ranks.end()) worker->rank = rank->second;
  }
}

void WorkerGroup::retire(Duration grace) {
  if (!alive()) return;
  const Instant deadline = world_.clock.now() + grace;
  if (kill_at_ && *kill_at_ <= deadline) return;
  stopping_ = retired_ = true;
  kill_at_ = deadline;
  killer_.set(deadline);
}

void WorkerGroup::dismiss(const std::string& id, int signal, Duration grace) {
  for (const auto& worker : workers_) {
    if (worker->id != id || worker->ended || std::exchange(worker->dismissed, true)) continue;
    if (signal != 0) worker->process->signal_group(signal);
    scope_.spawn(kill_late(*worker, world_.clock.now() + grace));
  }
}

Task<void> WorkerGroup::kill_late(Worker& worker, Instant deadline) {
  co_await Sleep(world_.clock.loop(), deadline);
  if (worker.process->status()) co_return;
  forced_.push_back(worker.rank);
  worker.process->signal_group(SIGKILL);
}

std::optional<WorkerGroup::Named> WorkerGroup::find(const std::string& id) const {
  for (const auto& worker : workers_) {
    if (worker->id != id) continue;
    const auto& status = worker->process->status();
    const bool well = worker->ended && status->ok() && !worker->failure && !worker->asked;
    return Named{!worker->ended, worker->dismissed, well, worker->reading_last, worker->failure};
  }
  return std::nullopt;
}

std::vector<std::string> WorkerGroup::living() const {
  std::vector<std::string> ids;
  for (const auto& worker : workers_) {
    if (!worker->ended) ids.push_back(worker->id);
  }
  return ids;
}

bool WorkerGroup::newest(const Worker& worker) const {
  return std::ranges::none_of(workers_, [&](const auto& other) {
    return other->local_rank == worker.local_rank && other->started > worker.started;
  });
}

void WorkerGroup::spawn(int local_rank, const elastic::View& view, const std::string& id) {
  auto worker = std::make_unique<Worker>();
  worker->local_rank = local_rank;
  worker->id = id;
  worker->born = view.legacy.generation;
  worker->started = ++spawned_;
  worker->rank = view.assignment->first_rank + local_rank;
  if (!setup_.log_folder.empty()) {
    worker->folder = fmt::format("{}/attempt_{}/{}", setup_.log_folder, view.legacy.generation - 1, local_rank);
    world_.files.make_folders(worker->folder);
  }

  WorkerPlace place;
  place.local_rank = local_rank;
  place.generation = view.legacy.generation;
  place.assignment = *view.assignment;
  place.master_addr = view.master_addr;
  place.master_port = view.master_port;
  place.restarts_used = view.legacy.restarts_used;
  place.worker_id = id;
  if (!worker->folder.empty()) place.error_file = worker->folder + "/error.json";

  const OutputPlan output = output_plan(*worker);
  Environment environment = setup_.environment;
  if (setup_.own_variables) {
    for (auto& [name, value] : setup_.own_variables(place)) environment[name] = std::move(value);
  }
  SpawnSpec spec;
  spec.argv = worker_arguments(spec_, setup_.python, local_rank);
  spec.env = worker_environment(environment, spec_, place);
  spec.cwd = setup_.cwd;
  if (!spec_.cpus.empty()) spec.cpus = spec_.cpus.at(static_cast<size_t>(local_rank));
  spec.out = output.out;
  spec.err = output.err;
  if (!spec_.prewarm.empty()) spec.warm = warm_main(spec_, spec.argv);
  worker->process = world_.processes.spawn(spec);
  if (!setup_.lines && output.piped()) worker->tee = make_tee(*worker);
  ++live_;
  events_.write("spawn", {{"generation", generation_},
                          {"local_rank", local_rank},
                          {"rank", worker->rank},
                          {"pid", worker->process->pid()},
                          {"warm", worker->process->warm()}});
  workers_.push_back(std::move(worker));
}

OutputPlan WorkerGroup::output_plan(const Worker& worker) const {
  if (!setup_.lines) return plan_output(spec_, worker.local_rank, worker.folder);
  OutputPlan plan;
  plan.out.kind = plan.err.kind = OutputTarget::Kind::kPipe;
  if (setup_.kept_in) {
    plan.out.path = setup_.kept_in(worker.rank, false);
    plan.err.path = setup_.kept_in(worker.rank, true);
  }
  return plan;
}

std::unique_ptr<Tee> WorkerGroup::make_tee(Worker& worker) {
  const auto& filter = spec_.local_ranks_filter;
  const bool show = !filter || std::ranges::find(*filter, worker.local_rank) != filter->end();
  const OutputPlan plan = output_plan(worker);
  TeeSpec spec;
  spec.prefix = safe_substitute(setup_.prefix, {{"role_name", spec_.role},
                                                {"rank", std::to_string(worker.rank)},
                                                {"local_rank", std::to_string(worker.local_rank)}});
  const std::string attempt = worker.folder.substr(0, worker.folder.rfind('/'));
  const auto stream = [&](const OutputTarget& target, const std::string& name,
                          const std::vector<std::string>& arguments) {
    TeeStream one;
    if (target.kind != OutputTarget::Kind::kPipe) return one;
    one.show = show;
    one.file = fmt::format("{}/{}.log", worker.folder, name);
    if (show) one.filters = arguments;
    one.filtered_file = fmt::format("{}/filtered_{}.log", attempt, name);  // one for all workers
    return one;
  };
  spec.out = stream(plan.out, "stdout", spec_.stdout_filters);
  spec.err = stream(plan.err, "stderr", spec_.stderr_filters);
  CHECK(setup_.outlets != nullptr);
  std::function<void()> lost = [this, &worker] { on_output_lost(worker); };
  return std::make_unique<Tee>(world_, *setup_.outlets, *worker.process, std::move(spec), std::move(lost));
}

// A worker that writes to the file itself would have met the full disk, and ended by it in most programs.
void WorkerGroup::on_output_lost(Worker& worker) {
  world_.console.err(
      fmt::format("rubato: {}: the output of rank {} cannot be kept\n", worker.tee->failure(), worker.rank));
  if (!worker.process->status()) stop(SIGTERM, spec_.grace);
}

Task<void> WorkerGroup::watch(Worker& worker) {
  Scope tee(world_.clock.loop());
  if (setup_.lines) {
    LineSink sink = setup_.lines_of ? setup_.lines_of(worker.born) : setup_.lines;
    tee.spawn(take_lines(world_.clock.loop(), *worker.process, worker.rank, std::move(sink), setup_.gate));
  }
  if (worker.tee) tee.spawn(worker.tee->run());
  const ExitStatus status = co_await worker.process->wait();
  if (worker.tee) worker.tee->hurry();
  const bool by_us = (stopping_ || worker.dismissed) && !worker.output_lost();
  unasked_ = unasked_ && (!stopping_ || worker.by_itself);
  events_.write("exit", {{"generation", generation_},
                         {"local_rank", worker.local_rank},
                         {"rank", worker.rank},
                         {"pid", worker.process->pid()},
                         {"code", status.code},
                         {"signal", status.signal}});
  const bool late = was_late_ || (end_by_ && world_.clock.now() >= *end_by_);
  if (!by_us && late && status.signal == SIGKILL) ended_by_lease_ = true;
  worker.ended = true;
  if ((!status.ok() || worker.output_lost()) && !by_us) {
    record_failure(worker, status);
    if (!setup_.survives || !setup_.survives()) {
      state_ = State::kFailed;
      stop(SIGTERM, spec_.grace);
    }
  }
  // Whom a signal ended had nothing to say, and its children may hold the pipe.
  worker.reading_last = worker.failure && worker.failure->signal == 0 && setup_.lines;
  if (!worker.id.empty()) on_change_();  // the others need not wait for the last of its output
  if (worker.reading_last) {
    co_await with_deadline(world_.clock.loop(), world_.clock.now() + kReadLastMax, joined(tee));
    worker.reading_last = false;
    on_change_();
  }
  co_await tee.join();
  --live_;
  if (live_ == 0) {
    killer_.disarm();
    const bool all_ok = std::ranges::all_of(
        workers_, [this](const auto& w) { return w->process->status()->ok() || w->dismissed || !newest(*w); });
    // Workers that we stopped have neither failed nor succeeded, unless they were all done anyway.
    if (state_ == State::kRunning) {
      state_ = all_ok ? State::kSucceeded : failures_.empty() ? State::kIdle : State::kFailed;
    }
  }
  on_change_();
}

void WorkerGroup::record_failure(Worker& worker, const ExitStatus& status) {
  elastic::Failure failure;
  failure.host = world_.machine.hostname;
  failure.rank = worker.rank;
  failure.local_rank = worker.local_rank;
  failure.pid = worker.process->pid();
  failure.generation = generation_;
  failure.exit_code = status.code;
  failure.signal = status.signal;
  failure.at = world_.clock.now();
  if (worker.output_lost()) failure.message = worker.tee->failure();
  const std::string path = worker.folder.empty() ? "" : worker.folder + "/error.json";
  if (const auto bytes = path.empty() ? std::nullopt : read_error_file(world_.files, path)) {
    ErrorReport report = read_error_report(*bytes);
    failure.message = std::move(report.message);
    failure.traceback = std::move(report.traceback);
    failure.error_file = path;
    // The exception came before the exit: a worker may take its time to end.
    if (const auto written = world_.files.modified(path)) {
      failure.at -= std::clamp<Duration>(world_.clock.wall() - *written, 0s, 600s);
    }
  }
  worker.failure = failure;
  failures_.push_back(std::move(failure));
}

void WorkerGroup::grace_is_over() {
  for (const auto& worker : workers_) {
    if (!worker->process->status()) forced_.push_back(worker->rank);
  }
  stop(SIGKILL, 0s);
}

void WorkerGroup::stop(int signal, Duration grace) {
  const Instant deadline = world_.clock.now() + grace;
  const bool sooner = signal == SIGKILL || !kill_at_ || deadline < *kill_at_;
  if (!alive() || (stopping_ && !sooner)) return;
  // An agent that stood still may be told to stop before it hears that they have ended.
  for (const auto& worker : workers_) {
    if (stopping_) break;
    worker->process->signal_group(0);
    worker->by_itself = worker->process->status().has_value();
  }
  if (!stopping_ || signal == SIGKILL) {
    for (const auto& worker : workers_) {
      if (worker->process->status()) continue;
      // It must not hang in a write that nobody takes.
      if (worker->tee) worker->tee->hurry();
      worker->asked = true;
      worker->process->signal_group(signal);
    }
  }
  stopping_ = true;
  kill_at_ = deadline;
  if (signal != SIGKILL) killer_.set(deadline);
}

void WorkerGroup::end_by(Instant time) {
  const Instant now = world_.clock.now();
  was_late_ = was_late_ || (end_by_ && now >= *end_by_);
  end_by_ = time;
  for (const auto& worker : workers_) {
    if (worker->process->status()) continue;
    worker->process->end_by(time);
    if (time <= now) worker->process->signal_group(SIGKILL);
  }
}

void WorkerGroup::prolong(Duration grace) {
  const Instant deadline = world_.clock.now() + grace;
  if (!alive() || !stopping_ || deadline <= *kill_at_) return;
  kill_at_ = deadline;
  killer_.set(deadline);
}

void WorkerGroup::clear() {
  scope_.cancel();
  killer_.disarm();
  workers_.clear();
  failures_.clear();
  forced_.clear();
  live_ = 0;
  stopping_ = false;
  retired_ = false;
  unasked_ = true;
  kill_at_.reset();
  end_by_.reset();
  was_late_ = ended_by_lease_ = false;
  state_ = State::kIdle;
}

}  // namespace rubato::agent
