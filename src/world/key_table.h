// KeyTable: keys and values in memory, with a bound; what a MeetingStore keeps. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rubato {

class KeyTable {
 public:
  static constexpr size_t kBytesMax = size_t{64} << 20;  // of all keys and values
  static constexpr size_t kKeysMax = 100'000;

  explicit KeyTable(size_t bytes_max = kBytesMax) : bytes_max_(bytes_max) {}

  // Throws kConflict, and changes nothing, when the table is full.
  void set(const std::string& key, std::string value);
  const std::string* find(const std::string& key) const;
  // The first of `keys` that is not there.
  std::optional<std::string> missing(const std::vector<std::string>& keys) const;
  // A number, kept as decimal text; no key counts as 0. Throws kUsage when there is something else, or it overflows.
  int64_t add(const std::string& key, int64_t amount);
  size_t remove_prefix(const std::string& prefix);  // how many
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_max_;
  size_t bytes_ = 0;
  std::map<std::string, std::string> values_;
};

}  // namespace rubato
