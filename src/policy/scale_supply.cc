#include "policy/scale_supply.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "model/byte_amounts.h"

namespace rubato::policy {
namespace {

// A spot node of unknown price: what large clouds asked on average in 2024 to 2026.
constexpr double kSpotShare = 0.35;
// In one decision: a slip in a file must not fill the memory. The next decision goes on.
constexpr int kLaunchesMax = 200'000;
// Sums of prices in floating point.
constexpr double kCent = 1e-6;

}  // namespace

int steps_away(ScaleLimit limit) {
  switch (limit) {
    case ScaleLimit::kNone:
    case ScaleLimit::kDearer:
      return 0;
    case ScaleLimit::kUpscalingSpeed:
    case ScaleLimit::kConcurrency:
      return 1;
    case ScaleLimit::kMax:
      return 2;
    case ScaleLimit::kTypeMax:
      return 3;
    case ScaleLimit::kBudget:
      return 4;
    case ScaleLimit::kOfferingLimit:
      return 5;
    case ScaleLimit::kBlocked:
      return 6;
    case ScaleLimit::kPriceCap:
      return 7;
    case ScaleLimit::kSpotPolicy:
      return 8;
    case ScaleLimit::kTooLarge:
      return 9;
  }
  return 0;
}

// Fitted to the public on-demand prices of AWS's m5, r5 and p3 in us-east-1. Only ratios matter to a plan, so they do
// for other clouds and years as well, as long as a GPU costs as much as some dozens of CPUs.
double estimated_price(const Resources& resources) {
  constexpr double kCpuHour = 0.034, kGibHour = 0.0035, kGpuHour = 2.57, kOtherHour = 0.058;
  double price = 0;
  for (const auto& [name, amount] : resources.amounts()) {
    const auto units = static_cast<double>(amount);
    if (name == kObjectStoreMemory) continue;  // a part of the memory
    if (name == kMemory) {
      price += kGibHour * units / static_cast<double>(1 << 30);
    } else {
      price += (name == kCpu ? kCpuHour : name == kGpu ? kGpuHour : kOtherHour) * units / 1000;
    }
  }
  return price;
}

Supply::Supply(const ScaleInput& input) : input_(&input) {
  for (const auto& [name, spec] : input.types) {
    types_.push_back(make_type(name, spec));
    priorities_.push_back(spec.priority);
  }
  std::sort(priorities_.begin(), priorities_.end(), std::greater());
  priorities_.erase(std::unique(priorities_.begin(), priorities_.end()), priorities_.end());
  for (const ScaleNode& node : input.nodes) count(node.type, node.zone, node.market, 1, node.head);
  for (const ScaleFull& one : input.full) count(one.type, one.zone, one.market, one.count, false);
  for (const ScaleLaunching& one : input.launching) count(one.type, one.zone, one.market, one.count, false);
}

Supply::Type Supply::make_type(const std::string& name, const ScaleType& spec) const {
  Type type{.name = &name, .spec = &spec};
  type.list_price = spec.price_per_hour.value_or(estimated_price(spec.resources));
  std::vector<Offering> offerings = spec.offerings;
  if (offerings.empty()) offerings.emplace_back();
  for (Offering& offering : offerings) {
    Option option{.offering = std::move(offering)};
    const bool spot = option.offering.market == Market::kSpot;
    option.estimated = !option.offering.price_per_hour && (spot || !spec.price_per_hour);
    option.price = option.offering.price_per_hour.value_or(type.list_price * (spot ? kSpotShare : 1));
    if ((spot && input_->spot == SpotPolicy::kNever) || (!spot && input_->spot == SpotPolicy::kOnly)) {
      option.refused = ScaleLimit::kSpotPolicy;
    } else if (input_->price_cap && option.price > *input_->price_cap) {
      option.refused = ScaleLimit::kPriceCap;
    } else if (!option.offering.blocked.empty()) {
      option.refused = ScaleLimit::kBlocked;
    }
    type.options.push_back(std::move(option));
  }
  const auto key = [](const Option& option) {
    return std::tuple(option.price, option.offering.market == Market::kOnDemand, option.offering.zone);
  };
  std::stable_sort(type.options.begin(), type.options.end(),
                   [&](const Option& a, const Option& b) { return key(a) < key(b); });
  return type;
}

std::optional<size_t> Supply::find(const std::string& name) const {
  const auto found = std::lower_bound(types_.begin(), types_.end(), name,
                                      [](const Type& type, const std::string& key) { return *type.name < key; });
  if (found == types_.end() || *found->name != name) return std::nullopt;
  return static_cast<size_t>(found - types_.begin());
}

void Supply::count(const std::string& name, const std::string& zone, Market market, int nodes, bool head) {
  cost_ += nodes * price_of(name, zone, market);
  if (head) return;
  workers_ += nodes;
  if (market == Market::kOnDemand) on_demand_ += nodes;
  const auto type = find(name);
  if (!type) return;
  types_[*type].workers += nodes;
  for (Option& option : types_[*type].options) {
    if (option.offering.zone != zone || option.offering.market != market) continue;
    option.used += nodes;
    return;
  }
}

double Supply::price_of(const std::string& name, const std::string& zone, Market market) const {
  const auto type = find(name);
  if (!type) return 0;
  for (const Option& option : types_[*type].options) {
    if (option.offering.zone == zone && option.offering.market == market) return option.price;
  }
  return types_[*type].list_price * (market == Market::kSpot ? kSpotShare : 1);
}

int Supply::launches_max() const { return std::min(input_->max_workers, kLaunchesMax); }

ScaleLimit Supply::against(const Type& type, const Option& option) const {
  if (option.refused != ScaleLimit::kNone) return option.refused;
  if (type.workers >= type.spec->max_workers) return ScaleLimit::kTypeMax;
  if (workers_ >= input_->max_workers) return ScaleLimit::kMax;
  if (opened_ >= kLaunchesMax) return ScaleLimit::kConcurrency;
  if (option.offering.limit && option.used >= *option.offering.limit) return ScaleLimit::kOfferingLimit;
  if (input_->budget_per_hour && cost_ + option.price > *input_->budget_per_hour + kCent) return ScaleLimit::kBudget;
  // The base comes first, as far as this type can be had on demand.
  if (option.offering.market == Market::kSpot && on_demand_ < input_->on_demand_base) {
    for (const Option& other : type.options) {
      const bool base = other.offering.market == Market::kOnDemand && against(type, other) == ScaleLimit::kNone;
      if (base) return ScaleLimit::kSpotPolicy;
    }
  }
  return ScaleLimit::kNone;
}

const Supply::Option* Supply::next(const Type& type) const {
  for (const Option& option : type.options) {
    if (against(type, option) == ScaleLimit::kNone) return &option;
  }
  return nullptr;
}

std::optional<double> Supply::price(size_t type) const {
  const Option* const option = next(types_[type]);
  if (option == nullptr) return std::nullopt;
  return option->price;
}

std::optional<double> Supply::usual_price(size_t type) const {
  if (types_[type].spec->max_workers <= 0) return std::nullopt;
  for (const Option& option : types_[type].options) {
    if (option.refused == ScaleLimit::kNone) return option.price;
  }
  return std::nullopt;
}

size_t Supply::open(size_t type) {
  const Option* const option = next(types_[type]);
  CHECK(option != nullptr);
  const auto index = static_cast<size_t>(option - types_[type].options.data());
  reopen(type, index);
  return index;
}

void Supply::reopen(size_t type, size_t offering) {
  Option& option = types_[type].options[offering];
  ++option.used;
  ++types_[type].workers;
  ++workers_;
  ++opened_;
  if (option.offering.market == Market::kOnDemand) ++on_demand_;
  cost_ += option.price;
}

void Supply::close(size_t type, size_t offering) {
  Option& option = types_[type].options[offering];
  --option.used;
  --types_[type].workers;
  --workers_;
  --opened_;
  if (option.offering.market == Market::kOnDemand) --on_demand_;
  cost_ -= option.price;
}

// Of several offerings, the limit that is the nearest to being lifted.
ScaleLimit Supply::limit(size_t type) const {
  ScaleLimit nearest = ScaleLimit::kTooLarge;
  for (const Option& option : types_[type].options) {
    const ScaleLimit one = against(types_[type], option);
    if (steps_away(one) < steps_away(nearest)) nearest = one;
  }
  return nearest;
}

std::string Supply::limit_text(size_t type) const {
  const Type& of = types_[type];
  const ScaleLimit binding = limit(type);
  const auto is_binding = [&](const Option& option) { return against(of, option) == binding; };
  const auto found = std::find_if(of.options.begin(), of.options.end(), is_binding);
  const Option& option = found == of.options.end() ? of.options.front() : *found;
  switch (binding) {
    case ScaleLimit::kTypeMax:
      return fmt::format("max_workers of {} is {}", *of.name, of.spec->max_workers);
    case ScaleLimit::kMax:
      return fmt::format("max_workers is {}", input_->max_workers);
    case ScaleLimit::kOfferingLimit:
      return fmt::format("at most {} of {} on {}", *option.offering.limit, *of.name, to_string(option.offering.market));
    case ScaleLimit::kBlocked:
      return fmt::format("{} cannot be had: {}", *of.name, option.offering.blocked);
    case ScaleLimit::kSpotPolicy:
      return fmt::format("{} is not offered with spot: {}", *of.name, to_string(input_->spot));
    case ScaleLimit::kPriceCap:
      return fmt::format("{} costs ${:.4g}/h, price_cap is ${:.4g}", *of.name, option.price, *input_->price_cap);
    case ScaleLimit::kBudget:
      return fmt::format("{} costs ${:.4g}/h, of budget_per_hour ${:.4g} ${:.4g} are left", *of.name, option.price,
                         *input_->budget_per_hour, std::max(0.0, *input_->budget_per_hour - cost_));
    case ScaleLimit::kConcurrency:
      return fmt::format("one decision launches at most {} nodes", kLaunchesMax);
    case ScaleLimit::kNone:
    case ScaleLimit::kTooLarge:
    case ScaleLimit::kUpscalingSpeed:
    case ScaleLimit::kDearer:
      break;
  }
  return fmt::format("one more {} can be launched", *of.name);
}

std::vector<ScaleReason::Against> Supply::refusals(size_t type) const {
  std::vector<ScaleReason::Against> out;
  for (const Option& option : types_[type].options) {
    if (option.refused == ScaleLimit::kNone) continue;
    const std::string& name = *types_[type].name;
    ScaleReason::Against one{.limit = option.refused, .type = name};
    one.subject = fmt::format("{} {}", name, to_string(option.offering.market));
    if (!option.offering.zone.empty()) one.subject += " in " + option.offering.zone;
    if (option.refused == ScaleLimit::kBlocked) {
      one.text = option.offering.blocked;
    } else if (option.refused == ScaleLimit::kPriceCap) {
      one.text = fmt::format("${:.4g}/h, price_cap is ${:.4g}", option.price, *input_->price_cap);
    } else {
      one.text = fmt::format("spot is '{}'", to_string(input_->spot));
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace rubato::policy
