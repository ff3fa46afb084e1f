#include "node/devices.h"

#include <algorithm>
#include <utility>

#include "core/text.h"

namespace rubato::node {

namespace {
constexpr int64_t kWhole = 1000;
}

Devices::Share::Share(Share&& other) noexcept
    : devices_(std::exchange(other.devices_, nullptr)), each_(other.each_), held_(std::move(other.held_)) {}

Devices::Share& Devices::Share::operator=(Share&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  devices_ = std::exchange(other.devices_, nullptr);
  each_ = other.each_;
  held_ = std::move(other.held_);
  return *this;
}

void Devices::Share::release(const Parts& parts) {
  for (const auto& [device, amount] : parts) devices_->used_[device] -= amount;
}

void Devices::Share::give_back() {
  if (!devices_) return;
  for (const auto& [local_rank, parts] : held_) release(parts);
  held_.clear();
  devices_ = nullptr;
}

void Devices::Share::hold(const std::set<int>& local_ranks) {
  if (!devices_ || devices_->names_.empty() || each_ <= 0) return;
  std::erase_if(held_, [&](const auto& entry) {
    const bool goes = !local_ranks.contains(entry.first);
    if (goes) release(entry.second);
    return goes;
  });
  for (const int local_rank : local_ranks) {
    const auto [place, is_new] = held_.try_emplace(local_rank);
    if (!is_new) continue;
    for (int64_t left = each_; left > 0; left -= kWhole) devices_->take_one(std::min(left, kWhole), place->second);
  }
}

std::string Devices::Share::visible() const {
  if (!devices_ || held_.empty()) return "";
  std::set<size_t> own;
  for (const auto& [local_rank, parts] : held_) {
    for (const auto& [device, amount] : parts) own.insert(device);
  }
  std::vector<size_t> others;  // to stand where nobody is, the last one first
  for (size_t i = devices_->names_.size(); i-- > 0;) {
    if (!own.contains(i)) others.push_back(i);
  }
  const bool whole = each_ % kWhole == 0;  // parts of devices have no places of their own
  std::vector<std::string> names;
  int next = 0;
  for (const auto& [local_rank, parts] : held_) {
    for (auto missing = whole ? (local_rank - next) * each_ / kWhole : 0; missing > 0 && !others.empty(); --missing) {
      names.push_back(devices_->names_[others.back()]);
      others.pop_back();
    }
    next = local_rank + 1;
    for (const auto& [device, amount] : parts) {
      if (own.erase(device) > 0) names.push_back(devices_->names_[device]);  // twice the same is no list
    }
  }
  return join(names, ",");
}

Devices::Share Devices::take(int workers, int64_t each) {
  Share share(*this, each);
  std::set<int> local_ranks;
  for (int local_rank = 0; local_rank < workers; ++local_rank) local_ranks.insert(local_rank);
  share.hold(local_ranks);
  return share;
}

// The fullest device with room, so that whole ones stay whole; the emptiest when none has room.
void Devices::take_one(int64_t amount, std::map<size_t, int64_t>& taken) {
  size_t best = 0;
  bool found = false;
  for (size_t i = 0; i < used_.size(); ++i) {
    if (used_[i] + amount > kWhole || (found && used_[i] <= used_[best])) continue;
    best = i;
    found = true;
  }
  if (!found) best = static_cast<size_t>(std::ranges::min_element(used_) - used_.begin());
  used_[best] += amount;
  taken[best] += amount;
}

}  // namespace rubato::node
