// Fields: one list of a document's fields gives its JSON, the reading of it, and its schema in docs/openapi.yaml.
//
//   struct Bundle {
//     static constexpr const char* kName = "Bundle";
//     Resources resources;
//     int64_t count = 1;
//   };
//   template <class Io>
//   void fields(Io& io, Bundle& bundle) {
//     io("resources", bundle.resources, "of each");
//     io("count", bundle.count, "");
//   }
//
// std::optional: the field is absent when there is nothing to say. Nullable: it is null then.
// An io takes a name, a value, a text for the schema and, of a string, the values that it may have.
#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "core/timestamp.h"
#include "model/job_spec.h"
#include "model/resources.h"

namespace rubato::api {

using Json = nlohmann::json;
using Values = std::initializer_list<const char*>;

template <class T>
struct Nullable {
  std::optional<T> value;
};

template <class T>
concept IsDocument = requires {
  T::kName;
};
template <class T>
struct OptionalOf : std::false_type {};
template <class T>
struct OptionalOf<std::optional<T>> : std::true_type {
  using Inner = T;
};
template <class T>
struct NullableOf : std::false_type {};
template <class T>
struct NullableOf<Nullable<T>> : std::true_type {
  using Inner = T;
};
template <class T>
struct VectorOf : std::false_type {};
template <class T>
struct VectorOf<std::vector<T>> : std::true_type {
  using Inner = T;
};
template <class T>
struct MapOf : std::false_type {};
template <class T>
struct MapOf<std::map<std::string, T>> : std::true_type {
  using Inner = T;
};

template <class T>
Json to_json(const T& value);

class JsonWriter {
 public:
  explicit JsonWriter(Json& out) : out_(out) {}
  template <class T>
  void operator()(const char* name, const T& value, const char*, Values = {}) {
    if constexpr (OptionalOf<T>::value) {
      if (value) out_[name] = api::to_json(*value);
    } else {
      out_[name] = api::to_json(value);
    }
  }

 private:
  Json& out_;
};

template <class T>
Json to_json(const T& value) {
  if constexpr (std::is_same_v<T, WallTime>) {
    return format_time(value);
  } else if constexpr (std::is_same_v<T, Resources> || std::is_same_v<T, JobSpec>) {
    return rubato::to_json(value);
  } else if constexpr (NullableOf<T>::value) {
    return value.value ? api::to_json(*value.value) : Json();
  } else if constexpr (VectorOf<T>::value) {
    Json out = Json::array();
    for (const auto& item : value) out.push_back(api::to_json(item));
    return out;
  } else if constexpr (MapOf<T>::value) {
    Json out = Json::object();
    for (const auto& [key, item] : value) out[key] = api::to_json(item);
    return out;
  } else if constexpr (IsDocument<T>) {
    Json out = Json::object();
    JsonWriter io(out);
    fields(io, const_cast<T&>(value));  // the writer only reads it
    return out;
  } else {
    return value;
  }
}

// What is done to each text that is read, if anything is: a head is not trusted with a terminal.
using EditText = std::string (*)(std::string_view text);

template <class T>
void read_json(const Json& json, T& value, EditText edit);

// Reads without trust: what is absent or of another kind keeps its default, what is not known is passed over.
class JsonReader {
 public:
  JsonReader(const Json& in, EditText edit) : in_(in), edit_(edit) {}
  template <class T>
  void operator()(const char* name, T& value, const char*, Values = {}) {
    const auto found = in_.find(name);
    if (found != in_.end()) read_json(*found, value, edit_);
  }

 private:
  const Json& in_;
  const EditText edit_;
};

inline Resources read_resources(const Json& json) {
  try {
    return resources_from_json(json);
  } catch (const Error&) {
    return {};  // from a newer head, perhaps: shown as nothing rather than not at all
  }
}

template <class T>
void read_json(const Json& json, T& value, EditText edit) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) return;
    value = json.get<std::string>();
    if (edit) value = edit(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (json.is_boolean()) value = json.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    if (json.is_number_integer()) value = json.get<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    if (json.is_number()) value = json.get<T>();
  } else if constexpr (std::is_same_v<T, WallTime>) {
    if (json.is_string()) value = parse_time(json.get<std::string>()).value_or(value);
  } else if constexpr (std::is_same_v<T, Resources>) {
    value = read_resources(json);
  } else if constexpr (std::is_same_v<T, Json>) {
    value = json;
  } else if constexpr (NullableOf<T>::value) {
    if (!json.is_null()) read_json(json, value.value.emplace(), edit);
  } else if constexpr (OptionalOf<T>::value) {
    read_json(json, value.emplace(), edit);
  } else if constexpr (VectorOf<T>::value) {
    if (!json.is_array()) return;
    for (const Json& item : json) {
      if (!IsDocument<typename VectorOf<T>::Inner> || item.is_object()) read_json(item, value.emplace_back(), edit);
    }
  } else if constexpr (MapOf<T>::value) {
    if (!json.is_object()) return;
    for (const auto& [key, item] : json.items()) read_json(item, value[edit ? edit(key) : key], edit);
  } else {
    static_assert(IsDocument<T>);
    if (!json.is_object()) return;
    JsonReader io(json, edit);
    fields(io, value);
  }
}

template <class T>
T from_json(const Json& json, EditText edit = nullptr) {
  T value{};
  read_json(json, value, edit);
  return value;
}

}  // namespace rubato::api
