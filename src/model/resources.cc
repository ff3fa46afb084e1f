#include "model/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "model/byte_amounts.h"
#include "model/limits.h"

namespace rubato {
namespace {

constexpr int64_t kPerUnit = 1000;
// An empty need fits so often: more than any count of workers, and far from overflow when such numbers are added.
constexpr int64_t kFitsOften = 1'000'000'000;
// Ten thousand nodes of this size still add up in 64 bits.
constexpr int64_t kMemoryMax = int64_t{64} << 40;
constexpr double kUnitsMax = 1e11;

bool valid_resource_name(std::string_view name) {
  const auto fine = [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') ||
           std::string_view("_.:/-").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), fine);
}

// "cpu" would be a resource of its own that no worker asks for.
void check_resource_name(const std::string& name) {
  for (const std::string_view known : {kCpu, kGpu, kMemory}) {
    if (name != known && to_lower(name) == to_lower(known)) {
      throw Error(ErrorCode::kUsage, fmt::format("the resource '{}' is spelled '{}'", name, known), "",
                  fmt::format("write {}", known));
    }
  }
  if (!valid_resource_name(name)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a name for a resource", name), "",
                "use up to 63 letters, digits and _.:/-");
  }
}

std::string thousandths(int64_t amount) {
  std::string text = fmt::format("{}.{:03}", amount / kPerUnit, amount % kPerUnit);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

double unit_scale(std::string_view unit) {
  const std::string lower = to_lower(unit);
  if (lower.empty() || lower == "b") return 1;
  const size_t power = std::string_view("kmgtp").find(lower[0]);
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = std::string_view(lower).substr(1);
  if (rest.empty() || rest == "i" || rest == "ib") return std::pow(1024.0, static_cast<double>(power + 1));
  if (rest == "b") return std::pow(1000.0, static_cast<double>(power + 1));
  return 0;
}

int64_t amount_from_json(const std::string& name, const nlohmann::json& value) {
  const bool memory = counted_in_bytes(name);
  if (memory && value.is_string()) return parse_bytes(value.get<std::string>());
  if (!value.is_number()) {
    throw Error(ErrorCode::kUsage, fmt::format("the amount of '{}' must be a number", name));
  }
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < 0) {
    throw Error(ErrorCode::kUsage, fmt::format("the amount of '{}' is negative", name));
  }
  if (number > (memory ? static_cast<double>(kMemoryMax) : kUnitsMax)) {
    throw Error(ErrorCode::kUsage, fmt::format("the amount of '{}' is too large", name));
  }
  const int64_t amount = std::llround(memory ? number : number * kPerUnit);
  if (amount == 0 && number > 0) {
    throw Error(ErrorCode::kUsage, fmt::format("the amount of '{}' is too small", name), "",
                memory ? "one byte is the least" : "0.001 is the least");
  }
  return amount;
}

}  // namespace

int64_t Resources::of(std::string_view name) const {
  const auto found = amounts_.find(name);
  return found == amounts_.end() ? 0 : found->second;
}

void Resources::set(std::string_view name, int64_t amount) {
  CHECK(amount >= 0);
  const auto found = amounts_.find(name);
  if (amount == 0) {
    if (found != amounts_.end()) amounts_.erase(found);
  } else if (found != amounts_.end()) {
    found->second = amount;
  } else {
    amounts_.emplace(name, amount);
  }
}

bool Resources::fits_in(const Resources& room) const {
  return std::all_of(amounts_.begin(), amounts_.end(),
                     [&](const auto& entry) { return entry.second <= room.of(entry.first); });
}

int64_t Resources::times_in(const Resources& room) const {
  int64_t least = kFitsOften;
  for (const auto& [name, amount] : amounts_) least = std::min(least, room.of(name) / amount);
  return least;
}

Resources& Resources::operator+=(const Resources& more) {
  for (const auto& [name, amount] : more.amounts_) {
    int64_t sum = 0;
    if (__builtin_add_overflow(of(name), amount, &sum)) sum = std::numeric_limits<int64_t>::max();
    set(name, sum);
  }
  return *this;
}

Resources& Resources::operator-=(const Resources& less) {
  CHECK(less.fits_in(*this));
  for (const auto& [name, amount] : less.amounts_) set(name, of(name) - amount);
  return *this;
}

Resources times(const Resources& each, int64_t count) {
  CHECK(count >= 0);
  Resources out;
  for (const auto& [name, amount] : each.amounts()) {
    int64_t product = 0;
    // More than there is of anything; it fits nowhere, as it should.
    if (__builtin_mul_overflow(amount, count, &product)) product = std::numeric_limits<int64_t>::max();
    out.set(name, product);
  }
  return out;
}

std::string describe(const Resources& resources) {
  std::vector<std::string> parts;
  for (const std::string_view name : {kCpu, kGpu}) {
    if (const int64_t amount = resources.of(name)) parts.push_back(fmt::format("{} {}", thousandths(amount), name));
  }
  if (const int64_t bytes = resources.of(kMemory)) parts.push_back(format_bytes(bytes) + " memory");
  for (const auto& [name, amount] : resources.amounts()) {
    if (name == kCpu || name == kGpu || name == kMemory) continue;
    parts.push_back(fmt::format("{} {}", counted_in_bytes(name) ? format_bytes(amount) : thousandths(amount), name));
  }
  return parts.empty() ? "nothing" : join(parts, ", ");
}

int64_t parse_bytes(std::string_view text) {
  const std::string_view trimmed = trim(text);
  double number = 0;
  const char* const last = trimmed.data() + trimmed.size();
  const auto [end, error] = std::from_chars(trimmed.data(), last, number);
  const double scale =
      error == std::errc{} ? unit_scale(trim(trimmed.substr(static_cast<size_t>(end - trimmed.data())))) : 0;
  if (scale == 0 || !std::isfinite(number) || number < 0) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is not an amount of memory", text), "",
                "write it as 4GiB, 512M, 1.5g (powers of 1024), 2GB (powers of 1000), or in bytes");
  }
  const double bytes = number * scale;
  if (bytes > static_cast<double>(kMemoryMax)) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is more than {}", text, format_bytes(kMemoryMax)));
  }
  return std::llround(bytes);
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::string_view units = "KMGTPE";
  value /= 1024;
  while (value >= 1023.95 && units.size() > 1) {
    value /= 1024;
    units.remove_prefix(1);
  }
  std::string number = fmt::format("{:.1f}", value);
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  return fmt::format("{} {}iB", number, units[0]);
}

nlohmann::json to_json(const Resources& resources) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [name, amount] : resources.amounts()) {
    if (counted_in_bytes(name)) {
      out[name] = amount;
    } else if (amount % kPerUnit == 0) {
      out[name] = amount / kPerUnit;
    } else {
      out[name] = static_cast<double>(amount) / kPerUnit;
    }
  }
  return out;
}

Resources resources_from_json(const nlohmann::json& json) {
  if (!json.is_object()) throw Error(ErrorCode::kUsage, "resources must be a mapping of names to amounts");
  if (json.size() > kResourceNamesMax) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} kinds of resources are more than {}", json.size(), kResourceNamesMax));
  }
  Resources out;
  for (const auto& [name, value] : json.items()) {
    check_resource_name(name);
    out.set(name, amount_from_json(name, value));
  }
  return out;
}

}  // namespace rubato
