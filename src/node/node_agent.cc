#include "node/node_agent.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "node/job_launch.h"
#include "world/trees.h"

namespace rubato::node {

namespace {

// After the workers have ended, the head gets this long to take their last lines.
constexpr Duration kLinger = 5s;
// The same for what they have written.
constexpr Duration kOutputLinger = 20s;

// The names of the node's GPUs: those that its environment shows, else the first ones of the machine.
std::vector<std::string> device_names(const NodeSettings& settings) {
  const auto count = static_cast<size_t>(settings.resources.of(kGpu) / 1000);
  std::vector<std::string> names;
  const auto visible = settings.environment.find("CUDA_VISIBLE_DEVICES");
  if (visible != settings.environment.end() && !visible->second.empty()) {
    for (const std::string_view name : split(visible->second, ',')) names.emplace_back(name);
  }
  for (size_t i = names.size(); i < count; ++i) names.push_back(std::to_string(i));
  names.resize(count);
  return names;
}

}  // namespace

NodeAgent::NodeAgent(World& world, NodeSettings settings, Channel<int>* signals)
    : world_(world),
      settings_(std::move(settings)),
      signals_(signals),
      self_{world.random.hex(32)},
      started_(world.clock.wall()),
      events_(world, "", settings_.node.value),
      packages_(world, settings_.folder + "/packages", settings_.unpack, settings_.offload),
      devices_(device_names(settings_)),
      outputs_(
          world, settings_, [this] { stir(); }, [this](const std::string& words) { say(words); }),
      leases_(
          world, settings_, self_, [this] { renew_leases(); }, [this] { stir(); }),
      room_(world.clock.loop()),
      parts_{world,
             settings_,
             packages_,
             devices_,
             events_,
             [this] { stir(); },
             [this](const elastic::Errand& errand, const std::string& python, const std::string& work) {
               prewarm(errand, python, work);
             },
             [this](const JobId& job) { return warm_for_ == job; },
             [this](const std::string& folder) { discard(folder); },
             [this] { return connection_ != nullptr; },
             [this](const elastic::LeaseTerms& terms) { return leases_.valid_until(terms); },
             room_,
             self_},
      changed_(world.clock.loop()),
      scope_(world.clock.loop()) {
  if (settings_.supervisor) {
    supervisor_.emplace(world, settings_.supervisor->port(), [this](elastic::JobHints hints) {
      // Without a head they are dropped: the next ones will do.
      if (connection_) connection_->send(encode(elastic::ToHead(std::move(hints))));
    });
    parts_.supervisor = &*supervisor_;
  }
  // Of an agent before this one; its workers died with it.
  const std::string trash = settings_.folder + "/trash";
  if (world_.files.exists(trash)) {
    for (const Files::Entry& entry : world_.files.list(trash)) scope_.spawn(empty(trash + "/" + entry.name));
  }
  discard(settings_.folder + "/jobs");
  adopt_spools();
}

// A folder of many files takes seconds to remove, in which the head would hear nothing of us.
void NodeAgent::discard(const std::string& folder) {
  if (!world_.files.exists(folder)) return;
  const std::string place = settings_.folder + "/trash/" + world_.random.hex(16);
  try {
    world_.files.make_folders(settings_.folder + "/trash");
    world_.files.move(folder, place);
  } catch (const Error&) {
    world_.files.remove_tree(folder);  // a full disk has no room for another name
    return;
  }
  scope_.spawn(empty(place));
}

Task<void> NodeAgent::empty(std::string folder) {
  try {
    co_await remove_in_turns(world_, std::move(folder));
  } catch (const Error& error) {
    say("old files stay: " + error.message);
  }
}

void NodeAgent::adopt_spools() {
  const std::string folder = settings_.folder + "/spool";
  world_.files.make_folders(folder);
  for (const Files::Entry& entry : world_.files.list(folder)) {
    if (entry.kind == Files::Entry::Kind::kFolder) runner(JobId{entry.name});
  }
}

Task<void> NodeAgent::supervise() {
  HttpHandler handler = [this](ServerRequest request) { return supervisor_->handle(std::move(request)); };
  HttpAdmit admit = [this](const ServerRequest& head) { return supervisor_->admit(head); };
  try {
    co_await settings_.supervisor->serve(std::move(handler), std::move(admit));
  } catch (const Error& error) {
    say("AdaptDL's supervisor cannot be asked any more: " + error.message);
  }
}

ErrandRunner& NodeAgent::runner(const JobId& job) {
  std::unique_ptr<ErrandRunner>& slot = runners_[job];
  if (!slot) slot = std::make_unique<ErrandRunner>(parts_, job);
  return *slot;
}

void NodeAgent::stir() {
  stirred_ = true;
  changed_.notify();
}

void NodeAgent::say(const std::string& words) {
  world_.console.err(fmt::format("{} agent {}: {}\n", format_time(world_.clock.wall()), settings_.node.value, words));
}

Task<int> NodeAgent::run() {
  if (signals_) scope_.spawn(read_signals());
  scope_.spawn(keep_connected());
  if (settings_.own_disk) scope_.spawn(outputs_.run());
  if (supervisor_) scope_.spawn(supervise());
  scope_.spawn(leases_.run());
  while (true) {
    stirred_ = false;
    for (const auto& [job, errand] : runners_) errand->follow();
    std::set<elastic::RoundId> live;
    for (const auto& [job, errand] : runners_) {
      if (const elastic::RoundId* round = errand->live_round()) live.insert(*round);
    }
    leases_.set_live(std::move(live));
    std::erase_if(runners_, [this](const auto& entry) {
      if (!entry.second->forgotten()) return false;
      parts_.first_sequence = std::max(parts_.first_sequence, entry.second->log().next_sequence());
      return true;
    });
    if (over()) break;
    changed_.notify();
    while (!stirred_) {
      if (linger_until_ != Instant{}) {
        co_await changed_.wait_until(linger_until_);
        if (world_.clock.now() >= linger_until_) break;
      } else {
        co_await changed_.wait();
      }
    }
  }
  scope_.cancel();
  co_return refused_ ? 1 : 0;
}

// Nothing runs, and the head has all that it can get.
bool NodeAgent::over() {
  if (ending_.empty()) return false;
  bool sent = true;
  // A head that says goodbye has what is left fetched from the disk (provider::NodeProvider::salvage). Who is told by
  // a signal may be on a machine that is about to go.
  if (settings_.own_disk && !told_to_end_) sent = outputs_.all_delivered();
  for (const auto& [job, errand] : runners_) {
    if (!errand->idle()) return false;
    sent = sent && errand->log().all_kept();
  }
  if (sent || refused_) return true;
  if (linger_until_ == Instant{}) {
    linger_until_ = world_.clock.now() + kLinger;
    if (settings_.own_disk && !told_to_end_) {
      linger_until_ = world_.clock.now() + kOutputLinger;
      std::vector<JobId> here = outputs_here(world_.files, settings_.folder);
      outputs_.follow(std::set<JobId>(here.begin(), here.end()));
    }
  }
  return world_.clock.now() >= linger_until_ || (told_to_end_ && !connection_);
}

Task<void> NodeAgent::read_signals() {
  while (true) {
    const std::optional<int> number = co_await signals_->pop();
    if (!number) co_return;
    if (!ending_.empty()) {
      // The second time, somebody means it.
      for (const auto& [job, errand] : runners_) errand->kill();
      stir();
      continue;
    }
    const std::string reason = fmt::format("the agent got {}", signal_name(*number));
    say(reason + ": stopping its workers");
    if (connection_) {
      const elastic::ToHead leaving = elastic::Leaving{reason, time_to_end()};
      connection_->send(encode(leaving, world_.clock.now()));
    }
    end(reason, false);
  }
}

// The longest that a worker here may take once it is asked to end.
Duration NodeAgent::time_to_end() const {
  Duration longest = 0s;
  for (const auto& [job, errand] : runners_) {
    if (!errand->idle()) longest = std::max(longest, errand->grace());
  }
  return longest;
}

void NodeAgent::end(const std::string& reason, bool told_by_head) {
  told_to_end_ = told_to_end_ || told_by_head;
  if (ending_.empty()) {
    ending_ = reason;
    for (const auto& [job, errand] : runners_) errand->leave(reason);
  }
  stir();
}

void NodeAgent::renew_leases() {
  for (const auto& [job, errand] : runners_) errand->renew();
}

void NodeAgent::prewarm(const elastic::Errand& errand, const std::string& python, const std::string& work) {
  PythonMain main;
  switch (errand.spec.kind) {
    case ProgramKind::kScript:
      main.kind = PythonMain::Kind::kScript;
      break;
    case ProgramKind::kModule:
      main.kind = PythonMain::Kind::kModule;
      break;
    case ProgramKind::kRunPath:
      main.kind = PythonMain::Kind::kRunPath;
      break;
    case ProgramKind::kBinary:
      return;
  }
  // The interpreter starts in our folder, not in the job's.
  const bool is_path = errand.spec.kind != ProgramKind::kModule && !errand.spec.program.starts_with('/');
  main.target = is_path ? work + "/" + errand.spec.program : errand.spec.program;
  PrewarmSpec warm;
  warm.interpreter = {python, "-u"};
  warm.modules = errand.spec.prewarm;
  warm.main = std::move(main);
  const agent::Environment environment =
      job_environment(settings_.environment, errand, settings_.node, std::nullopt, settings_.old_torch);
  for (const auto& [name, value] : environment) warm.env.push_back(name + "=" + value);
  warm_for_ = errand.job;
  world_.processes.prewarm(warm, [this, alive = std::weak_ptr<int>(alive_), job = errand.job](std::string reason) {
    if (alive.expired()) return;
    say(fmt::format("prewarm for {}: {}", job.value, reason.empty() ? "ready" : "workers start cold: " + reason));
  });
}

}  // namespace rubato::node
