// Words that a person was meant to replace and did not: ${VAR}, {AMI ID}, <project_id>, YOUR_USERNAME.
#pragma once

#include <string_view>

#include "core/yaml.h"
#include "model/finding.h"

namespace rubato {

// Walks the file. ${VAR} and {placeholder} are errors; what Ray's own templates leave (YOUR_..., <...>) is unfilled.
//
// A shell has its own meaning for such words, so that commands and scripts (texts of several lines) are read with more
// care: there ${VAR} is the shell's, and {word} counts only outside quotes.
// `{AMI ID}` is a mapping to YAML; `text`, which the tree was made of, tells it from {AMI ID: null}.
void find_placeholders(const Yaml& document, std::string_view text, Findings& findings);

// For a text that is not YAML, because of a value like {NAME}-dev: notes what begins so. True when there was one at
// or just before `line`, which then needs no other words.
bool find_broken_placeholders(std::string_view text, const std::string& file, size_t line, Findings& findings);

}  // namespace rubato
