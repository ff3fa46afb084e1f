#include "sim/processes.h"

#include <algorithm>
#include <charconv>
#include <csignal>

namespace rubato::sim {

// From the signal to the parent's knowledge of the death; measured as well under this on a real machine.
constexpr Duration kKillDelay = 1ms;
// A worker that prints as fast as it can: a pipe's worth each time, and a few of them that nobody has read.
constexpr size_t kPrintBytes = size_t{64} << 10;
constexpr size_t kChunksMax = 16;
constexpr Duration kPrintDelay = 1ms;
constexpr Duration kPrintAgain = 10ms;

SimWorker::SimWorker(WorkerRegistry& registry, const ProcessHost& host, const SpawnSpec& spec, bool warm)
    : registry_(registry),
      host_(host),
      record_(registry.begin(host.node, spec)),
      out_(spec.out),
      pid_(record_.pid),
      warm_(warm),
      ended_(host.loop),
      output_(host.loop),
      starting_(*this, &SimWorker::started),
      working_(*this, &SimWorker::work_done),
      dying_(*this, &SimWorker::die),
      failing_(*this, &SimWorker::fail),
      silence_(*this, &SimWorker::fail),
      printing_(*this, &SimWorker::print_lines),
      lease_(*this, &SimWorker::lease_over),
      crash_output_(*this, &SimWorker::print_crash) {
  record_.warm = warm;
  registry_.attach(record_.id, *this);
  try {
    if (registry_.behaviour) model_ = registry_.behaviour(spec, record_, registry_.random());
  } catch (const Error&) {
    registry_.withdraw(record_.id);
    throw;
  }
  LocalLoop& kernel = *host_.node.kernel;
  kernel.arm(starting_, kernel.now() + (warm ? model_.warm_start_delay : model_.start_delay));
}

SimWorker::~SimWorker() { end(ExitStatus{0, SIGKILL}); }

void SimWorker::started() {
  if (!bind_master_port()) {
    fail();
    return;
  }
  if (!model_.talks || record_.rank < 0 || record_.world_size <= 1) {
    train();
    return;
  }
  LocalLoop& kernel = *host_.node.kernel;
  kernel.arm(failing_, kernel.now() + model_.join_max);
  group_ = registry_.group_for(record_);
  group_->join(*this);
}

// Rank 0 serves the store of its world, unless the agent does.
bool SimWorker::bind_master_port() {
  const auto agent_store = record_.env.find("TORCHELASTIC_USE_AGENT_STORE");
  const auto port_text = record_.env.find("MASTER_PORT");
  if (!model_.talks || record_.rank != 0 || port_text == record_.env.end()) return true;
  if (agent_store != record_.env.end() && agent_store->second == "True") return true;
  uint16_t port = 0;
  std::from_chars(port_text->second.data(), port_text->second.data() + port_text->second.size(), port);
  if (port == 0 || !host_.node.ports.emplace(port, nullptr).second) {
    registry_.network().simulator().mark("worker.address_in_use");
    return false;
  }
  bound_port_ = port;
  return true;
}

void SimWorker::train() {
  training_ = true;
  failing_.disarm();
  record_.trained_from = registry_.network().simulator().now();
  if (!model_.output.empty()) print(model_.output);
  if (model_.lines > 0) print_lines();
  begin_work();
}

// One write, then the next one a moment later, unless the reader is behind.
void SimWorker::print_lines() {
  LocalLoop& kernel = *host_.node.kernel;
  if (output_.size() >= kChunksMax) {
    registry_.network().simulator().mark("worker.waits_for_reader");
    kernel.arm(printing_, kernel.now() + kPrintAgain);
    return;
  }
  std::string text;
  for (; printed_ < model_.lines && text.size() < kPrintBytes; ++printed_) {
    std::string line = std::to_string(printed_) + " ";
    line.resize(std::max(line.size(), model_.line_bytes), 'x');
    text += line + "\n";
  }
  if (!text.empty()) print(text);
  if (printed_ < model_.lines) kernel.arm(printing_, kernel.now() + kPrintDelay);
}

void SimWorker::begin_work() {
  working_since_ = registry_.network().simulator().now();
  std::optional<Duration> until = model_.runs;
  if (model_.crash_after && (!until || *model_.crash_after < *until)) until = model_.crash_after;
  LocalLoop& kernel = *host_.node.kernel;
  if (until) kernel.arm(working_, kernel.now() + std::max(Duration::zero(), *until - worked_));
}

void SimWorker::pause_work() {
  if (training_ && !stalled_) worked_ += registry_.network().simulator().now() - working_since_;
  working_.disarm();
}

void SimWorker::print(const std::string& text, bool is_stderr) {
  switch (out_.kind) {
    case OutputTarget::Kind::kInherit:
      host_.console.out(text);
      break;
    case OutputTarget::Kind::kNull:
      break;
    case OutputTarget::Kind::kFile:
      try {
        host_.disk.append(out_.path, text);
      } catch (const Error&) {
        registry_.network().simulator().mark("worker.output_lost");  // the disk is full; training goes on
      }
      break;
    case OutputTarget::Kind::kPipe: {
      if (!out_.path.empty()) {
        try {
          host_.disk.append(out_.path, text);
          kept_ += text.size();
        } catch (const Error&) {
          registry_.network().simulator().mark("worker.output_not_kept");
        }
      }
      OutputChunk chunk{is_stderr, text, kept_};
      output_.push(std::move(chunk));
      break;
    }
  }
}

void SimWorker::work_done() {
  if (printed_ < model_.lines) {
    LocalLoop& kernel = *host_.node.kernel;
    kernel.arm(working_, kernel.now() + kPrintAgain);
    return;
  }
  const bool crashes = model_.crash_after && (!model_.runs || *model_.crash_after < *model_.runs);
  if (crashes) registry_.network().simulator().mark("worker.crash");
  crashed_ = crashes;
  end(crashes ? model_.crash_status : ExitStatus{model_.exit_code, 0});
}

void SimWorker::lose_peer() {
  if (std::exchange(lost_peer_, true)) return;
  registry_.network().simulator().mark("worker.peer_lost");
  const uint64_t span = static_cast<uint64_t>(std::max<int64_t>(1, model_.peer_loss_delay_max.count()));
  LocalLoop& kernel = *host_.node.kernel;
  kernel.arm(failing_, kernel.now() + Duration(static_cast<int64_t>(registry_.random().below(span))));
}

void SimWorker::stall() {
  if (stalled_) return;
  pause_work();
  stalled_ = true;
  registry_.network().simulator().mark("worker.stalled");
  const uint64_t span = static_cast<uint64_t>(std::max<int64_t>(1, model_.peer_silence_max.count() / 4));
  const Duration late(static_cast<int64_t>(registry_.random().below(span)));
  LocalLoop& kernel = *host_.node.kernel;
  kernel.arm(silence_, kernel.now() + model_.peer_silence_max + late);
}

void SimWorker::resume() {
  if (!stalled_) return;
  stalled_ = false;
  silence_.disarm();
  begin_work();
}

void SimWorker::signal_group(int signal) {
  if (status_ || !host_.life.running) return;
  LocalLoop& kernel = *host_.node.kernel;
  record_.told_to_end = record_.told_to_end || signal != 0;
  const Instant killed_at = kernel.now() + kKillDelay;
  switch (signal) {
    case SIGKILL:
      dying_status_ = ExitStatus{0, SIGKILL};
      kernel.arm(dying_, killed_at);
      break;
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
      if (!model_.sigterm_delay) {
        registry_.network().simulator().mark("worker.ignores_sigterm");
      } else if (!dying_.armed()) {
        dying_status_ = model_.sigterm_status;
        if (signal != SIGTERM && dying_status_.signal == SIGTERM) dying_status_.signal = signal;
        kernel.arm(dying_, killed_at + *model_.sigterm_delay);
      }
      break;
    default:
      break;
  }
}

// The guard's part: it runs whether or not the program does.
void SimWorker::end_by(Instant time) {
  if (status_ || !host_.life.running) return;
  host_.node.kernel->arm(lease_, time);
}

void SimWorker::lease_over() {
  registry_.network().simulator().mark("worker.lease_over");
  record_.told_to_end = true;
  end(ExitStatus{0, SIGKILL});
}

Task<void> SimWorker::write(std::string) {
  if (status_) throw Error(ErrorCode::kUnavailable, "the process has ended");
  co_return;
}

Task<ExitStatus> SimWorker::wait() {
  while (!status_) co_await ended_.wait();
  co_return *status_;
}

void SimWorker::end(ExitStatus status) {
  if (status_) return;
  pause_work();
  status_ = status;
  for (Timed* timer : {&starting_, &working_, &dying_, &failing_, &silence_, &printing_, &lease_}) timer->disarm();
  if (bound_port_ != 0) host_.node.ports.erase(bound_port_);
  if (group_) {
    using Leave = WorkerGroup::Leave;
    group_->leave(*this, status.ok() ? Leave::kDone : host_.node.up ? Leave::kDied : Leave::kVanished);
  }
  record_.trained = worked_;
  registry_.finish(record_.id, status);
  ended_.notify();
  if (!crashed_ || model_.crash_output.empty()) return output_.close();
  const auto later_ns = registry_.random().below(static_cast<uint64_t>(model_.crash_output_delay_max.count()) + 1);
  LocalLoop& kernel = *host_.node.kernel;
  kernel.arm(crash_output_, kernel.now() + Duration(static_cast<int64_t>(later_ns)));
}

void SimWorker::print_crash() {
  print(model_.crash_output, true);
  output_.close();
}

std::unique_ptr<Process> ProgramProcesses::spawn(const SpawnSpec& spec) {
  if (spec.argv.empty()) throw Error(ErrorCode::kUsage, "no program to run");
  return std::make_unique<SimWorker>(registry_, host_, spec, warm_ && spec.warm.has_value());
}

void ProgramProcesses::prewarm(const PrewarmSpec&, std::function<void(std::string)> on_state) {
  on_state_ = std::move(on_state);
  host_.loop.arm(warming_, host_.loop.now() + registry_.prewarm_delay);
}

void ProgramProcesses::warmed() {
  warm_ = registry_.prewarm_fails.empty();
  if (!host_.life.running) return;
  if (warm_) {
    if (on_state_) on_state_("");
    return;
  }
  registry_.network().simulator().mark("worker.prewarm_fails");
  if (on_state_) on_state_(registry_.prewarm_fails);
}

}  // namespace rubato::sim
