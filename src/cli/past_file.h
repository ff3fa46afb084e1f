// A cluster's history from where it lies: the folder of a cluster, its journal.db, or records as lines of JSON.
#pragma once

#include <string>

#include "simulate/past.h"

namespace rubato::cli {

// Reads a copy: a head that runs is not disturbed. Throws a usage Error that names `path` when it is no journal, a
// damaged one, or one of a newer Rubato.
simulate::Past read_past_file(std::string path);

}  // namespace rubato::cli
