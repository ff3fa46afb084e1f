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

}  // namespace rubato::api
