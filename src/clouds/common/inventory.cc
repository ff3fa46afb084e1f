#include "clouds/common/inventory.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "provider/external_head.h"

namespace rubato::clouds {
namespace {

constexpr double kHoursInMonth = 730;

std::string_view word_of(MachineState state) {
  switch (state) {
    case MachineState::kStarting: return "starting";
    case MachineState::kRunning: return "running";
    case MachineState::kStopping: return "stopping";
    case MachineState::kStopped: return "stopped";
    case MachineState::kEnding: return "ending";
    case MachineState::kEnded: return "ended";
  }
  return "";
}

}  // namespace

Inventory::Inventory(const ClusterFile& file) : spec_(cluster_spec_of(file)), head_(provider::head_order(file).node) {}

// As the autoscaler counts it: what the file says before the tables.
std::optional<double> Inventory::price_of(const CloudMachine& machine, const std::string& node_type) const {
  if (machine.state == MachineState::kStopped || machine.state == MachineState::kStopping) return 0;
  const auto type = spec_.types.find(node_type);
  if (type == spec_.types.end()) return std::nullopt;
  const Market market = machine.spot ? Market::kSpot : Market::kOnDemand;
  const Offering* any = nullptr;
  for (const Offering& one : type->second.offerings) {
    if (one.market != market) continue;
    if (any == nullptr || one.zone == machine.zone) any = &one;
  }
  if (any == nullptr || any->price_per_hour <= 0) return std::nullopt;
  return any->price_per_hour;
}

void Inventory::add_machine(const CloudMachine& machine, provider::CloudResource named, const std::string& kind,
                            const std::string& node_type) {
  if (is_gone(machine)) return;
  if (is_alive(machine) && machine.node == head_) has_head_ = true;
  std::vector<std::string> parts;
  if (machine.node) parts.push_back(machine.node->value);
  parts.emplace_back(word_of(machine.state));
  if (!kind.empty()) parts.push_back(kind);
  if (machine.spot) parts.emplace_back("spot");
  named.kind = "instance";
  named.where = machine.zone;
  named.detail = join(parts, ", ");
  named.price_per_hour = price_of(machine, node_type);
  out_.found.push_back(std::move(named));
}

void Inventory::add_disk(provider::CloudResource disk, int64_t gigabytes, double price_per_gb_month, bool is_attached) {
  if (price_per_gb_month > 0) disk.price_per_hour = static_cast<double>(gigabytes) * price_per_gb_month / kHoursInMonth;
  if (!is_attached) {
    unheld_.push_back(out_.found.size());
    disk.goes_with_down = false;
  }
  out_.found.push_back(std::move(disk));
}

Task<void> Inventory::read(std::string what, Task<void> part) {
  try {
    co_await std::move(part);
  } catch (const Error& error) {
    out_.unread.push_back(fmt::format("{}: {}", what, error.message));
  }
}

provider::CloudInventory Inventory::finish() {
  for (size_t i = 0; i < out_.found.size(); ++i) {
    out_.found[i].in_use = has_head_ && std::ranges::find(unheld_, i) == unheld_.end();
  }
  return std::move(out_);
}

Task<bool> try_check(std::string name, Task<std::string> step, std::vector<provider::CloudCheck>& out) {
  provider::CloudCheck check;
  check.check = std::move(name);
  try {
    check.found = co_await std::move(step);
  } catch (const Error& error) {
    check.result = provider::CheckResult::kFail;
    check.found = error.message;
    check.fix = error.hint;
    if (!error.where.empty()) check.found += fmt::format(" ({})", error.where);
  }
  const bool is_good = check.result == provider::CheckResult::kOk;
  out.push_back(std::move(check));
  co_return is_good;
}

provider::CloudCheck judge_quota(const QuotaNeed& need) {
  const double left = need.limit - need.used;
  provider::CloudCheck out;
  out.check = "quota";
  out.found = fmt::format("{}: {:g} {}", need.name, need.limit, need.unit);
  if (need.used > 0) out.found += fmt::format(", {:g} of them in use", need.used);
  if (left >= need.most) return out;
  const bool enough_to_begin = left >= need.least;
  out.result = enough_to_begin ? provider::CheckResult::kWarn : provider::CheckResult::kFail;
  out.found += enough_to_begin ? fmt::format("; with all its workers the cluster needs {:g}", need.most)
                               : fmt::format("; the cluster begins with {:g}", need.least);
  out.fix = need.fix;
  return out;
}

}  // namespace rubato::clouds
