// Reports of an Outcome: words for a terminal, JSON for programs, a page with plots for a browser.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "simulate/outcome.h"

namespace rubato::simulate {

std::string text_report(const Outcome& outcome);
nlohmann::ordered_json json_report(const Outcome& outcome, bool samples);

// Named outcomes that are put side by side.
using Columns = std::vector<std::pair<std::string, Outcome>>;

// What a page says besides its outcome.
struct PageExtras {
  std::string command;  // that shows the same again; may be empty
  Columns compared;     // what the outcome stands beside; may be empty
  std::string note;     // below that table
};

// One file that fetches nothing: plots are SVG, and the page forbids all but its own style and script.
std::string html_report(const Outcome& outcome, const PageExtras& extras = {});

// The plots alone, by name ("nodes", "queue", "workers", "cost"): for documents.
std::vector<std::pair<std::string, std::string>> svg_plots(const Outcome& outcome);

// Several outcomes side by side, as a table for people: what changed, by how much. Rows of cells; the first of a row is
// its name, the first row has the columns' names.
std::vector<std::vector<std::string>> compare_table(const Columns& columns);
std::string compare_report(const Columns& columns);

// "12 submitted: 11 succeeded, 1 failed".
std::string jobs_text(const Outcome& outcome);
// "1 failed, 2 stopped": of those that have not succeeded.
std::string other_ends_text(const Outcome& outcome);

}  // namespace rubato::simulate
