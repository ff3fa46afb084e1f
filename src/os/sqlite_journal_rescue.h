// Going on with what is left of a damaged SqliteJournalFile, when a person has decided so.
//
//   (1) journal.db and its log are copied; the copy is read as far as it makes sense
//   (2) journal.db.rescued: the longest run of records that a state follows from, and a record that tells of the loss
//   (3) the damaged files go to journal.db.damaged-N, journal.db.rescued becomes journal.db
// (2) ends with a rename: from then on (3) is done again by whoever opens the journal next, until it is complete.
// Until then nothing has changed. Every call may block.
#pragma once

#include <optional>
#include <string>

#include "world/journal_chain.h"

namespace rubato::os {

// Does all of it. `note` as for SqliteJournalFile; `encode` makes the record of the loss, which is the last one of the
// new file. Throws kUnavailable when there is no room for it.
JournalLoss rescue_journal(const std::string& path, const std::string& note, const EncodeLoss& encode);

// Step (3), if one is under way.
void finish_rescue(const std::string& path, const std::string& note);

}  // namespace rubato::os
