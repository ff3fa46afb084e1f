// read_file_modes: `defaultMode: 0400` of a volume. kubectl and Ray read octal; our YAML keeps as text what YAML 1.1
// and 1.2 read in two ways, and the API server refuses text there. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace rubato::kubernetes {

// Of all lists of volumes in the document: `defaultMode` and `mode` that are octal text become numbers.
void read_file_modes(nlohmann::json& document);

}  // namespace rubato::kubernetes
