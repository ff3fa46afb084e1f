// Watching the folders and sending what is finished; checkpoint_arrivals.cc has what comes from the head.
#include "node/checkpoint_keeper.h"

#include <fmt/format.h>

#include <algorithm>

#include "archive/folder_stream.h"
#include "elastic/checkpoints_json.h"
#include "node/delivery_link.h"

namespace rubato::node {

using elastic::CheckpointItem;
using elastic::kAdaptdlFolder;

namespace {

constexpr Duration kWatchEvery = 200ms;
constexpr Duration kSendPauseFirst = 500ms;
constexpr Duration kSendPauseMax = 15s;
// The head's disk may get room, or a file may be readable later.
constexpr Duration kRefusedPause = 30s;
constexpr size_t kBlobPiece = size_t{1} << 20;
constexpr const char* kLedgerEnd = ".ledger";

// One item out of the checkpoint folder.
class ItemSource final : public CargoSource {
 public:
  ItemSource(Files& files, const std::string& folder, const std::string& name)
      : tar_(files, folder, only(name)), way_(name.find('/') == std::string::npos ? 0 : 1) {}
  std::optional<std::string> next() override {
    std::optional<std::string> piece = tar_.next();
    const archive::TreeCounts& counts = tar_.counts();
    if (!piece && counts.files + counts.links + counts.folders <= way_) {
      throw Error(ErrorCode::kUsage, "it is neither a file nor a folder, or a link that leads out of the folder");
    }
    return piece;
  }
  uint64_t files() const override { return tar_.counts().files; }
  uint64_t content_bytes() const override { return tar_.counts().content_bytes; }

 private:
  static archive::TreeOptions only(const std::string& name) {
    archive::TreeOptions options;
    options.only = {name};
    return options;
  }
  archive::FolderTar tar_;
  const uint64_t way_;  // folders on the way to it, which are in the tar too
};

// A copy, packed already.
class BlobSource final : public CargoSource {
 public:
  BlobSource(Files& files, const std::string& path, CheckpointItem item)
      : reader_(files.open_read(path)), item_(std::move(item)) {}
  std::optional<std::string> next() override {
    std::string piece = reader_->read(kBlobPiece);
    return piece.empty() ? std::nullopt : std::optional<std::string>(std::move(piece));
  }
  uint64_t files() const override { return item_.files; }
  uint64_t content_bytes() const override { return item_.bytes; }

 private:
  std::unique_ptr<Reader> reader_;
  const CheckpointItem item_;
};

std::string in_place_warning(const std::string& name) {
  return fmt::format(
      "rubato: the checkpoint '{}' was written in place and is not copied: it could be torn. Write it under another "
      "name and rename it, os.replace(\"{}.tmp\", \"{}\"): docs/checkpoints.md",
      name, name, name);
}

}  // namespace

std::string checkpoint_folder(const std::string& node_folder, const JobId& job) {
  return node_folder + "/checkpoints/" + job.value;
}

CheckpointKeeper::CheckpointKeeper(World& world, const NodeSettings& settings, std::function<void()> wake,
                                   Report report, std::function<void(const std::string& folder)> discard)
    : world_(world),
      settings_(settings),
      wake_(std::move(wake)),
      report_(std::move(report)),
      discard_(std::move(discard)),
      to_send_(world.clock.loop()),
      to_save_(world.clock.loop()),
      to_watch_(world.clock.loop()),
      to_copy_(world.clock.loop()),
      scope_(world.clock.loop()) {}

CheckpointKeeper::~CheckpointKeeper() = default;

void CheckpointKeeper::start() {
  adopt_folders();
  adopt_copies();
  scope_.spawn(watch_folders());
  scope_.spawn(send_all());
  scope_.spawn(save_ledgers());
  scope_.spawn(fetch_copies());
}

CheckpointKeeper::JobPart& CheckpointKeeper::part(const JobId& job) {
  std::unique_ptr<JobPart>& slot = parts_[job];
  if (!slot) slot = std::make_unique<JobPart>();
  return *slot;
}

// Of an agent before this one. Its workers died with it: what they had finished is in the ledger.
void CheckpointKeeper::adopt_folders() {
  const std::string root = settings_.folder + "/checkpoints";
  if (!world_.files.exists(root)) return;
  for (const Files::Entry& entry : world_.files.list(root)) {
    if (entry.kind == Files::Entry::Kind::kFolder) part(JobId{entry.name});
    if (entry.kind != Files::Entry::Kind::kFile || !entry.name.ends_with(kLedgerEnd)) continue;
    const JobId job{entry.name.substr(0, entry.name.size() - std::string_view(kLedgerEnd).size())};
    try {
      part(job).tracker =
          CheckpointTracker(elastic::ledger_from_text(world_.files.read(root + "/" + entry.name).value_or("")));
    } catch (const Error& error) {
      report_(fmt::format("the ledger of {}'s checkpoints is damaged: {}", job.value, error.message));
    }
  }
}

void CheckpointKeeper::begin(const JobId& job, Generation generation, Report warn) {
  JobPart& mine = part(job);
  mine.generation = generation;
  mine.warn = std::move(warn);
  mine.is_left = false;
  mine.failed.clear();
  const std::string root = folder(job);
  const std::string inner = root + "/" + std::string(kAdaptdlFolder);
  world_.files.make_folders(inner);
  if (!mine.shelves.empty() || !settings_.watch_folder) return;
  mine.shelves.push_back({"", settings_.watch_folder(root)});
  mine.shelves.push_back({std::string(kAdaptdlFolder) + "/", settings_.watch_folder(inner)});
  if (std::ranges::any_of(mine.shelves, [](const Shelf& shelf) { return !shelf.watch; })) {
    std::erase_if(mine.shelves, [](const Shelf& shelf) { return !shelf.watch; });
    mine.warn(
        "rubato: checkpoints of this node are not copied: its kernel gives no more inotify watches; raise "
        "fs.inotify.max_user_instances");
  }
  to_watch_.notify();
}

void CheckpointKeeper::end(const JobId& job) {
  const auto found = parts_.find(job);
  if (found == parts_.end()) return;
  take_changes(job, *found->second, true);
  found->second->shelves.clear();
}

Task<void> CheckpointKeeper::watch_folders() {
  while (true) {
    bool watched = false;
    for (const auto& [job, mine] : parts_) {
      take_changes(job, *mine, false);
      watched = watched || !mine->shelves.empty();
    }
    if (watched) {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + kWatchEvery);
    } else {
      co_await to_watch_.wait();
    }
  }
}

