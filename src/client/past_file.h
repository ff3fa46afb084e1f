// A cluster's history from where it lies: the folder of a cluster, its journal.db, or records as lines of JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulate/past.h"
#include "world/journal.h"

namespace rubato::cli {

// Reads a copy: a head that runs is not disturbed. Throws a usage Error that names `path` when it is no journal, a
// damaged one, or one of a newer Rubato.
simulate::Past read_past_file(std::string path);

// The records themselves, of a cluster's folder or its journal.db. `snapshot`: what they follow when the journal no
// longer has its beginning.
struct PastJournal {
  std::vector<JournalRecord> records;
  std::optional<JournalSnapshot> snapshot;
};
PastJournal read_past_journal(std::string path);

// The same of a cluster that keeps its journal in etcd, "etcd://HOST:PORT,...". Disturbs no head.
PastJournal read_past_etcd(const std::string& store, const std::string& cluster);

}  // namespace rubato::cli
