// Reports of an Outcome: words for a terminal, JSON for programs, a page with plots for a browser.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "simulate/outcome.h"

namespace rubato::simulate {

std::string text_report(const Outcome& outcome);
nlohmann::ordered_json json_report(const Outcome& outcome, bool samples);

// One file without anything from elsewhere: plots are SVG.
std::string html_report(const Outcome& outcome);

// The plots alone, by name ("nodes", "queue", "workers", "cost"): for documents.
std::vector<std::pair<std::string, std::string>> svg_plots(const Outcome& outcome);

// Several outcomes side by side, as a table for people: what changed, by how much.
std::string compare_report(const std::vector<std::pair<std::string, Outcome>>& columns);

}  // namespace rubato::simulate
