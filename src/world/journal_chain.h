// The chain that ties a journal's records together, and the note of how far it goes: the rules, for all Journals.
//
//   chain(n) = hash(chain(n - 1), n, bytes of n)        before the first chained record: chain_start()
//
// A record that is changed, missing, or in another's place breaks the chain behind it. A tail that is cut breaks
// nothing: what is left is a whole, shorter journal. So the end is noted outside of the journal as well:
//
//   commit (durable) ──▶ note {offset, chain, epoch} ──▶ the append is answered
//
// The note is written after the commit is durable and before the answer leaves:
// - It is never ahead of what is durable, so a record that nobody was told of may be missing after a crash (a torn
//   tail, a commit under way) without a refusal. It may lag by the one commit that was not answered yet.
// - It covers every answered record, whichever process is killed, as the kernel has it by then.
// - It is not synced with each commit, which would halve the commits a second (each sync costs the same): it is synced
//   when the last sync is kNoteSyncEvery old, and at the next check() when nothing follows. After a *power cut* it may
//   therefore lag by what was answered in the last second or so. Those records themselves were synced before they were
//   answered: a power cut alone loses none. Unnoticed stays only a power cut *and*, before the next start, a second
//   fault that takes just those records; the next start notes the end anew.
//
// Records of a journal that is older than the chain have an empty chain; it begins at the first new one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/time.h"

namespace rubato {

inline constexpr Duration kNoteSyncEvery = 200ms;

// 32 hexadecimal digits.
std::string chain_start();
std::string chain_next(std::string_view before, uint64_t offset, std::string_view bytes);

struct JournalNote {
  uint64_t offset = 0;  // of the last record that is durable
  std::string chain;    // at it; empty: it is older than the chain
  uint64_t epoch = 0;   // of its writer: not less than the epoch of any head that used the journal
  bool operator==(const JournalNote&) const = default;
};

// Records that were durable and are not there any more.
struct JournalLoss {
  uint64_t first = 0, last = 0;  // first > last: it is not known how many, if any
  std::string cause;
  uint64_t epoch = 0;   // of the note
  std::string kept_in;  // where the damaged journal was put aside; empty: nowhere
};

// What was kept is not whole, and a person must decide how to go on: a journal that is opened so as to accept that
// reacts to it.
class DamagedError : public Error {
 public:
  DamagedError(std::string message, std::string where, std::string hint)
      : Error(ErrorCode::kFailed, std::move(message), std::move(where), std::move(hint)) {}
};

// Makes the record that tells of a loss.
using EncodeLoss = std::function<std::string(const JournalLoss& loss)>;

// What a journal that ends at `end` lacks by its note; `chain_there`: its chain at the note's offset, empty if it does
// not know. nullopt: nothing.
std::optional<JournalLoss> find_loss(const JournalNote& note, uint64_t end, std::string_view chain_there);

// With what is missing and how to go on. `journal`: what people call it, a path or a key.
DamagedError loss_error(const JournalLoss& loss, const std::string& journal);

// "record 7", "records 7 to 9"
std::string records_text(const JournalLoss& loss);

}  // namespace rubato
