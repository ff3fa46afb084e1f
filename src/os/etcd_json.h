// etcd_json: how etcd's JSON gateway spells keys, numbers, ranges and transactions. Only etcd_store.cc includes it;
// `rubato connect` reads base64 with it.
// Bytes are base64, 64-bit numbers are strings, and what is zero or empty is left out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "world/store.h"

namespace rubato::os::etcd_json {

using Json = nlohmann::json;

inline constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string encode(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) {
      out += i + j <= bytes.size() ? kBase64[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

inline std::string decode(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kBase64.find(c);
    if (digit == std::string_view::npos) break;  // the padding
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 255);
  }
  return out;
}

inline std::string bytes_of(const Json& object, const char* name) {
  return object.contains(name) ? decode(object.at(name).get_ref<const std::string&>()) : "";
}

inline int64_t number_of(const Json& object, const char* name) {
  if (!object.contains(name)) return 0;
  const Json& value = object.at(name);
  return value.is_string() ? std::stoll(value.get_ref<const std::string&>()) : value.get<int64_t>();
}

inline int64_t revision_of(const Json& answer) { return number_of(answer.at("header"), "revision"); }

// The first key after every key with this prefix; "\0" is etcd's "to the end".
inline std::string prefix_end(std::string prefix) {
  while (!prefix.empty() && static_cast<uint8_t>(prefix.back()) == 0xff) prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');
  prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

inline Json key_range(const std::string& prefix) {
  const std::string first = prefix.empty() ? std::string(1, '\0') : prefix;
  return Json{{"key", encode(first)}, {"range_end", encode(prefix_end(prefix))}};
}

inline StoreEntry entry_of(const Json& kv) {
  StoreEntry entry;
  entry.key = bytes_of(kv, "key");
  entry.value = bytes_of(kv, "value");
  entry.created = number_of(kv, "create_revision");
  entry.modified = number_of(kv, "mod_revision");
  return entry;
}

inline Json created_at(const std::string& key, int64_t revision) {
  return Json{
      {"key", encode(key)}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", std::to_string(revision)}};
}

inline Json remove_op(const std::string& key) { return Json{{"request_delete_range", Json{{"key", encode(key)}}}}; }

inline Json put_op(const std::string& key, const std::string& value, int64_t lease) {
  Json put{{"key", encode(key)}, {"value", encode(value)}};
  if (lease != 0) put["lease"] = std::to_string(lease);
  return Json{{"request_put", std::move(put)}};
}

inline Json write_op(const StoreWrite& write) {
  return write.value ? put_op(write.key, *write.value, write.lease) : remove_op(write.key);
}

}  // namespace rubato::os::etcd_json
