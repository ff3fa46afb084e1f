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

NodeAgent::NodeAgent(World& world, NodeSettings settings, Channel<int>* signals, Channel<MachineNotice>* notices)
    : world_(world),
      settings_(std::move(settings)),
      signals_(signals),
      notices_(notices),
      self_{world.random.hex(32)},
      started_(world.clock.wall()),
      events_(world, "", settings_.node.value),
      packages_(world, settings_.folder + "/packages", settings_.unpack, settings_.offload),
      checkpoints_(
          world, settings_, [this] { wake(); }, [this](const std::string& text) { say(text); },
          [this](const std::string& folder) { discard(folder); }),
      devices_(device_names(settings_)),
      outputs_(
          world, settings_, [this] { wake(); }, [this](const std::string& sentence) { say(sentence); }),
      leases_(
          world, settings_, self_, [this] { renew_leases(); }, [this] { wake(); }),
      room_(world.clock.loop()),
      parts_{world,
             settings_,
             packages_,
             checkpoints_,
             devices_,
             events_,
             [this] { wake(); },
             [this](const elastic::JobOrder& job_order, const std::string& python, const std::string& work) {
               prewarm(job_order, python, work);
             },
             [this](const JobId& job) { return warm_for_ == job; },
             [this](const std::string& folder) { discard(folder); },
             [this] { return connection_ != nullptr; },
             [this](const elastic::LeaseTerms& terms) { return leases_.valid_until(terms); },
             room_,
             self_},
      deadline_set_(world.clock.loop()),
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
  checkpoints_.start();
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

JobOrderRunner& NodeAgent::runner(const JobId& job) {
  if (const auto found = runners_.find(job); found != runners_.end()) return *found->second;
  auto made = std::make_unique<JobOrderRunner>(parts_, job);  // it may throw, and leaves nothing then
  made->set_drain_end(deadline_);
  return *(runners_[job] = std::move(made));
}

void NodeAgent::wake() {
  woken_ = true;
  changed_.notify();
}

void NodeAgent::say(const std::string& sentence) {
  world_.console.err(
      fmt::format("{} agent {}: {}\n", format_time(world_.clock.wall()), settings_.node.value, sentence));
}

Task<int> NodeAgent::run() {
  if (signals_) scope_.spawn(read_signals());
  if (notices_) scope_.spawn(read_notices());
  scope_.spawn(stop_in_time());
  scope_.spawn(keep_connected());
  if (settings_.own_disk) scope_.spawn(outputs_.run());
  if (supervisor_) scope_.spawn(supervise());
  scope_.spawn(leases_.run());
  while (true) {
    woken_ = false;
    for (const auto& [job, job_order] : runners_) job_order->follow();
    std::set<elastic::RoundId> live;
    for (const auto& [job, job_order] : runners_) {
      if (const elastic::RoundId* round = job_order->live_round()) live.insert(*round);
    }
    leases_.set_live(std::move(live));
    std::erase_if(runners_, [this](const auto& entry) {
      if (!entry.second->forgotten()) return false;
      parts_.first_sequence = std::max(parts_.first_sequence, entry.second->log().next_sequence());
      return true;
    });
    if (over()) break;
    changed_.notify();
    while (!woken_) {
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
  for (const auto& [job, job_order] : runners_) {
    if (!job_order->idle()) return false;
    sent = sent && job_order->log().all_kept() && checkpoints_.all_kept(job);
  }
  if (sent || refused_) return true;
  if (linger_until_ == Instant{}) {
    linger_until_ = world_.clock.now() + kLinger;
    const auto is_saved = [this](const auto& entry) { return checkpoints_.all_kept(entry.first); };
    if (!std::ranges::all_of(runners_, is_saved)) linger_until_ = world_.clock.now() + kOutputLinger;
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
      for (const auto& [job, job_order] : runners_) job_order->kill();
      wake();
      continue;
    }
    const std::string reason = fmt::format("the agent got {}", signal_name(*number));
    say(reason + ": stopping its workers");
    end(reason, false);
    send_leaving();
  }
}

// The longest that a worker here may take once it is asked to end.
Duration NodeAgent::time_to_end() const {
  Duration longest = 0s;
  for (const auto& [job, job_order] : runners_) {
    if (!job_order->idle()) longest = std::max(longest, job_order->grace());
  }
  return longest;
}

void NodeAgent::end(const std::string& reason, bool told_by_head) {
  told_to_end_ = told_to_end_ || told_by_head;
  if (ending_.empty()) {
    ending_ = reason;
    for (const auto& [job, job_order] : runners_) job_order->leave(reason, !told_by_head);
  }
  wake();
}

void NodeAgent::renew_leases() {
  for (const auto& [job, job_order] : runners_) job_order->renew();
}

void NodeAgent::prewarm(const elastic::JobOrder& job_order, const std::string& python, const std::string& work) {
  PythonMain main;
  switch (job_order.spec.kind) {
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
  const bool is_path = job_order.spec.kind != ProgramKind::kModule && !job_order.spec.program.starts_with('/');
  main.target = is_path ? work + "/" + job_order.spec.program : job_order.spec.program;
  PrewarmSpec warm;
  warm.interpreter = {python, "-u"};
  warm.modules = job_order.spec.prewarm;
  warm.main = std::move(main);
  const agent::Environment environment =
      job_environment(settings_.environment, job_order, settings_.node, std::nullopt, settings_.old_torch);
  for (const auto& [name, value] : environment) warm.env.push_back(name + "=" + value);
  warm_for_ = job_order.job;
  world_.processes.prewarm(warm, [this, alive = std::weak_ptr<int>(alive_), job = job_order.job](std::string reason) {
    if (alive.expired()) return;
    say(fmt::format("prewarm for {}: {}", job.value, reason.empty() ? "ready" : "workers start cold: " + reason));
  });
}

}  // namespace rubato::node
