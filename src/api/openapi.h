// The API as an OpenAPI 3.0 description, from its endpoints and documents.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "api/fields.h"

namespace rubato::api {

using OrderedJson = nlohmann::ordered_json;

// The schemas that others refer to, by name.
class Components {
 public:
  template <class T>
  OrderedJson schema();

  const std::map<std::string, OrderedJson>& all() const { return all_; }

 private:
  std::map<std::string, OrderedJson> all_;
};

class SchemaWriter {
 public:
  SchemaWriter(Components& components, OrderedJson& properties, OrderedJson& required)
      : components_(components), properties_(properties), required_(required) {}

  template <class T>
  void operator()(const char* name, const T&, const char* about, Values values = {}) {
    OrderedJson schema;
    if constexpr (OptionalOf<T>::value) {
      schema = components_.schema<typename OptionalOf<T>::Inner>();
    } else {
      schema = components_.schema<T>();
      required_.push_back(name);
    }
    // Beside a reference, nothing else counts in OpenAPI 3.0.
    if (!schema.contains("$ref") && *about != '\0') schema["description"] = about;
    if (values.size() > 0) schema["enum"] = values;
    properties_[name] = std::move(schema);
  }

 private:
  Components& components_;
  OrderedJson& properties_;
  OrderedJson& required_;
};

template <class T>
OrderedJson Components::schema() {
  if constexpr (std::is_same_v<T, std::string>) {
    return {{"type", "string"}};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_integral_v<T>) {
    return {{"type", "integer"}};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {{"type", "number"}};
  } else if constexpr (std::is_same_v<T, WallTime>) {
    return {{"type", "string"}, {"format", "date-time"}};
  } else if constexpr (std::is_same_v<T, Resources>) {
    return {{"type", "object"}, {"additionalProperties", {{"type", "number"}}}};
  } else if constexpr (std::is_same_v<T, JobSpec>) {
    return {{"type", "object"}, {"description", "what was submitted; unknown fields of a submission are errors"}};
  } else if constexpr (std::is_same_v<T, Json>) {
    return OrderedJson::object();
  } else if constexpr (NullableOf<T>::value) {
    OrderedJson out = schema<typename NullableOf<T>::Inner>();
    out["nullable"] = true;
    return out;
  } else if constexpr (VectorOf<T>::value) {
    return {{"type", "array"}, {"items", schema<typename VectorOf<T>::Inner>()}};
  } else if constexpr (MapOf<T>::value) {
    return {{"type", "object"}, {"additionalProperties", schema<typename MapOf<T>::Inner>()}};
  } else {
    static_assert(IsDocument<T>);
    if (!all_.contains(T::kName)) {
      all_[T::kName];  // so that one that holds itself ends
      OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
      SchemaWriter io(*this, properties, required);
      T document{};
      fields(io, document);
      OrderedJson out = {{"type", "object"}};
      if (!required.empty()) out["required"] = std::move(required);
      out["properties"] = std::move(properties);
      all_[T::kName] = std::move(out);
    }
    return {{"$ref", std::string("#/components/schemas/") + T::kName}};
  }
}

OrderedJson openapi();

// docs/openapi.yaml.
std::string openapi_yaml();

}  // namespace rubato::api
