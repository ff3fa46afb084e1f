#include "clouds/common/shape_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/text.h"
#include "model/yaml_value.h"

namespace rubato::clouds {
namespace {

using rest::ShapeKind;
using rest::ShapeMember;

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_digits(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return '0' <= c && c <= '9'; });
}

class ShapeCheck {
 public:
  ShapeCheck(const ShapeRules& rules, Findings& findings) : rules_(rules), findings_(findings) {}

  void check_structure(const Yaml& node, std::string_view structure) {
    if (!node.is_mapping()) {
      findings_.error(node, "expected a mapping");
      return;
    }
    for (const Yaml::Entry& entry : node.entries()) {
      if (entry.value.is_null()) continue;
      const std::string key = entry.key.as_string();
      const bool top = structure.empty();
      if (top && contains(rules_.texts, key)) {
        attempt(findings_, [&] { entry.value.as_strings(); });
      } else if (top && contains(rules_.ours, key)) {
        findings_.error(entry.key, fmt::format("{} is decided by Rubato for each machine", key), "leave it out");
      } else if (const ShapeMember* member = member_of(structure, key)) {
        check_member(entry.value, *member);
      } else {
        report_unknown(entry, structure);
      }
    }
  }

 private:
  const ShapeMember* member_of(std::string_view structure, std::string_view name) const {
    for (const ShapeMember& member : rules_.shape) {
      if (member.owner == structure && member.name == name) return &member;
    }
    return nullptr;
  }

  void report_unknown(const Yaml::Entry& entry, std::string_view structure) {
    std::vector<std::string_view> known;
    for (const ShapeMember& member : rules_.shape) {
      if (member.owner == structure) known.push_back(member.name);
    }
    if (structure.empty()) known.insert(known.end(), rules_.texts.begin(), rules_.texts.end());
    const std::string key = entry.key.as_string();
    const auto near = nearest(key, known);
    findings_.error(entry.key, fmt::format("{} does not know \"{}\"", rules_.request, key),
                    near ? fmt::format("did you mean {}?", *near) : "its keys: " + join(known, ", "));
  }

  void check_member(const Yaml& value, const ShapeMember& member) {
    const bool one_in_list = !member.is_list && value.is_sequence() && contains(rules_.in_list, member.name);
    if (!member.is_list && !one_in_list) return check_one(value, member);
    if (!value.is_sequence()) {
      findings_.error(value, fmt::format("{} must be a list", member.name), "write each item with a dash: - ...");
      return;
    }
    for (const Yaml& one : value.items()) check_one(one, member);
  }

  void check_one(const Yaml& value, const ShapeMember& member) {
    switch (member.kind) {
      case ShapeKind::kStructure: return check_structure(value, member.structure);
      case ShapeKind::kTextMap: return check_map(value);
      case ShapeKind::kAny: return;
      case ShapeKind::kText:
      case ShapeKind::kInteger:
      case ShapeKind::kNumber:
      case ShapeKind::kBoolean: return check_value(value, member.kind);
    }
  }

  void check_map(const Yaml& value) {
    if (!value.is_mapping()) {
      findings_.error(value, "expected a mapping");
      return;
    }
    for (const Yaml::Entry& entry : value.entries()) check_value(entry.value, ShapeKind::kText);
  }

  void check_value(const Yaml& value, ShapeKind kind) {
    if (findings_.blames(value)) return;
    if (!value.is_scalar()) {
      findings_.error(value, fmt::format("expected one value, not {}", to_string(value.kind())));
      return;
    }
    const auto read = value_of(value);
    const bool digits = rules_.numbers_as_texts && read.is_string() && is_digits(read.get<std::string>());
    if (kind == ShapeKind::kText && !read.is_string() && !read.is_number()) {
      findings_.error(value, "expected a text", "put it in quotes");
    } else if (kind == ShapeKind::kInteger && !read.is_number_integer() && !digits) {
      findings_.error(value, "expected a whole number");
    } else if (kind == ShapeKind::kNumber && !read.is_number()) {
      findings_.error(value, "expected a number");
    } else if (kind == ShapeKind::kBoolean && !read.is_boolean()) {
      findings_.error(value, "expected true or false");
    }
  }

  const ShapeRules& rules_;
  Findings& findings_;
};

}  // namespace

void check_shape(const Yaml& config, const ShapeRules& rules, Findings& findings) {
  if (config.is_mapping()) ShapeCheck(rules, findings).check_structure(config, "");
}

void warn_of_unknown_machine(const Yaml& type, std::string_view key, bool (*is_known)(std::string_view),
                             Findings& findings) {
  const auto config = type.find("node_config");
  const auto machine = config && config->is_mapping() ? config->find(key) : std::nullopt;
  if (!machine || !machine->is_scalar() || type.find("resources")) return;
  const std::string name = machine->as_string();
  if (name.empty() || is_known(name)) return;
  findings.warning(*machine, fmt::format("what a machine '{}' has is not known here: none is added for jobs", name),
                   "add resources: {CPU: 4, GPU: 1} to the node type, with what it has, and price_per_hour");
}

}  // namespace rubato::clouds