void CheckpointKeeper::take_changes(const JobId& job, JobPart& mine, bool ended) {
  bool changed = false;
  for (const Shelf& shelf : mine.shelves) {
    for (const FolderWatch::Change& change : shelf.watch->take()) {
      changed = true;
      const std::string name = shelf.prefix + change.name;
      if (change.kind == FolderWatch::Kind::kMissed) {
        report_(fmt::format("{} changes too many files of its checkpoint folder at once: some were missed", job.value));
      } else {
        mine.tracker.apply(change.kind, name, mine.generation, world_.clock.now(), world_.clock.wall());
        mine.refused.erase(name);
        mine.unreadable.erase(name);
      }
    }
  }
  for (const std::string& name : mine.tracker.take_warnings(world_.clock.now(), ended)) {
    // A temporary file that is gone was nobody's checkpoint.
    if (mine.warn && world_.files.exists(folder(job) + "/" + name)) mine.warn(in_place_warning(name));
  }
  if (!changed) return;
  drop_forgotten(mine);
  mine.dirty = true;
  to_save_.notify();
  to_send_.notify();
}

// Of names that the tracker does not remember any more nothing is known here either.
void CheckpointKeeper::drop_forgotten(JobPart& mine) {
  const auto is_forgotten = [&mine](const std::string& name) { return !mine.tracker.ledger().contains(name); };
  std::erase_if(mine.refused, [&](const auto& one) { return is_forgotten(one.first); });
  std::erase_if(mine.unreadable, is_forgotten);
  for (std::set<std::string>* names : {&mine.offered, &mine.refused_before}) {
    if (names->size() > 2 * CheckpointTracker::kLedgerMax) std::erase_if(*names, is_forgotten);
  }
}

bool CheckpointKeeper::all_kept(const JobId& job) const {
  const auto found = parts_.find(job);
  if (found == parts_.end()) return true;
  const JobPart& mine = *found->second;
  return std::ranges::all_of(mine.tracker.finished(), [&](const auto& name) { return mine.refused.contains(name); });
}

std::string CheckpointKeeper::progress(const JobId& job) const {
  const auto found = parts_.find(job);
  if (found == parts_.end()) return "";
  const JobPart& mine = *found->second;
  if (mine.arrival && !mine.arrival->items.empty()) {
    std::string text = fmt::format("its checkpoint '{}' is being fetched", mine.arrival->items.front().name);
    if (!mine.arrival->problem.empty()) text += ": " + mine.arrival->problem;
    return text;
  }
  const std::vector<std::string> finished = mine.tracker.finished();
  if (finished.empty() || all_kept(job)) return "";
  return fmt::format("its checkpoint '{}' is on its way to the head", finished.front());
}

