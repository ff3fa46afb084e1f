// Parts of a file that are somebody else's (a cloud's node_config): YAML to JSON, and JSON to YAML that reads back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/yaml.h"

namespace rubato {

// Plain scalars as PyYAML reads them: true and yes are booleans, 12 and 0x1f whole numbers, 1.5 a number. What YAML 1.1
// and 1.2 read in two ways (012, 12:30, 1e5) stays text.
nlohmann::ordered_json value_of(const Yaml& node);

// Block style, two spaces, texts quoted where they must be. value_of(parse(yaml_text(x))) == x.
std::string yaml_text(const nlohmann::ordered_json& value);

}  // namespace rubato
