// Fields: one list of a struct's fields serves both directions of its JSON.
//
//   template <class Io> void fields(Io& io, Seat& seat) { io("node", seat.node); io("workers", seat.workers); }
//
// A field that is absent keeps its default: records of an older version stay readable when a field is added.
#pragma once

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "model/cluster_spec.h"
#include "model/ids.h"
#include "model/job_profile.h"
#include "model/job_spec.h"

namespace rubato::cluster {

using Json = nlohmann::json;

template <class T>
Json write_value(const T& value);
template <class T>
void read_value(const Json& json, T& value);

class FieldWriter {
 public:
  explicit FieldWriter(Json& out) : out_(out) {}
  template <class T>
  void operator()(const char* name, const T& value) {
    out_[name] = write_value(value);
  }

 private:
  Json& out_;
};

class FieldReader {
 public:
  explicit FieldReader(const Json& in) : in_(in) {}
  template <class T>
  void operator()(const char* name, T& value) {
    const auto it = in_.find(name);
    if (it != in_.end()) read_value(*it, value);
  }

 private:
  const Json& in_;
};

template <class T>
concept IsId = std::is_same_v<T, NodeId> || std::is_same_v<T, JobId> || std::is_same_v<T, AgentId>;
template <class T>
concept IsSpec = std::is_same_v<T, JobSpec> || std::is_same_v<T, ClusterSpec> || std::is_same_v<T, Resources> ||
    std::is_same_v<T, NodeRecipe> || std::is_same_v<T, JobProfile>;
template <class T>
concept HasFields = requires(FieldWriter& io, T& value) {
  fields(io, value);
};

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsSet : std::false_type {};
template <class T>
struct IsSet<std::set<T>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class K, class V>
struct IsMap<std::map<K, V>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
Json write_value(const T& value) {
  if constexpr (IsId<T>) {
    return value.value;
  } else if constexpr (IsSpec<T>) {
    return to_json(value);
  } else if constexpr (std::is_same_v<T, Duration>) {
    return value.count() / 1000;
  } else if constexpr (std::is_same_v<T, Instant> || std::is_same_v<T, WallTime>) {
    return std::chrono::duration_cast<std::chrono::microseconds>(value.time_since_epoch()).count();
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(value);
  } else if constexpr (IsVector<T>::value || IsSet<T>::value) {
    Json out = Json::array();
    for (const auto& item : value) out.push_back(write_value(item));
    return out;
  } else if constexpr (IsMap<T>::value) {
    Json out = Json::array();
    for (const auto& [key, item] : value) out.push_back(Json::array({write_value(key), write_value(item)}));
    return out;
  } else if constexpr (IsOptional<T>::value) {
    return value ? write_value(*value) : Json();
  } else if constexpr (HasFields<T>) {
    Json out = Json::object();
    FieldWriter io(out);
    fields(io, const_cast<T&>(value));  // the writer only reads it
    return out;
  } else {
    return value;
  }
}

// Numbers that a wider type or a fraction would bend are refused: the library converts them without a word.
template <class T>
T read_integer(const Json& json) {
  if (json.is_number_unsigned()) {
    const uint64_t number = json.get<uint64_t>();
    if (std::in_range<T>(number)) return static_cast<T>(number);
  } else if (json.is_number_integer()) {
    const int64_t number = json.get<int64_t>();
    if (std::in_range<T>(number)) return static_cast<T>(number);
  }
  throw Error(ErrorCode::kFailed, "a number is out of range, or none");
}

// Far enough from the limits that sums of times and durations fit as well.
inline int64_t read_micros(const Json& json) {
  constexpr int64_t kMicrosMax = std::numeric_limits<int64_t>::max() / 4000;
  const int64_t micros = read_integer<int64_t>(json);
  if (micros < -kMicrosMax || micros > kMicrosMax) throw Error(ErrorCode::kFailed, "a time is out of range");
  return micros;
}

inline const Json& as_array(const Json& json) {
  if (!json.is_array()) throw Error(ErrorCode::kFailed, "not a list where one is expected");
  return json;
}

template <class T>
void read_value(const Json& json, T& value) {
  if constexpr (IsId<T>) {
    value.value = json.get<std::string>();
  } else if constexpr (std::is_same_v<T, JobSpec>) {
    value = job_spec_from_json(json);
  } else if constexpr (std::is_same_v<T, ClusterSpec>) {
    value = cluster_spec_from_json(json);
  } else if constexpr (std::is_same_v<T, NodeRecipe>) {
    value = node_recipe_from_json(json);
  } else if constexpr (std::is_same_v<T, JobProfile>) {
    value = job_profile_from_json(json);
  } else if constexpr (std::is_same_v<T, Resources>) {
    value = resources_from_json(json);
  } else if constexpr (std::is_same_v<T, Duration>) {
    value = std::chrono::microseconds(read_micros(json));
  } else if constexpr (std::is_same_v<T, Instant> || std::is_same_v<T, WallTime>) {
    value = T(std::chrono::microseconds(read_micros(json)));
  } else if constexpr (std::is_enum_v<T>) {
    const int number = read_integer<int>(json);
    if (number < 0 || number > static_cast<int>(last_of(T{})))
      throw Error(ErrorCode::kFailed, "a number that names nothing");
    value = static_cast<T>(number);
  } else if constexpr (IsVector<T>::value) {
    value.clear();
    for (const Json& item : as_array(json)) {
      typename T::value_type element{};
      read_value(item, element);
      value.push_back(std::move(element));
    }
  } else if constexpr (IsSet<T>::value) {
    value.clear();
    for (const Json& item : as_array(json)) {
      typename T::value_type element{};
      read_value(item, element);
      value.insert(std::move(element));
    }
  } else if constexpr (IsMap<T>::value) {
    value.clear();
    for (const Json& item : as_array(json)) {
      typename T::key_type key{};
      typename T::mapped_type element{};
      read_value(item.at(0), key);
      read_value(item.at(1), element);
      value.emplace(std::move(key), std::move(element));
    }
  } else if constexpr (IsOptional<T>::value) {
    value.reset();
    if (json.is_null()) return;
    typename T::value_type element{};
    read_value(json, element);
    value = std::move(element);
  } else if constexpr (HasFields<T>) {
    if (!json.is_object()) throw Error(ErrorCode::kFailed, "not an object where one is expected");
    FieldReader io(json);
    fields(io, value);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    value = read_integer<T>(json);
  } else {
    value = json.get<T>();
  }
}

}  // namespace rubato::cluster
