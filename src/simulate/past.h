// Past: a cluster's own journal as a scenario: the same submissions, stops, file changes and node losses again, under
// the same cluster file or a changed one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulate/outcome.h"
#include "simulate/run.h"
#include "simulate/scenario.h"
#include "world/journal.h"

namespace rubato::simulate {

struct Past {
  Scenario scenario;  // settles, no faults but the losses of the plan
  Plan plan;
  Outcome measured;         // what the journal itself says
  size_t guessed = 0;       // jobs whose work is not known: they never ran, or still do
  size_t losses = 0;        // of nodes
  std::string assumptions;  // for people
};

// `snapshot`: what the records follow, when the journal no longer has its beginning; may be null. Throws a usage Error
// when there is no cluster or no job in it.
Past read_past(const JournalSnapshot* snapshot, const std::vector<JournalRecord>& records, const std::string& file);

// "max_workers=8", "available_node_types.gpu.min_workers=1": sets a value of a cluster file. Throws usage Errors.
std::string changed_file(const std::string& text, const std::string& file, std::string_view change);

// The same past under another file: all versions of it get the changes.
Past changed_past(const Past& past, const std::vector<std::string>& changes);

}  // namespace rubato::simulate
