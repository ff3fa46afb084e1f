// The tables of each version of a SqliteJournalFile, and the checksum of its rows; for the file and for its rescue.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace rubato::os {

// In the file's header: `file journal.db` shows it, and no other program's database is taken for a journal.
inline constexpr uint64_t kJournalApplicationId = 0x52424a4c;  // "RBJL"
inline constexpr int kJournalMode = 0600;                      // commands and environments of jobs are in it

// A table's name and the words that made it. The words are compared exactly: a file with others is not a journal, so
// that nothing which a stranger put into it (a view, a trigger) is ever run.
using JournalSchema = std::map<std::string, std::string>;
const JournalSchema& journal_schema(uint64_t version);

// The offset is part of it: a record in another's place is noticed.
uint64_t journal_checksum(uint64_t offset, std::string_view bytes);

}  // namespace rubato::os
