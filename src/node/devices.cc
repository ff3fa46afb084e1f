#include "node/devices.h"

#include <algorithm>
#include <utility>

#include "core/text.h"

namespace rubato::node {

namespace {
constexpr int64_t kWhole = 1000;
}

Devices::Share::Share(Share&& other) noexcept
    : devices_(std::exchange(other.devices_, nullptr)), taken_(std::move(other.taken_)) {}

Devices::Share& Devices::Share::operator=(Share&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  devices_ = std::exchange(other.devices_, nullptr);
  taken_ = std::move(other.taken_);
  return *this;
}

void Devices::Share::give_back() {
  if (!devices_) return;
  for (const auto& [device, amount] : taken_) devices_->used_[device] -= amount;
  devices_ = nullptr;
}

std::string Devices::Share::visible() const {
  std::vector<std::string> names;
  if (devices_) {
    for (const auto& [device, amount] : taken_) names.push_back(devices_->names_[device]);
  }
  return join(names, ",");
}

Devices::Share Devices::take(int workers, int64_t each) {
  std::map<size_t, int64_t> taken;
  if (names_.empty() || each <= 0) return Share(*this, {});
  for (int worker = 0; worker < workers; ++worker) {
    for (int64_t left = each; left > 0; left -= kWhole) take_one(std::min(left, kWhole), taken);
  }
  return Share(*this, std::move(taken));
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
