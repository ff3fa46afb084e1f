// CheckpointKeeper: what comes from the head: the items that workers are to find, and copies that are held for others.
#include <fmt/format.h>

#include <algorithm>

#include "archive/folder_stream.h"
#include "archive/package.h"
#include "elastic/checkpoints_json.h"
#include "node/checkpoint_keeper.h"
#include "node/delivery_link.h"

namespace rubato::node {

using elastic::CheckpointItem;

namespace {

constexpr Duration kFetchPause = 2s;
// An item that does not unpack, or is not there: so many tries, then workers start without it.
constexpr int kUnpackTries = 3;
constexpr Duration kCopyEvery = 30s;
// A new head does not know at once who is to hold what.
constexpr Duration kCopyUnwantedMax = 300s;
// Copies for others leave so much of this node's disk to its own jobs.
constexpr uint64_t kCopyReserveShare = 10;
constexpr const char* kCopyEnd = ".json";

// Beside the loop: checked against its hash, unpacked, durable.
void unpack_item(Files& files, const std::string& path, const CheckpointItem& item, const std::string& draft) {
  files.remove_tree(draft);
  archive::TarLimits limits = archive::kStreamLimits;
  limits.bytes_max = item.bytes;
  archive::unpack(files, path, item.hash, draft, limits);
  files.sync_tree(draft);
}

void keep_copy(Files& files, const std::string& path, const CheckpointItem& item, const std::string& text,
               const std::string& place, const std::string& note) {
  if (archive::hash_of_file(files, path) != item.hash) {
    files.remove_tree(path);
    throw Error(ErrorCode::kUsage, "its bytes have another hash");
  }
  files.write_atomically(note, text);
  files.rename(path, place);
}

}  // namespace

bool CheckpointKeeper::restore(const JobId& job, Generation generation, const std::vector<CheckpointItem>& items) {
  JobPart& mine = part(job);
  mine.is_left = false;
  if (mine.arrival) return false;
  // A head that has lost its disk does not know what it had before it was told.
  const auto untold = [&](const auto& entry) { return entry.second.job == job && !entry.second.offered; };
  if (std::ranges::any_of(copies_, untold)) return false;
  std::vector<CheckpointItem> missing = elastic::missing_items(items, mine.tracker.ledger(), generation);
  std::erase_if(missing, [&](const CheckpointItem& item) { return mine.failed[item.hash] >= kUnpackTries; });
  if (missing.empty()) return true;
  mine.arrival = Arrival{std::move(missing), ""};
  scope_.spawn(bring(job));
  return false;
}

Task<void> CheckpointKeeper::bring(JobId job) {
  while (true) {
    const auto found = parts_.find(job);
    if (found == parts_.end() || !found->second->arrival) co_return;
    if (found->second->arrival->items.empty()) break;
    const CheckpointItem item = found->second->arrival->items.front();
    std::string trouble;
    bool damaged = false;
    try {
      co_await bring_item(job, item);
    } catch (const Error& error) {
      trouble = error.message;
      damaged = error.code == ErrorCode::kUsage || error.code == ErrorCode::kNotFound;
    }
    const auto still = parts_.find(job);
    if (still == parts_.end() || !still->second->arrival) co_return;
    JobPart& mine = *still->second;
    mine.arrival->problem = trouble;
    if (!trouble.empty()) report_(fmt::format("the checkpoint '{}' of {}: {}", item.name, job.value, trouble));
    const bool hopeless = damaged && ++mine.failed[item.hash] >= kUnpackTries;
    if (trouble.empty() || hopeless) mine.arrival->items.erase(mine.arrival->items.begin());
    if (hopeless && mine.warn) {
      mine.warn(fmt::format("rubato: workers start without the checkpoint '{}': {}", item.name, trouble));
    }
    if (!trouble.empty() && !hopeless) co_await Sleep(world_.clock.loop(), world_.clock.now() + kFetchPause);
  }
  parts_.at(job)->arrival.reset();
  wake_();
}

Task<void> CheckpointKeeper::bring_item(JobId job, CheckpointItem item) {
  Files& files = world_.files;
  const std::string path = settings_.folder + "/arriving/" + item.hash + "." + job.value;
  const std::string draft = path + ".draft";
  co_await fetch_file(job, item, path);
  std::function<void()> unpack = [&files, path, item, draft] {
    try {
      unpack_item(files, path, item, draft);
    } catch (const Error&) {
      files.remove_tree(draft);
      files.remove_tree(path);  // what is damaged is fetched anew
      throw;
    }
  };
  co_await beside(std::move(unpack));
  const auto found = parts_.find(job);
  if (found == parts_.end()) co_return;
  const std::string target = folder(job) + "/" + item.name;
  files.make_folders(target.substr(0, target.rfind('/')));
  discard_(target);
  files.move(draft + "/" + item.name, target);
  found->second->tracker.restored(item);
  drop_forgotten(*found->second);
  found->second->offered.insert(item.name);
  found->second->dirty = true;
  to_save_.notify();
  std::function<void()> clean = [&files, path, draft] {
    files.remove_tree(draft);
    files.remove_tree(path);
  };
  co_await beside(std::move(clean));
}

// What was there before a connection broke, or the agent died, is not fetched again.
Task<void> CheckpointKeeper::fetch_file(JobId job, CheckpointItem item, std::string path) {
  Files& files = world_.files;
  files.make_folders(settings_.folder + "/arriving");
  uint64_t have = files.exists(path) ? files.open_read(path)->size() : 0;
  if (have > item.packed_bytes) {
    files.remove_tree(path);
    have = 0;
  }
  if (have == item.packed_bytes) co_return;
  DeliveryLink link(world_, settings_);
  const bool opened = co_await link.open(elastic::Delivery::Purpose::kFetch);
  bool all = false;
  if (opened) all = co_await link.fetch(job, item, path, have);
  if (!all) throw Error(ErrorCode::kUnavailable, link.problem.empty() ? "the head does not answer" : link.problem);
}

void CheckpointKeeper::adopt_copies() {
  Files& files = world_.files;
  // What was being unpacked is begun anew.
  const std::string arriving = settings_.folder + "/arriving";
  if (files.exists(arriving)) discard_(arriving);
  const std::string root = settings_.folder + "/copies";
  if (!files.exists(root)) return;
  for (const Files::Entry& entry : files.list(root)) {
    if (!entry.name.ends_with(kCopyEnd)) continue;
    try {
      const elastic::CheckpointCopy copy = elastic::copy_from_text(files.read(root + "/" + entry.name).value_or(""));
      if (files.exists(copy_path(copy.item.hash))) copies_[copy.item.hash] = Copy{copy.job, copy.item, false, {}};
    } catch (const Error& error) {
      report_(fmt::format("the copy {} is of no use: {}", entry.name, error.message));
    }
  }
}

Task<void> CheckpointKeeper::fetch_copies() {
  Files& files = world_.files;
  while (true) {
    drop_unwanted_copies();
    std::optional<elastic::CheckpointCopy> next;
    for (const elastic::CheckpointCopy& copy : wanted_copies_) {
      if (!copies_.contains(copy.item.hash) && !next) next = copy;
    }
    std::string trouble;
    if (next) {
      try {
        const std::optional<Files::Room> room = files.room(settings_.folder);
        if (room && room->free < room->size / kCopyReserveShare + next->item.packed_bytes) {
          throw Error(ErrorCode::kFailed, "this node's disk has no room for it");
        }
        const std::string path = settings_.folder + "/arriving/" + next->item.hash + ".copy";
        co_await fetch_file(next->job, next->item, path);
        files.make_folders(settings_.folder + "/copies");
        std::function<void()> work = [&files, path, item = next->item, text = elastic::copy_text(*next),
                                      place = copy_path(next->item.hash),
                                      note = settings_.folder + "/copies/" + next->item.hash + kCopyEnd] {
          keep_copy(files, path, item, text, place, note);
        };
        co_await beside(std::move(work));
        copies_[next->item.hash] = Copy{next->job, next->item, false, {}};
        to_send_.notify();  // the head is told that it is here
      } catch (const Error& error) {
        trouble = error.message;
      }
      if (trouble.empty()) continue;
      if (std::exchange(last_copy_problem_, trouble) != trouble)
        report_(fmt::format("no copy of '{}' of {}: {}", next->item.name, next->job.value, trouble));
      const Instant again = world_.clock.now() + kFetchPause;
      co_await Sleep(world_.clock.loop(), again);
      continue;
    }
    last_copy_problem_.clear();
    if (copies_.empty()) {
      co_await to_copy_.wait();
    } else {
      co_await to_copy_.wait_until(world_.clock.now() + kCopyEvery);
    }
  }
}

void CheckpointKeeper::drop_unwanted_copies() {
  std::set<std::string> wanted;
  for (const elastic::CheckpointCopy& copy : wanted_copies_) wanted.insert(copy.item.hash);
  const Instant now = world_.clock.now();
  for (auto it = copies_.begin(); it != copies_.end();) {
    Copy& copy = it->second;
    const bool unwanted = copy.offered && !wanted.contains(it->first);
    if (!unwanted) copy.unwanted.reset();
    if (unwanted && !copy.unwanted) copy.unwanted = now;
    if (!unwanted || now - *copy.unwanted < kCopyUnwantedMax) {
      ++it;
      continue;
    }
    world_.files.remove_tree(settings_.folder + "/copies/" + it->first + kCopyEnd);
    discard_(copy_path(it->first));
    it = copies_.erase(it);
  }
}

}  // namespace rubato::node
