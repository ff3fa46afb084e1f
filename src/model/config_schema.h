// The table of keys as documents: a JSON Schema for editors, words for `rubato config explain`, and Markdown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/config_keys.h"

namespace rubato {

// Draft 2020-12; docs/cluster.schema.json.
nlohmann::ordered_json config_schema();

std::string explain_key(const ConfigKey& key);
std::string list_keys();             // all of our form, one line each
std::string config_keys_markdown();  // docs/config-keys.md

}  // namespace rubato