// New ones first, then what this head has not been told of.
std::optional<CheckpointKeeper::Load> CheckpointKeeper::next_load() {
  for (const auto& [job, mine] : parts_) {
    if (std::optional<Load> load = next_of(job, *mine)) return load;
  }
  if (head_epoch_ == 0) return std::nullopt;
  for (const auto& [hash, copy] : copies_) {
    if (!copy.offered) return Load{copy.job, copy.item, 0, true};
  }
  return std::nullopt;
}

std::optional<CheckpointKeeper::Load> CheckpointKeeper::next_of(const JobId& job, JobPart& mine) {
  const auto load = [&](const std::string& name, const elastic::CheckpointEntry& entry) {
    Load next{job, {}, mine.tracker.version(name), false};
    next.item.name = name;
    next.item.hash = entry.hash;
    next.item.generation = entry.generation;
    next.item.saved_us = entry.saved_us;
    next.item.node = settings_.node;
    return next;
  };
  const elastic::CheckpointLedger& ledger = mine.tracker.ledger();
  for (const std::string& name : mine.tracker.finished()) {
    const auto later = mine.refused.find(name);
    if (later == mine.refused.end() || later->second <= world_.clock.now()) return load(name, ledger.at(name));
  }
  if (head_epoch_ == 0) return std::nullopt;
  for (const auto& [name, entry] : ledger) {
    if (entry.hash.empty() || mine.offered.contains(name)) continue;
    if (world_.files.exists(folder(job) + "/" + name)) return load(name, entry);
    mine.offered.insert(name);
  }
  return std::nullopt;
}

std::optional<Instant> CheckpointKeeper::next_try() const {
  std::optional<Instant> next;
  for (const auto& [job, mine] : parts_) {
    for (const auto& [name, at] : mine->refused) {
      if (!next || at < *next) next = at;
    }
  }
  return next;
}

Task<void> CheckpointKeeper::send_all() {
  Duration pause = kSendPauseFirst;
  while (true) {
    const bool good = co_await send_round();
    if (good) {
      pause = kSendPauseFirst;
      const std::optional<Instant> again = next_try();
      if (again) {
        co_await to_send_.wait_until(*again);
      } else {
        co_await to_send_.wait();
      }
    } else {
      co_await Sleep(world_.clock.loop(), world_.clock.now() + pause);
      pause = std::min(2 * pause, kSendPauseMax);
    }
  }
}

// All that there is to send; false: after a pause again.
Task<bool> CheckpointKeeper::send_round() {
  std::optional<Load> load = next_load();
  if (!load) co_return true;
  DeliveryLink link(world_, settings_);
  const bool opened = co_await link.open(elastic::Delivery::Purpose::kCheckpoints);
  Delivered outcome = opened ? Delivered::kKept : Delivered::kBroken;
  for (; load && outcome == Delivered::kKept; load = next_load()) {
    Cargo cargo = make_cargo(*load);
    outcome = co_await link.deliver(std::move(cargo));
    if (outcome == Delivered::kKept) kept(*load, link.sent);
    // Answers to parts that were under way are still to come: the next one goes on another connection.
    if (outcome == Delivered::kRefused) refused(*load, link);
    if (outcome != Delivered::kBroken) forget_if_left(load->job);
    if (outcome != Delivered::kBroken) wake_();
    if (outcome != Delivered::kKept) break;
  }
  if (outcome == Delivered::kBroken && link.problem != last_problem_)
    report_("checkpoints are not sent: " + link.problem);
  last_problem_ = outcome == Delivered::kBroken ? link.problem : "";
  co_return outcome == Delivered::kKept || (outcome == Delivered::kRefused && !next_load());
}

Cargo CheckpointKeeper::make_cargo(const Load& load) {
  Cargo cargo;
  cargo.job = load.job;
  cargo.checkpoint = load.item;
  cargo.bytes_per_s = settings_.checkpoint_bytes_per_s;
  Files& files = world_.files;
  if (load.is_copy) {
    cargo.open = [&files, path = copy_path(load.item.hash), item = load.item]() -> std::shared_ptr<CargoSource> {
      return std::make_shared<BlobSource>(files, path, item);
    };
    return cargo;
  }
  cargo.open = [&files, root = folder(load.job), name = load.item.name]() -> std::shared_ptr<CargoSource> {
    return std::make_shared<ItemSource>(files, root, name);
  };
  cargo.is_current = [this, job = load.job, name = load.item.name, version = load.version] {
    const auto found = parts_.find(job);
    if (found == parts_.end()) return false;
    take_changes(job, *found->second, false);
    return found->second->tracker.version(name) == version;
  };
  return cargo;
}

