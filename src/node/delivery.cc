#include "node/delivery.h"

#include <fmt/format.h>

#include <algorithm>

#include "node/delivery_link.h"
#include "node/last_lines.h"

namespace rubato::node {

namespace {

constexpr Duration kLinesAckMax = 60s;
constexpr Duration kPauseFirst = 500ms;
constexpr Duration kPauseMax = 30s;
// What the head has no room for is sent all over again.
constexpr Duration kRefusedPauseMax = 300s;
constexpr int kFruitlessMax = 5;

Cargo output_cargo(World& world, const NodeSettings& settings, JobId job) {
  Cargo cargo;
  cargo.open = [&files = world.files, folder = output_folder(settings.folder, job)] {
    files.make_folders(folder);
    return folder_source(files, folder, {});
  };
  cargo.job = std::move(job);
  return cargo;
}

Task<uint64_t> send_lines(DeliveryLink& link, elastic::LogLines lines) {
  link.send(elastic::ToHead(std::move(lines)));
  const std::optional<elastic::ToAgent> answer = co_await link.receive(kLinesAckMax);
  const auto* ack = answer ? std::get_if<elastic::LogAck>(&*answer) : nullptr;
  if (!ack) throw Error(ErrorCode::kUnavailable, "the head does not take the lines: " + link.problem);
  ++link.progress;
  co_return ack->sequence;
}

// One try; false: not all of it. Counts in `progress` what got through.
Task<bool> deliver_once(World& world, const NodeSettings& settings, uint64_t& progress) {
  DeliveryLink link(world, settings);
  const bool opened = co_await link.open();
  if (!opened) co_return false;
  bool all = true;
  bool refused = false;
  try {
    KeepLines keep = [&link](elastic::LogLines lines) { return send_lines(link, std::move(lines)); };
    co_await send_last_lines(world, settings.folder, std::move(keep));
    for (const JobId& job : outputs_here(world.files, settings.folder)) {
      Cargo cargo = output_cargo(world, settings, job);
      const Delivered outcome = co_await link.deliver(std::move(cargo));
      if (outcome == Delivered::kBroken) throw Error(ErrorCode::kUnavailable, link.problem);
      refused = outcome == Delivered::kRefused;
      all = !refused;
      if (refused) break;  // answers to parts that were under way are still to come
    }
    if (all) {
      link.send(elastic::ToHead(elastic::DeliveryEnd{}));
      (void)co_await link.receive(kLinesAckMax);
    }
  } catch (const Error& error) {
    world.console.err(fmt::format("not delivered: {}\n", error.message));
    all = false;
  }
  // What is refused over and over is no progress.
  progress = refused ? 0 : link.progress;
  co_return all;
}

bool has_spools(Files& files, const std::string& node_folder) {
  const std::string spool = node_folder + "/spool";
  return files.exists(spool) && !files.list(spool).empty();
}

}  // namespace

std::string output_folder(const std::string& node_folder, const JobId& job) {
  return node_folder + "/outputs/" + job.value;
}

std::vector<JobId> outputs_here(Files& files, const std::string& node_folder) {
  std::vector<JobId> jobs;
  const std::string folder = node_folder + "/outputs";
  if (!files.exists(folder)) return jobs;
  for (const Files::Entry& entry : files.list(folder)) {
    if (entry.kind == Files::Entry::Kind::kFolder) jobs.push_back(JobId{entry.name});
  }
  return jobs;
}

OutputSender::OutputSender(World& world, const NodeSettings& settings, std::function<void()> wake,
                           std::function<void(const std::string&)> say)
    : world_(world), settings_(settings), wake_(std::move(wake)), say_(std::move(say)), changed_(world.clock.loop()) {}

void OutputSender::follow(std::set<JobId> wanted) {
  std::erase_if(delivered_, [&](const JobId& job) { return !wanted.contains(job); });
  // A head that says it again may have been away when it was tried last.
  if (wanted == wanted_ && (refused_ || all_delivered())) return;
  wanted_ = std::move(wanted);
  changed_.notify();
}

bool OutputSender::all_delivered() const { return std::ranges::includes(delivered_, wanted_); }

Task<void> OutputSender::run() {
  Duration pause = kPauseFirst;
  while (true) {
    while (all_delivered()) {
      pause = kPauseFirst;
      co_await changed_.wait();
    }
    const bool good = co_await deliver_round();
    if (good) continue;
    // A word from the head may change it; else it is tried again.
    co_await changed_.wait_until(world_.clock.now() + pause);
    pause = std::min<Duration>(2 * pause, refused_ ? kRefusedPauseMax : kPauseMax);
  }
}

Task<bool> OutputSender::deliver_round() {
  refused_ = false;
  DeliveryLink link(world_, settings_);
  const bool opened = co_await link.open();
  while (opened) {
    const auto next = std::ranges::find_if(wanted_, [this](const JobId& job) { return !delivered_.contains(job); });
    if (next == wanted_.end()) co_return true;
    const JobId job = *next;
    Cargo cargo = output_cargo(world_, settings_, job);
    const Delivered outcome = co_await link.deliver(std::move(cargo));
    if (outcome != Delivered::kKept) {
      refused_ = outcome == Delivered::kRefused;
      link.problem = fmt::format("the output of {}: {}", job.value, link.problem);
      break;
    }
    say_(fmt::format("delivered the output of {}", job.value));
    last_output_.clear();
    if (wanted_.contains(job)) delivered_.insert(job);
    wake_();
  }
  if (link.problem != last_output_) say_("not delivered: " + link.problem);
  last_output_ = link.problem;
  co_return false;
}

Task<bool> deliver_all(World& world, NodeSettings settings) {
  if (!has_spools(world.files, settings.folder) && outputs_here(world.files, settings.folder).empty()) co_return true;
  Duration pause = kPauseFirst;
  for (int fruitless = 0; fruitless < kFruitlessMax;) {
    uint64_t progress = 0;
    const bool all = co_await deliver_once(world, settings, progress);
    if (all) co_return true;
    fruitless = progress > 0 ? 0 : fruitless + 1;
    if (progress > 0) pause = kPauseFirst;
    co_await Sleep(world.clock.loop(), world.clock.now() + pause);
    pause = std::min(2 * pause, kPauseMax);
  }
  co_return false;
}

}  // namespace rubato::node
