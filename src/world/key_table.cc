#include "world/key_table.h"

#include <fmt/format.h>

#include <charconv>

#include "core/error.h"

namespace rubato {

void KeyTable::set(const std::string& key, std::string value) {
  const auto it = values_.find(key);
  const size_t before = it == values_.end() ? 0 : key.size() + it->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  if (it == values_.end() && values_.size() >= kKeysMax)
    throw Error(ErrorCode::kConflict, fmt::format("the store is full ({} keys)", kKeysMax));
  if (after > bytes_max_) throw Error(ErrorCode::kConflict, fmt::format("the store is full ({} bytes)", bytes_max_));
  bytes_ = after;
  values_[key] = std::move(value);
}

const std::string* KeyTable::find(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

std::optional<std::string> KeyTable::missing(const std::vector<std::string>& keys) const {
  for (const std::string& key : keys) {
    if (!values_.contains(key)) return key;
  }
  return std::nullopt;
}

int64_t KeyTable::add(const std::string& key, int64_t amount) {
  int64_t sum = 0;
  if (const std::string* text = find(key)) {
    const char* end = text->data() + text->size();
    const auto read = std::from_chars(text->data(), end, sum);
    if (read.ec != std::errc() || read.ptr != end) {
      throw Error(ErrorCode::kUsage, fmt::format("the value of '{}' is no number", key));
    }
  }
  if (__builtin_add_overflow(sum, amount, &sum)) {
    throw Error(ErrorCode::kUsage, fmt::format("the number of '{}' becomes too large", key));
  }
  set(key, std::to_string(sum));
  return sum;
}

size_t KeyTable::remove_prefix(const std::string& prefix) {
  size_t removed = 0;
  for (auto it = values_.lower_bound(prefix); it != values_.end() && it->first.starts_with(prefix); ++removed) {
    bytes_ -= it->first.size() + it->second.size();
    it = values_.erase(it);
  }
  return removed;
}

}  // namespace rubato
