#include "node/checkpoint_tracker.h"

#include <algorithm>
#include <functional>

namespace rubato::node {

namespace {
// Whoever writes a large file writes to it more often; who renames it does so soon.
constexpr Duration kInPlaceQuiet = 10s;
// Names come from the script: of more that are written in place none is named.
constexpr size_t kInPlaceMax = 4096;
constexpr size_t kWarningsMax = 16;
}  // namespace

CheckpointTracker::CheckpointTracker(elastic::CheckpointLedger ledger) : ledger_(std::move(ledger)) {
  for (const auto& [name, entry] : ledger_) {
    saved_us_ = std::max(saved_us_, entry.saved_us);
    versions_[name] = ++count_;
  }
  forget_old();
}

void CheckpointTracker::apply(FolderWatch::Kind kind, const std::string& name, Generation generation, Instant now,
                              WallTime wall) {
  if (!elastic::is_checkpoint_name(name)) return;
  in_place_.erase(name);
  const auto entry = ledger_.find(name);
  const bool goes = kind == FolderWatch::Kind::kGone || kind == FolderWatch::Kind::kMissed;
  if (goes && entry == ledger_.end()) {
    versions_.erase(name);
    return;
  }
  versions_[name] = ++count_;
  const bool finished = entry != ledger_.end() && entry->second.hash.empty();
  switch (kind) {
    case FolderWatch::Kind::kPlaced:
      saved_us_ = std::max<int64_t>(saved_us_ + 1, wall.time_since_epoch().count());
      ledger_[name] = {"", generation, saved_us_};
      forget_old();
      break;
    case FolderWatch::Kind::kWritten:
      if (in_place_.size() < kInPlaceMax) in_place_[name] = now;
      if (finished) ledger_.erase(entry);
      break;
    case FolderWatch::Kind::kGone:
      if (finished) ledger_.erase(entry);
      break;
    case FolderWatch::Kind::kMissed:
      break;
  }
}

// As the head does, of which one node's items are a part: what it would not keep is not worth remembering.
void CheckpointTracker::forget_old() {
  if (ledger_.size() > kLedgerMax) {
    std::vector<elastic::CheckpointItem> items;
    for (const auto& [name, entry] : ledger_) {
      elastic::CheckpointItem item;
      item.name = name;
      item.generation = entry.generation;
      item.saved_us = entry.saved_us;
      items.push_back(std::move(item));
    }
    elastic::CheckpointLedger left;
    for (const elastic::CheckpointItem& item : elastic::retained(std::move(items), {}))
      left.insert(ledger_.extract(item.name));
    ledger_ = std::move(left);
  }
  if (versions_.size() <= 2 * kLedgerMax) return;
  std::erase_if(versions_, [this](const auto& one) { return !ledger_.contains(one.first); });
}

std::vector<std::string> CheckpointTracker::finished() const {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& [name, entry] : ledger_) {
    if (entry.hash.empty()) found.emplace_back(entry.saved_us, name);
  }
  std::ranges::sort(found, std::greater{});
  std::vector<std::string> names;
  for (auto& [saved, name] : found) names.push_back(std::move(name));
  return names;
}

uint64_t CheckpointTracker::version(const std::string& name) const {
  const auto it = versions_.find(name);
  return it == versions_.end() ? 0 : it->second;
}

void CheckpointTracker::kept(const std::string& name, uint64_t version, const std::string& hash) {
  const auto entry = ledger_.find(name);
  if (entry != ledger_.end() && this->version(name) == version) entry->second.hash = hash;
}

void CheckpointTracker::restored(const elastic::CheckpointItem& item) {
  saved_us_ = std::max(saved_us_, item.saved_us);
  ledger_[item.name] = {item.hash, item.generation, item.saved_us};
  versions_[item.name] = ++count_;
  in_place_.erase(item.name);
  forget_old();
}

void CheckpointTracker::give_up(const std::string& name, uint64_t version) {
  const auto entry = ledger_.find(name);
  if (entry != ledger_.end() && entry->second.hash.empty() && this->version(name) == version) ledger_.erase(entry);
}

std::vector<std::string> CheckpointTracker::take_warnings(Instant now, bool ended) {
  std::vector<std::string> names;
  for (auto it = in_place_.begin(); it != in_place_.end();) {
    const bool due = ended || now - it->second >= kInPlaceQuiet;
    if (due && warned_.size() < kWarningsMax && warned_.insert(it->first).second) names.push_back(it->first);
    it = due ? in_place_.erase(it) : std::next(it);
  }
  return names;
}

}  // namespace rubato::node
