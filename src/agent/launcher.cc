#include "agent/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "agent/direct_outlets.h"
#include "agent/error_file.h"
#include "agent/flush.h"
#include "agent/notice_file.h"

namespace rubato::agent {

using namespace elastic;

namespace {

// After the end, agents that still stop their workers are waited for; then the host goes.
constexpr Duration kGoodbyeMax = 60s;
// A host that leaves does not wait longer for the others to have heard it.
constexpr Duration kHandOverMax = 1s;

constexpr Duration kNoticePoll = 1s;

// What a stalled console has not taken is given this long at the end: a person may be reading. After a signal nobody
// waits for a reader.
constexpr Duration kFlushPatience = 5s;
constexpr Duration kFlushPatienceSignalled = 500ms;

// torchrun's, in its own words.
constexpr const char* kPrefix = "[${role_name}${local_rank}]:";

std::string variable(const LaunchContext& context, const std::string& name) {
  const auto it = context.environment.find(name);
  return it == context.environment.end() ? "" : it->second;
}

Terms make_terms(const LaunchSpec& spec) {
  Terms terms;
  terms.min_nodes = spec.min_nodes;
  terms.max_nodes = spec.max_nodes;
  terms.step = spec.nodes_step;
  terms.max_restarts = spec.max_restarts;
  terms.last_call = spec.last_call;
  terms.join_timeout = spec.join_timeout;
  terms.heartbeat = spec.heartbeat;
  terms.spares = spec.spares;
  return terms;
}

std::string why_spare(const Legacy& legacy) {
  if (legacy.terms.step > 1 && legacy.round_size < legacy.terms.max_nodes)
    return fmt::format("the group grows by {} agents: this one waits for more", legacy.terms.step);
  return fmt::format("the group is full ({} agents): this one waits as a spare", legacy.terms.max_nodes);
}

std::unique_ptr<Finder> make_finder(LaunchContext& context, const LaunchSpec& spec, const AgentId& self,
                                    EventLog& events) {
  const FinderContext finder{context.world, spec, self, context.key, make_terms(spec), events};
  if (spec.standalone) return make_solo_finder(finder);
  if (spec.backend == Backend::kEtcd) return make_etcd_finder(finder, *context.store);
  return make_embedded_finder(finder);
}

// The static backend is an embedded one whose host is node 0. The master port belongs to the workers, so the agents
// meet one port above it.
LaunchSpec completed(LaunchSpec spec) {
  if (spec.backend == Backend::kStatic) {
    if (spec.endpoint.empty()) {
      const Endpoint agents{spec.master_addr, static_cast<uint16_t>(spec.master_port + 1)};
      spec.endpoint = to_string(agents);
    }
  }
  return spec;
}

constexpr size_t kFolderNameMax = 200;  // of the 255 bytes that a name may have

std::string make_log_folder(World& world, const LaunchSpec& spec, const std::string& temporary) {
  if (spec.log_dir == "/dev/null") return "";
  // An id may be a path, as of a configuration: it must lead nowhere from here.
  std::string name = spec.run_id.substr(0, kFolderNameMax);
  std::ranges::replace(name, '/', '_');
  return fmt::format("{}/{}_{}", temporary.empty() ? spec.log_dir : temporary, name, world.random.hex(8));
}

// torch's watchdog, as its agents make it: TORCHELASTIC_TIMER_FILE is handed on, watchdog or not.
constexpr const char* kTimerFile = "TORCHELASTIC_TIMER_FILE";
bool wants_timer(const LaunchContext& context) { return variable(context, "TORCHELASTIC_ENABLE_FILE_TIMER") == "1"; }

std::string timer_path(const LaunchContext& context) {
  const std::string named = variable(context, kTimerFile);
  if (!named.empty() || !wants_timer(context)) return named;
  return "/tmp/watchdog_timer_" + context.world.random.hex(32);
}

WorkerGroup::Setup make_setup(const LaunchContext& context, const LaunchSpec& spec, const std::string& folder,
                              const std::string& timer_file, Outlets& outlets) {
  WorkerGroup::Setup setup;
  setup.python = context.python;
  setup.environment = group_environment(context.environment, spec, context.old_torch);
  setup.log_folder = folder;
  setup.outlets = &outlets;
  setup.prefix = variable(context, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (setup.prefix.empty()) setup.prefix = kPrefix;
  if (!timer_file.empty()) setup.environment[kTimerFile] = timer_file;
  return setup;
}

}  // namespace

Task<Outcome> launch(LaunchContext context) {
  AgentId self{context.world.random.hex(32)};
  Launcher launcher(context, std::move(self));
  co_return co_await launcher.run();
}

WorkerGroup::Setup Launcher::own_setup(WorkerGroup::Setup setup) {
  setup.own_variables = [this](const WorkerPlace& place) {
    Environment own = adaptdl_variables(context_.environment, spec_, place);
    if (!place.worker_id.empty()) own.merge(in_place_->variables(place.worker_id));
    return own;
  };
  setup.survives = [this] { return survives(); };
  return setup;
}

Launcher::Launcher(LaunchContext& context, AgentId self)
    : world_(context.world),
      spec_(completed(context.spec)),
      context_(context),
      self_(std::move(self)),
      own_outlets_(context.outlets ? nullptr : make_direct_outlets(context.world)),
      outlets_(context.outlets ? *context.outlets : *own_outlets_),
      events_(context.world, spec_.events_file, self_.value.substr(0, 12), &outlets_),
      temporary_logs_(spec_.log_dir.empty() ? world_.files.make_temporary_folder("rubato_") : ""),
      log_folder_(make_log_folder(world_, spec_, temporary_logs_)),
      finder_(make_finder(context, spec_, self_, events_)),
      inbox_(world_.clock.loop()),
      timer_file_(timer_path(context)),
      workers_(world_, spec_, own_setup(make_setup(context, spec_, log_folder_, timer_file_, outlets_)), events_,
               [this] { inbox_.push(WorkersChanged{}); }),
      membership_(world_, spec_, self_, *finder_, events_,
                  [this](Membership::Update update) { inbox_.push(std::move(update)); }),
      peace_(world_.clock.loop(), [this] { inbox_.push(PeaceOver{}); }),
      scope_(world_.clock.loop()) {}

Task<Outcome> Launcher::run() {
  events_.write("agent_start", {{"pid", world_.machine.pid},
                                {"host", world_.machine.hostname},
                                {"backend", spec_.standalone ? "standalone" : to_string(spec_.backend)},
                                {"endpoint", spec_.endpoint},
                                {"run_id", spec_.run_id}});
  if (limits_threads(context_.environment, spec_)) {
    say(fmt::format("OMP_NUM_THREADS is not set: each of the {} workers gets 1 thread; set it to tune", spec_.nproc));
  }
  for (const std::string& note : spec_.notes) say(note);
  if (const std::optional<Notice> notice = read_notice()) {
    on_notice(*notice);
    co_return co_await finish();
  }
  open_in_place();
  prewarm();
  start_file_timer();
  if (!spec_.notice_file.empty()) scope_.spawn(watch_notice());
  if (context_.signals) scope_.spawn(read_signals());
  scope_.spawn(membership_.run());
  started_ = true;
  while (!over()) {
    const std::optional<Happening> happening = co_await inbox_.pop();
    if (!happening) break;
    handle(*happening);
    follow();
  }
  co_return co_await finish();
}

Task<void> Launcher::read_signals() {
  while (true) {
    const std::optional<int> number = co_await context_.signals->pop();
    if (!number) co_return;
    inbox_.push(Signal{*number});
  }
}

Task<void> Launcher::watch_notice() {
  NoticeFile file(world_, spec_.notice_file);
  while (true) {
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kNoticePoll);
    std::optional<Notice> notice = file.find();
    if (!notice) continue;
    inbox_.push(std::move(*notice));
    co_return;
  }
}

std::optional<Notice> Launcher::read_notice() {
  if (spec_.notice_file.empty()) return std::nullopt;
  return read_notice_file(world_, spec_.notice_file);
}

void Launcher::prewarm() {
  if (spec_.prewarm.empty()) return;
  if (spec_.kind == ProgramKind::kBinary) {
    say("--prewarm is for Python programs: with --no-python every start is cold");
    spec_.prewarm.clear();
    return;
  }
  PrewarmSpec warm;
  warm.interpreter = {context_.python, "-u"};
  warm.modules = spec_.prewarm;
  for (const auto& [name, value] : group_environment(context_.environment, spec_, context_.old_torch)) {
    warm.env.push_back(name + "=" + value);
  }
  PythonMain main;
  main.kind = spec_.kind == ProgramKind::kScript   ? PythonMain::Kind::kScript
              : spec_.kind == ProgramKind::kModule ? PythonMain::Kind::kModule
                                                   : PythonMain::Kind::kRunPath;
  main.target = spec_.program;
  warm.main = std::move(main);
  world_.processes.prewarm(warm, [this, alive = std::weak_ptr<int>(alive_)](std::string reason) {
    if (alive.expired()) return;
    events_.write("prewarm", {{"state", reason.empty() ? "ready" : "fallback"}, {"reason", reason}});
    if (!reason.empty()) say("--prewarm: starting workers cold: " + reason);
  });
}

void Launcher::start_file_timer() {
  if (!wants_timer(context_)) return;
  if (!context_.timers) {
    say("TORCHELASTIC_ENABLE_FILE_TIMER is not known here");
    return;
  }
  FileTimer::OnExpired on_expired = [this](const TimerTable::Expired& expired) {
    events_.write("timer_expired", {{"pid", expired.pid}, {"scope", expired.scope}, {"signal", expired.signal}});
    if (expired.signal > 0) {
      say(fmt::format("the timer '{}' of process {} has expired: it gets {}", expired.scope, expired.pid,
                      signal_name(expired.signal)));
    }
  };
  timer_ = std::make_unique<FileTimer>(world_, *context_.timers, timer_file_, std::move(on_expired));
  scope_.spawn(timer_->run());
}

void Launcher::handle(const Happening& happening) {
  if (const auto* update = std::get_if<Membership::Update>(&happening)) on_update(*update);
  if (const auto* signal = std::get_if<Signal>(&happening)) on_signal(signal->number);
  if (const auto* notice = std::get_if<Notice>(&happening)) on_notice(*notice);
  if (std::holds_alternative<PeaceOver>(happening) && !workers_.retired()) workers_.stop(signal_, grace());
}

void Launcher::on_update(const Membership::Update& update) {
  if (const auto* view = std::get_if<View>(&update)) {
    on_view(*view);
  } else if (const auto* lost = std::get_if<Membership::HostLost>(&update)) {
    if (!over()) {
      const char* how = lost->left ? "it has left" : lost->closed ? "connection closed" : "no answer";
      say(fmt::format("lost the host of the rendezvous at {} ({}); looking for its successor", to_string(lost->host),
                      how));
    }
  } else if (std::holds_alternative<Membership::Fence>(update)) {
    if (workers_.alive()) say("no host vouches for this generation any more: stopping its workers");
    workers_.kill();
  } else if (const auto* error = std::get_if<Error>(&update)) {
    failure_ = *error;
    workers_.stop(SIGTERM, grace());
  }
}

void Launcher::on_view(const View& view) {
  const bool news = !view_ || view_->phase != view.phase || view_->legacy.generation != view.legacy.generation ||
                    view_->reason != view.reason;
  // A would-be host may gather and give up many times: one line is enough.
  const bool told = view.provisional && told_provisional_;
  told_provisional_ = view.provisional && (told || !view.reason.empty());
  view_ = view;
  if (news && !told) announce(view);
  // A new host may not have heard it.
  if (signal_ != 0) membership_.say(Leave{leave_reason_});
}

// "rank 3", "ranks 2-3", and after changes in place perhaps "ranks 0, 2".
std::string Launcher::describe_ranks(const View& view) const {
  std::vector<int> ranks;
  if (in_place_ && view.plan) {
    ranks = in_place_->ranks(*view.plan);
  } else {
    for (int i = 0; i < spec_.nproc; ++i) ranks.push_back(view.assignment->first_rank + i);
  }
  if (ranks.empty()) return "no ranks";
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const bool dense = ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1;
  if (dense) return fmt::format("ranks {}-{}", ranks.front(), ranks.back());
  return fmt::format("ranks {}", fmt::join(ranks, ", "));
}

void Launcher::announce(const View& view) {
  const Legacy& legacy = view.legacy;
  switch (view.phase) {
    case Phase::kGathering:
      events_.write("gathering", {{"generation", legacy.generation}, {"reason", view.reason}});
      if (!view.reason.empty() && signal_ == 0 && (spec_.max_nodes > 1 || legacy.generation > 1)) say(view.reason);
      break;
    case Phase::kRunning:
      if (!view.assignment && view.prepare) {
        say(fmt::format("generation {}: {}; the workers of this agent join when they are ready", legacy.generation,
                        view.reason));
        break;
      }
      if (!view.assignment) {
        say(why_spare(legacy));
        break;
      }
      events_.write("running", {{"generation", legacy.generation},
                                {"members", view.assignment->group_world_size},
                                {"world_size", view.assignment->world_size},
                                {"group_rank", view.assignment->group_rank},
                                {"master_addr", view.master_addr},
                                {"master_port", view.master_port},
                                {"in_place", in_place_ && in_place_->any_planned_alive(workers_)},
                                {"restarts", legacy.restarts_used}});
      if (spec_.max_nodes > 1 || legacy.generation > 1) {
        say(fmt::format("generation {}: {}; this agent has {}", legacy.generation, view.reason, describe_ranks(view)));
      }
      break;
    case Phase::kEnded:
      break;
  }
}

void Launcher::on_signal(int number) {
  if (std::exchange(signalled_, true)) {
    // The second time, the person means it.
    workers_.kill();
    return;
  }
  events_.write("signal", {{"signal", number}});
  if (signal_ == 0) {
    // Whoever takes the machine away may write the notice and send the signal in one breath.
    if (const std::optional<Notice> notice = read_notice()) on_notice(*notice);
  }
  if (signal_ != 0) {
    say(fmt::format("got {}: already leaving; the workers have {} to end", signal_name(number),
                    format_duration(grace())));
    return;
  }
  say(fmt::format("got {}: passing it to the workers; they have {} to end", signal_name(number),
                  format_duration(spec_.grace)));
  leave(number, signal_name(number), spec_.grace);
}

void Launcher::on_notice(const Notice& notice) {
  if (std::exchange(noticed_, true)) return;
  const WallTime now = world_.clock.wall();
  const Duration time = time_to_end(notice, now, grace());
  events_.write("notice", {{"file", spec_.notice_file},
                           {"deadline", notice.deadline ? format_time(*notice.deadline) : ""},
                           {"problem", notice.problem},
                           {"grace", to_seconds(time)}});
  std::string what = "leaving";
  if (!started_) what = "not starting (if it is an old notice, remove the file)";
  if (workers_.alive()) what = fmt::format("the workers get SIGTERM and have {} to end", format_duration(time));
  say(fmt::format("notice in {}: {}; {}", spec_.notice_file, describe(notice, now), what));
  leave(SIGTERM, "its machine goes away", time);
  // They may have been told to stop already, with less time: several machines are often taken at once.
  if (notice.deadline) workers_.prolong(time);
}

void Launcher::leave(int signal, const std::string& why, Duration time) {
  leave_by_ = world_.clock.now() + time;
  if (signal_ == 0) {
    signal_ = signal;
    leave_reason_ = why;
    membership_.say(Leave{why});
  }
  if (leaves_in_peace()) {
    wait_for_peace();
  } else {
    workers_.stop(signal, time);
  }
}

// An agent that leaves has its own time, whatever the group does meanwhile.
Duration Launcher::grace() const {
  return leave_by_ ? std::max<Duration>(*leave_by_ - world_.clock.now(), 0s) : spec_.grace;
}

void Launcher::follow() {
  using State = WorkerGroup::State;
  const bool ended = workers_.state() == State::kFailed || workers_.finished();
  if (ended && !(in_place_ && in_place_->published() == workers_.generation())) report_workers();
  membership_.set_workers(workers_.generation(), workers_.state() == WorkerGroup::State::kRunning,
                          workers_.finished());
  if (!view_ || failure_) return;
  switch (view_->phase) {
    case Phase::kGathering:
      follow_gathering();
      break;
    case Phase::kRunning:
      follow_running();
      break;
    case Phase::kEnded:
      workers_.stop(SIGTERM, grace());
      break;
  }
}

void Launcher::follow_gathering() {
  if (in_place_) in_place_->read_reports();
  if (workers_.alive() && !keeps_workers()) {
    stop_unkept();
    return;
  }
  if (in_place_) follow_gathering_in_place();
  if (failure_) return;
  if (!port_ && signal_ == 0) {
    const bool fixed = spec_.master_port != 0 && (spec_.standalone || spec_.node_rank.value_or(0) == 0);
    port_ = world_.network.lease_port(fixed ? static_cast<uint16_t>(spec_.master_port) : uint16_t{0});
  }
  Ready ready{view_->legacy.generation, port_ ? port_->port() : uint16_t{0}, {}};
  if (in_place_) ready.workers = in_place_->describe(&workers_);
  membership_.say(ready);
}

void Launcher::follow_running() {
  const Generation generation = view_->legacy.generation;
  if (in_place_ && view_->plan) {
    follow_running_in_place();
    return;
  }
  // The others change in place, this agent does not: they restart with it.
  if (view_->prepare) membership_.say(Offer{generation});
  if (workers_.generation() == generation && workers_.state() != WorkerGroup::State::kIdle) {
    report_workers();
    return;
  }
  if (workers_.alive()) {
    workers_.kill();
  } else if (view_->assignment && signal_ == 0 && workers_.generation() < generation) {
    start_workers();
  }
}

void Launcher::start_workers() {
  port_.reset();
  View place = *view_;
  use_static_master(place);
  if (timer_) timer_->clear();
  try {
    workers_.start(place);
  } catch (const Error& error) {
    failure_ = error;
    membership_.say(Leave{error.message});
  }
}

void Launcher::use_static_master(View& place) const {
  if (spec_.backend != Backend::kStatic) return;
  place.master_addr = spec_.master_addr;
  if (spec_.master_port != 0) place.master_port = static_cast<uint16_t>(spec_.master_port);
}

// Repeated with every view: a new host may not have heard it.
void Launcher::report_workers() {
  if (workers_.state() == WorkerGroup::State::kFailed) {
    const Failed failed{workers_.generation(), workers_.failures()};
    membership_.say(failed);
  }
  // Not those that were told to stop: a script may save at SIGTERM, and exit with 0.
  if (workers_.finished()) membership_.say(Succeeded{workers_.generation()});
}

bool Launcher::over() const {
  if (workers_.alive()) return false;
  if (failure_ || signal_ != 0) return true;
  return view_ && view_->phase == Phase::kEnded;
}

Task<Outcome> Launcher::finish() {
  const Outcome result = outcome();
  if (signal_ != 0 && view_ && view_->phase == Phase::kGathering) {
    const Ready gone{view_->legacy.generation, 0, {}};
    membership_.say(gone);
  }
  const bool ended = view_ && view_->phase == Phase::kEnded;
  scope_.cancel();
  if (ended || (signal_ != 0 && finder_->hosting())) co_await say_goodbye(ended);
  const bool succeeded = result.exit_code == 0 && result.signal == 0;
  const bool never_ran = signal_ != 0 && workers_.generation() == 0;
  write_error_file(result);
  events_.write("end", {{"outcome", result.signal ? "signal"
                                    : succeeded   ? "succeeded"
                                                  : "failed"},
                        {"exit_code", result.signal ? 128 + result.signal : result.exit_code},
                        {"restarts", view_ ? view_->legacy.restarts_used : 0}});
  co_await flush_output(!(succeeded || never_ran));
  if (failure_ && signal_ == 0) throw *failure_;
  co_return result;
}

Task<void> Launcher::say_goodbye(bool ended) {
  const Instant deadline = world_.clock.now() + (ended ? kGoodbyeMax : kHandOverMax);
  Task<bool> goodbye = [](Finder& finder, bool ended, std::string reason) -> Task<bool> {
    if (ended) {
      co_await finder.farewell();
    } else {
      co_await finder.hand_over(std::move(reason));
    }
    co_return true;
  }(*finder_, ended, leave_reason_);
  co_await with_deadline(world_.clock.loop(), deadline, std::move(goodbye));
}

Task<void> Launcher::flush_output(bool keep_logs) {
  const Duration patience = signal_ != 0 ? kFlushPatienceSignalled : kFlushPatience;
  Channel<int>* signals = context_.signals;
  std::function<bool()> hurry = [signals] { return signals && signals->size() > 0; };
  const size_t left = co_await flush(world_, outlets_, patience, std::move(hurry));
  if (left > 0) {
    // Somebody may still read the other stream.
    say(fmt::format("{} bytes of output were not taken by their reader{}", left,
                    log_folder_.empty() ? "" : "; the log files are in " + log_folder_));
    co_await outlets_.err().drained(0, world_.clock.now() + kFlushPatienceSignalled);
  } else if (!keep_logs && !temporary_logs_.empty()) {
    world_.files.remove_tree(temporary_logs_);
  }
}

// For whoever started us, as torch's @record does for torchrun: what went wrong first.
void Launcher::write_error_file(const Outcome& result) {
  const std::string path = variable(context_, "TORCHELASTIC_ERROR_FILE");
  if (path.empty() || (result.exit_code == 0 && result.signal == 0)) return;
  const WallTime now = world_.clock.wall();
  std::string document;
  const Failure* root = view_ && signal_ == 0 && !failure_ ? root_cause(view_->failures) : nullptr;
  if (root) {
    const bool here = root->host == world_.machine.hostname && !root->error_file.empty();
    document = failure_document(*root, here ? read_error_file(world_.files, root->error_file) : std::nullopt, now);
  } else if (result.signal != 0) {
    const std::string message =
        fmt::format("SignalException: Process {} got signal: {}", world_.machine.pid, result.signal);
    document = launcher_document(message, "", now);
  } else {
    const std::string message = failure_ ? failure_->message : view_ ? view_->reason : "it did not start";
    document = launcher_document(message, failure_ ? render(*failure_) : "", now);
  }
  try {
    world_.files.write_atomically(path, document);
  } catch (const Error& error) {
    say(fmt::format("cannot write TORCHELASTIC_ERROR_FILE: {}", error.message));
  }
}

ReportContext Launcher::report_context() const {
  ReportContext context;
  context.program = spec_.program;
  if (spec_.kind == ProgramKind::kBinary) context.program.erase(0, context.program.rfind('/') + 1);
  context.logs = log_folder_;
  context.now = world_.clock.now();
  context.wall = world_.clock.wall();
  return context;
}

Outcome Launcher::outcome() {
  if (signal_ != 0) return {0, signal_};
  if (failure_ || !view_) return {1, 0};
  if (view_->succeeded) return {0, 0};
  world_.console.err(failure_report(*view_, report_context()));
  return {1, 0};
}

void Launcher::say(const std::string& text) {
  if (!spec_.quiet) world_.console.err("rubato: " + text + "\n");
}

}  // namespace rubato::agent
