// Resources: what a node has and a worker needs. Whole numbers, so that adding and taking away never drifts.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rubato {

// By name: "CPU", "GPU" and custom ones in thousandths, "memory" in bytes. A name that is absent means zero; zeros are
// not kept, so that equal amounts compare equal.
class Resources {
 public:
  int64_t of(std::string_view name) const;
  void set(std::string_view name, int64_t amount);  // never negative
  bool empty() const { return amounts_.empty(); }

  bool fits_in(const Resources& room) const;
  int64_t times_in(const Resources& room) const;  // how many of these fit there; a large number when this is empty
  Resources& operator+=(const Resources& more);
  Resources& operator-=(const Resources& less);  // never below zero: a CHECK
  bool operator==(const Resources&) const = default;
  auto operator<=>(const Resources&) const = default;

  const std::map<std::string, int64_t, std::less<>>& amounts() const { return amounts_; }

 private:
  std::map<std::string, int64_t, std::less<>> amounts_;
};

inline constexpr std::string_view kCpu = "CPU";
inline constexpr std::string_view kGpu = "GPU";
inline constexpr std::string_view kMemory = "memory";

// `count` workers of this size.
Resources times(const Resources& each, int64_t count);

// For people: "2 CPU, 1 GPU, 4 GiB memory"; "nothing" when empty.
std::string describe(const Resources& resources);

// "4GiB", "512M", "1.5g", a bare number is bytes. Throws a usage Error.
int64_t parse_bytes(std::string_view text);
std::string format_bytes(int64_t bytes);  // "1.5 GiB"

// {"CPU": 1.5, "memory": 1073741824}: what users write in JSON and YAML. from_json throws a usage Error.
nlohmann::json to_json(const Resources& resources);
Resources resources_from_json(const nlohmann::json& json);

}  // namespace rubato
