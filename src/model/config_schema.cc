#include "model/config_schema.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/text.h"

namespace rubato {
namespace {

using nlohmann::ordered_json;

ordered_json properties_under(std::string_view parent);

// A key without a value counts as absent, so that null is always fine.
ordered_json kinds(std::initializer_list<const char*> names) {
  ordered_json out = ordered_json::array();
  for (const char* name : names) out.push_back(name);
  out.push_back("null");
  return out;
}

ordered_json mapping_of(ordered_json values) {
  return {{"type", kinds({"object"})}, {"additionalProperties", std::move(values)}};
}

ordered_json list_of(ordered_json items) { return {{"type", kinds({"array"})}, {"items", std::move(items)}}; }

ordered_json section(std::string_view path, bool open) {
  return {{"type", kinds({"object"})}, {"properties", properties_under(path)}, {"additionalProperties", open}};
}

ordered_json shape_of(const ConfigKey& key) {
  // YAML reads 1.10 and no as other things than text; we take the word as it is written.
  const ordered_json text = {{"type", kinds({"string", "number", "boolean"})}};
  switch (key.type) {
    case KeyType::kText:
      // Ray's templates have `head_node_type: {}` for nothing.
      if (key.path == "head_node_type") return {{"type", kinds({"string", "object"})}};
      return text;
    case KeyType::kShell:
    case KeyType::kHost:
      return text;
    case KeyType::kCount:
      return {{"type", kinds({"integer"})}, {"minimum", 0}};
    case KeyType::kNumber:
      return {{"type", kinds({"number"})}, {"minimum", 0}};
    case KeyType::kInteger:
      return {{"type", kinds({"integer"})}};
    case KeyType::kBool:
      return {{"type", kinds({"boolean"})}};
    case KeyType::kDuration:
      return {{"type", kinds({"string", "number"})}};
    case KeyType::kTexts:
    case KeyType::kCommands:
    case KeyType::kHosts:
      return list_of(text);
    case KeyType::kTextMap:
      return mapping_of(text);
    case KeyType::kResources:
      return mapping_of({{"type", kinds({"number", "string"})}});
    case KeyType::kSection:
      return section(key.path, key.path == "provider");
    case KeyType::kTypes:
      return mapping_of(section("node_types.*", false));
    case KeyType::kOpaque:
      return {{"type", kinds({"object"})}};
    case KeyType::kAny:
      return ordered_json::object();
  }
  return ordered_json::object();
}

ordered_json properties_under(std::string_view parent) {
  ordered_json out = ordered_json::object();
  for (const ConfigKey* key : config_keys_under(parent)) {
    ordered_json shape = shape_of(*key);
    std::string message(key->meaning);
    if (!key->fallback.empty()) message += fmt::format(". Default: {}", key->fallback);
    if (!key->native.empty() && key->era == KeyEra::kRay) message += fmt::format(". In our form: {}", key->native);
    if (!key->advice.empty()) message += fmt::format(". Of old Ray: {}", key->advice);
    shape["description"] = message;
    if (key->era == KeyEra::kLegacy || key->era == KeyEra::kWritten) shape["deprecated"] = true;
    if (key->path == "provider.type") {
      ordered_json types = ordered_json::array();
      for (const std::string_view type : provider_types()) types.push_back(type);
      shape["enum"] = std::move(types);
    }
    out[std::string(key->leaf())] = std::move(shape);
  }
  return out;
}

// Other spellings of the same key.
std::vector<std::string_view> ray_spellings(std::string_view path) {
  std::vector<std::string_view> out;
  for (const ConfigKey& key : config_keys()) {
    if (key.native == path) out.push_back(key.path);
  }
  return out;
}

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", text); }

}  // namespace

ordered_json config_schema() {
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "Rubato cluster file"},
          {"description", "Rubato's form and Ray's, of today and of old. Made by 'rubato config schema'."},
          {"type", "object"},
          {"properties", properties_under("")},
          {"patternProperties", {{"^x-", ordered_json::object()}}},
          {"additionalProperties", false}};
}

std::string explain_key(const ConfigKey& key) {
  std::string out = fmt::format("{}: {}\n  {}\n", key.path, to_string(key.type), key.meaning);
  if (!key.fallback.empty()) out += fmt::format("  default: {}\n", key.fallback);
  if (!key.only.empty())
    out += fmt::format("  for the provider{}: {}\n", key.only.find(' ') == std::string_view::npos ? "" : "s", key.only);
  out += fmt::format("  known to: {}\n", to_string(key.era));
  if (!key.native.empty()) out += fmt::format("  in our form: {}\n", key.native);
  if (!key.advice.empty()) out += fmt::format("  instead: {}\n", key.advice);
  for (const std::string_view other : ray_spellings(key.path)) out += fmt::format("  in Ray's files: {}\n", other);
  if (key.type == KeyType::kSection || key.type == KeyType::kTypes) {
    std::vector<std::string_view> names;
    const std::string_view path = key.type == KeyType::kTypes ? "node_types.*" : key.path;
    for (const ConfigKey* child : config_keys_under(path)) {
      if (child->era == KeyEra::kShared || child->era == KeyEra::kOurs) names.push_back(child->leaf());
    }
    out += fmt::format("  keys: {}\n", join(names, ", "));
  }
  return out;
}

std::string list_keys() {
  std::string out;
  for (const ConfigKey& key : config_keys()) {
    if (key.era == KeyEra::kShared || key.era == KeyEra::kOurs)
      out += fmt::format("{:<46} {}\n", key.path, key.meaning);
  }
  return out;
}

std::string config_keys_markdown() {
  std::string out =
      "# Keys of a cluster file\n\nMade by `make docs` from the table that reads the file. How to use them: "
      "[config.md](config.md).\n\n## Our form\n\nThe last column is Ray's word for it; both work.\n\n"
      "| key | value | default | meaning | in Ray's files |\n|---|---|---|---|---|\n";
  for (const ConfigKey& key : config_keys()) {
    if (key.era != KeyEra::kShared && key.era != KeyEra::kOurs) continue;
    std::vector<std::string> others;
    for (const std::string_view other : ray_spellings(key.path)) others.push_back(code(other));
    std::string meaning = cell(key.meaning);
    if (!key.only.empty()) meaning += fmt::format(" ({})", key.only);
    const std::string ray = key.era == KeyEra::kShared ? "the same" : join(others, ", ");
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.path, cell(to_string(key.type)), cell(key.fallback),
                       meaning, ray);
  }
  out += "\n## Ray's words\n\n| key | value | meaning | in our form |\n|---|---|---|---|\n";
  for (const ConfigKey& key : config_keys()) {
    if (key.era != KeyEra::kRay) continue;
    out +=
        fmt::format("| `{}` | {} | {} | `{}` |\n", key.path, cell(to_string(key.type)), cell(key.meaning), key.native);
  }
  out += "\n## Words of old Ray\n\nThey work, with a warning.\n\n| key | meaning | instead |\n|---|---|---|\n";
  for (const ConfigKey& key : config_keys()) {
    if (key.era == KeyEra::kLegacy)
      out += fmt::format("| `{}` | {} | {} |\n", key.path, cell(key.meaning), cell(key.advice));
  }
  out += "\n## Written by Ray into its own copies\n\nRead and ignored:";
  for (const ConfigKey& key : config_keys()) {
    if (key.era == KeyEra::kWritten) out += fmt::format(" `{}`", key.path);
  }
  return out + ".\n";
}

}  // namespace rubato
