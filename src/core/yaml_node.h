// The inside of a Yaml node, shared by the tree (yaml.cc) and its builder (yaml_parse.cc). Include it nowhere else.
#pragma once

#include "core/yaml.h"

namespace rubato {

struct Yaml::Node {
  std::shared_ptr<const std::string> file;
  size_t line = 1;
  size_t column = 1;
  YamlKind kind = YamlKind::kNull;
  bool quoted = false;
  std::string text;  // of a scalar
  std::vector<Yaml> items;
  std::vector<Entry> entries;
  std::map<std::string_view, size_t> index;  // key text (which lives in the entry's key node) to entry

  // Of the expanded tree below and including this node; aliases count in full.
  size_t weight = 1;
  size_t height = 1;
};

// The user's own text for a message, in quotes and cut: it may be a whole file in a block scalar.
std::string shown_in_error(std::string_view text);

}  // namespace rubato
