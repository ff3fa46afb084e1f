#include "api/openapi.h"

#include <fmt/format.h>

#include "api/endpoints.h"
#include "core/text.h"
#include "model/limits.h"

namespace rubato::api {

namespace {

std::string size_text(size_t bytes) {
  return bytes >= size_t{1} << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

std::string description() {
  return fmt::format(
      "What the `rubato` command line uses. Every path but /healthz needs `Authorization: Bearer TOKEN`; the token is "
      "the one line of the file `token` in the cluster's folder. Times are RFC 3339, durations are seconds (`*_s`). "
      "A path or a field is never taken away within v1; new ones may come. Bodies have bounds: {} for a cluster file "
      "and for requests of resources, {} for a job and for a part of a package, {} for the rest; one list or object "
      "has at most {} entries (400), a body that is longer is 413. 429 and 503 with a Retry-After header mean that "
      "nothing was begun: ask again after so many seconds.",
      size_text(kClusterFileBodyMax), size_text(kJobBodyMax), size_text(kPlainBodyMax), kRequestBounds.entries_max);
}

OrderedJson parameters_of(const Endpoint& endpoint) {
  OrderedJson out = OrderedJson::array();
  for (const std::string_view part : split(endpoint.path, '/')) {
    if (part.starts_with('{'))
      out.push_back({{"name", part.substr(1, part.size() - 2)},
                     {"in", "path"},
                     {"required", true},
                     {"schema", {{"type", "string"}}}});
  }
  for (const Parameter& one : endpoint.query) {
    OrderedJson schema;
    switch (one.kind) {
      case Parameter::Kind::kInteger:
        schema = {{"type", "integer"}};
        break;
      case Parameter::Kind::kBoolean:
        schema = {{"type", "boolean"}};
        break;
      case Parameter::Kind::kTime:
        schema = {{"type", "string"}, {"format", "date-time"}};
        break;
    }
    OrderedJson parameter = {{"name", one.name}, {"in", "query"}, {"schema", std::move(schema)}};
    if (!one.about.empty()) parameter["description"] = one.about;
    out.push_back(std::move(parameter));
  }
  return out;
}

OrderedJson json_content(OrderedJson schema) {
  OrderedJson media = OrderedJson::object();
  media["schema"] = std::move(schema);
  OrderedJson out = OrderedJson::object();
  out["application/json"] = std::move(media);
  return out;
}

OrderedJson operation(const Endpoint& endpoint, Components& components) {
  OrderedJson out = {{"summary", endpoint.summary}};
  if (endpoint.is_open) out["security"] = OrderedJson::array();
  if (OrderedJson parameters = parameters_of(endpoint); !parameters.empty()) out["parameters"] = std::move(parameters);
  if (endpoint.body) out["requestBody"]["content"] = json_content(endpoint.body(components));
  for (const Answer& one : endpoint.answers) {
    OrderedJson response = {{"description", one.about}};
    if (one.schema) response["content"] = json_content(one.schema(components));
    out["responses"][std::to_string(one.status)] = std::move(response);
  }
  return out;
}

// Plain YAML of JSON: blocks for what is not empty; strings in quotes, as in JSON, which YAML reads.
void write_yaml(const OrderedJson& value, size_t depth, std::string& out) {
  const std::string margin(2 * depth, ' ');
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, item] : value.items()) {
      const bool is_plain = key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") == key.npos;
      out += fmt::format("{}{}:", margin, is_plain ? key : OrderedJson(key).dump());
      const bool is_block = item.is_structured() && !item.empty();
      out += is_block ? "\n" : " ";
      write_yaml(item, depth + 1, out);
    }
  } else if (value.is_array() && !value.empty()) {
    for (const OrderedJson& item : value) {
      if (item.is_structured() && !item.empty()) {
        std::string block;
        write_yaml(item, depth + 1, block);
        block[2 * depth] = '-';
        out += block;
      } else {
        out += margin + "- ";
        write_yaml(item, depth + 1, out);
      }
    }
  } else {
    out += value.dump() + "\n";
  }
}

}  // namespace

OrderedJson openapi() {
  Components components;
  OrderedJson paths = OrderedJson::object();
  for (const Endpoint& endpoint : endpoints())
    paths[endpoint.path][to_lower(endpoint.method)] = operation(endpoint, components);
  OrderedJson schemas = OrderedJson::object();
  for (const auto& [name, schema] : components.all()) schemas[name] = schema;
  OrderedJson out;
  out["openapi"] = "3.0.3";
  out["info"] = {{"title", "The head of a Rubato cluster"}, {"version", "v1"}, {"description", description()}};
  out["servers"] =
      OrderedJson::array({{{"url", "http://127.0.0.1:PORT"},
                           {"description", "host and port are in `head/head.json` of the cluster's folder"}}});
  out["security"] = OrderedJson::array({{{"token", OrderedJson::array()}}});
  out["paths"] = std::move(paths);
  out["components"]["securitySchemes"]["token"] = {{"type", "http"}, {"scheme", "bearer"}};
  out["components"]["schemas"] = std::move(schemas);
  return out;
}

std::string openapi_yaml() {
  std::string out = "# Made by `rubato docs --openapi > docs/openapi.yaml` from src/api; change it there.\n";
  write_yaml(openapi(), 0, out);
  return out;
}

}  // namespace rubato::api
