#include "aws/params.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "aws/run_instances_shape.h"
#include "core/error.h"
#include "core/text.h"

namespace rubato::aws {
namespace {

using nlohmann::json;

Error bad_key(const std::string& path, const std::string& why, std::string hint) {
  return Error(ErrorCode::kUsage, fmt::format("node_config.{}: {}", path, why), "", std::move(hint));
}

std::string scalar_text(const json& value, ShapeKind kind, const std::string& path) {
  switch (kind) {
    case ShapeKind::kText:
      if (value.is_string()) return value.get<std::string>();
      if (value.is_number_integer()) return std::to_string(value.get<int64_t>());  // YAML reads 1234 as a number
      throw bad_key(path, "must be text", "put it in quotes");
    case ShapeKind::kInteger:
      if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
      throw bad_key(path, "must be a whole number", "");
    case ShapeKind::kNumber:
      if (value.is_number()) return value.dump();
      throw bad_key(path, "must be a number", "");
    case ShapeKind::kBoolean:
      if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
      throw bad_key(path, "must be true or false", "");
    case ShapeKind::kTextMap:
    case ShapeKind::kAny:  // AWS has neither
    case ShapeKind::kStructure: break;
  }
  throw bad_key(path, "must be a mapping", "");
}

void flatten(const json& value, std::string_view structure, const std::string& wire, const std::string& path,
             Params& out);

void flatten_member(const json& value, const ShapeMember& member, const std::string& wire, const std::string& path,
                    Params& out) {
  if (member.kind == ShapeKind::kStructure) {
    flatten(value, member.structure, wire + ".", path + ".", out);
  } else {
    out.emplace_back(wire, scalar_text(value, member.kind, path));
  }
}

void flatten(const json& value, std::string_view structure, const std::string& wire, const std::string& path,
             Params& out) {
  if (!value.is_object()) throw bad_key(path.substr(0, path.size() - (path.empty() ? 0 : 1)), "must be a mapping", "");
  for (const auto& [key, each] : value.items()) {
    const ShapeMember* found = nullptr;
    std::vector<std::string_view> known;
    for (const ShapeMember& member : run_instances_shape()) {
      if (member.owner != structure) continue;
      known.push_back(member.name);
      if (member.name == key) found = &member;
    }
    if (found == nullptr) {
      const auto near = nearest(key, known);
      throw bad_key(path + key, "EC2 does not know it", near ? "did you mean " + *near + "?" : "see RunInstances");
    }
    if (each.is_null()) continue;
    const std::string name = wire + std::string(found->wire);
    if (!found->is_list) {
      flatten_member(each, *found, name, path + key, out);
      continue;
    }
    if (!each.is_array()) throw bad_key(path + key, "must be a list", "");
    for (size_t i = 0; i < each.size(); ++i) {
      flatten_member(each[i], *found, fmt::format("{}.{}", name, i + 1), fmt::format("{}{}[{}]", path, key, i), out);
    }
  }
}

}  // namespace

void add(Params& params, std::string name, std::string_view value) {
  if (!value.empty()) params.emplace_back(std::move(name), value);
}

void add_list(Params& params, std::string_view name, const std::vector<std::string>& values) {
  for (size_t i = 0; i < values.size(); ++i) params.emplace_back(fmt::format("{}.{}", name, i + 1), values[i]);
}

void add_filters(Params& params, const std::vector<Filter>& filters) {
  for (size_t i = 0; i < filters.size(); ++i) {
    params.emplace_back(fmt::format("Filter.{}.Name", i + 1), filters[i].name);
    add_list(params, fmt::format("Filter.{}.Value", i + 1), filters[i].values);
  }
}

void add_tag_specification(Params& params, int number, std::string_view resource, const Tags& tags) {
  if (tags.empty()) return;
  const std::string prefix = fmt::format("TagSpecification.{}", number);
  params.emplace_back(prefix + ".ResourceType", resource);
  for (size_t i = 0; i < tags.size(); ++i) {
    params.emplace_back(fmt::format("{}.Tag.{}.Key", prefix, i + 1), tags[i].first);
    params.emplace_back(fmt::format("{}.Tag.{}.Value", prefix, i + 1), tags[i].second);
  }
}

Params run_instances_params(const json& config) {
  Params out;
  flatten(config, "", "", "", out);
  return out;
}

}  // namespace rubato::aws