void CheckpointKeeper::kept(const Load& load, const elastic::OutputPart& sent) {
  if (load.is_copy) {
    if (const auto copy = copies_.find(load.item.hash); copy != copies_.end()) copy->second.offered = true;
    return;
  }
  const auto found = parts_.find(load.job);
  if (found == parts_.end()) return;
  JobPart& mine = *found->second;
  const std::string hash = sent.hash.empty() ? load.item.hash : sent.hash;
  mine.refused.erase(load.item.name);
  if (hash.empty()) {
    mine.tracker.give_up(load.item.name, load.version);  // nobody wants it any more
  } else {
    mine.offered.insert(load.item.name);
    mine.tracker.kept(load.item.name, load.version, hash);
  }
  mine.dirty = true;
  to_save_.notify();
}

void CheckpointKeeper::refused(const Load& load, const DeliveryLink& link) {
  const std::string& reason = link.problem;
  if (load.is_copy) {
    if (const auto copy = copies_.find(load.item.hash); copy != copies_.end()) copy->second.offered = true;
    report_(fmt::format("a copy of '{}' of {} is not taken: {}", load.item.name, load.job.value, reason));
    return;
  }
  const auto found = parts_.find(load.job);
  if (found == parts_.end()) return;
  JobPart& mine = *found->second;
  if (mine.tracker.version(load.item.name) != load.version) return;  // what has come in its place is sent
  if (!world_.files.exists(folder(load.job) + "/" + load.item.name) && load.item.hash.empty()) {
    mine.tracker.give_up(load.item.name, load.version);
    return;
  }
  if (!load.item.hash.empty()) {  // it was kept once
    mine.offered.insert(load.item.name);
    return;
  }
  mine.refused[load.item.name] = world_.clock.now() + kRefusedPause;
  if (link.unreadable) mine.unreadable.insert(load.item.name);
  if (!mine.refused_before.insert(load.item.name).second) return;
  const std::string text =
      fmt::format("the checkpoint '{}' is not copied: {}; it is tried again", load.item.name, reason);
  report_(text);
  if (mine.warn) mine.warn("rubato: " + text);
}

Task<void> CheckpointKeeper::save_ledgers() {
  while (true) {
    std::optional<JobId> next;
    for (const auto& [job, mine] : parts_) {
      if (mine->dirty) next = job;
    }
    if (!next) {
      co_await to_save_.wait();
      continue;
    }
    JobPart& mine = *parts_.at(*next);
    mine.dirty = false;
    std::function<void()> work = [&files = world_.files, path = ledger_path(*next),
                                  text = elastic::ledger_text(mine.tracker.ledger())] {
      files.write_atomically(path, text);
    };
    std::string trouble;
    try {
      co_await beside(std::move(work));
    } catch (const Error& error) {
      trouble = error.message;
    }
    if (trouble.empty()) continue;
    report_("the ledger of checkpoints is not written: " + trouble);
    co_await Sleep(world_.clock.loop(), world_.clock.now() + kSendPauseMax);
    if (const auto found = parts_.find(*next); found != parts_.end()) found->second->dirty = true;
  }
}

Task<void> CheckpointKeeper::beside(std::function<void()> work) {
  if (settings_.offload) {
    Task<void> done = settings_.offload(std::move(work));
    co_await std::move(done);
  } else {
    work();
  }
}

void CheckpointKeeper::forget_if_left(const JobId& job) {
  const auto found = parts_.find(job);
  if (found != parts_.end() && found->second->is_left) forget(job);
}

void CheckpointKeeper::forget(const JobId& job) {
  const auto found = parts_.find(job);
  if (found != parts_.end()) {
    JobPart& mine = *found->second;
    const auto may_be_sent = [&](const std::string& name) { return !mine.unreadable.contains(name); };
    mine.is_left = std::ranges::any_of(mine.tracker.finished(), may_be_sent);
    if (mine.is_left) return;
  }
  if (parts_.erase(job) == 0 && !world_.files.exists(folder(job))) return;
  world_.files.remove_tree(ledger_path(job));
  discard_(folder(job));
}

void CheckpointKeeper::follow(const elastic::Orders& orders) {
  std::set<JobId> wanted;
  for (const elastic::JobOrder& job_order : orders.job_orders) wanted.insert(job_order.job);
  std::vector<JobId> others;
  for (const auto& [job, mine] : parts_) {
    if (!wanted.contains(job) && mine->shelves.empty()) others.push_back(job);
  }
  for (const JobId& job : others) forget(job);
  wanted_copies_ = orders.copies;
  to_copy_.notify();
}

void CheckpointKeeper::connected(uint64_t head_epoch) {
  if (head_epoch_ == head_epoch) return;
  head_epoch_ = head_epoch;
  for (const auto& [job, mine] : parts_) mine->offered.clear();
  for (auto& [hash, copy] : copies_) copy.offered = false;
  to_send_.notify();
}

}  // namespace rubato::node
