#include "world/journal_chain.h"

#include <fmt/format.h>

#include <array>

#include "core/sha256.h"

namespace rubato {

namespace {

constexpr size_t kChainDigits = 32;  // of SHA-256's 64: against accidents, not against forgers

}  // namespace

std::string chain_start() { return std::string(kChainDigits, '0'); }

std::string chain_next(std::string_view before, uint64_t offset, std::string_view bytes) {
  std::array<char, 8> number;
  for (size_t i = 0; i < number.size(); ++i) number[i] = static_cast<char>(offset >> (8 * i));
  Sha256 hash;
  hash.update(before.empty() ? chain_start() : std::string(before));
  hash.update(std::string_view(number.data(), number.size()));
  hash.update(bytes);
  return hash.hex().substr(0, kChainDigits);
}

std::optional<JournalLoss> find_loss(const JournalNote& note, uint64_t end, std::string_view chain_there) {
  JournalLoss loss;
  loss.last = note.offset;
  loss.epoch = note.epoch;
  if (end < note.offset) {
    loss.first = end + 1;
    loss.cause = end == 0 ? fmt::format("it is empty, and {} records were acknowledged", note.offset)
                          : fmt::format("it ends at record {}, and {} were acknowledged", end, note.offset);
    return loss;
  }
  if (!note.chain.empty() && !chain_there.empty() && chain_there != note.chain) {
    loss.first = 1;
    loss.cause =
        fmt::format("record {} is not the one that was acknowledged: another journal is in its place", note.offset);
    return loss;
  }
  return std::nullopt;
}

std::string records_text(const JournalLoss& loss) {
  if (loss.first > loss.last) return "an unknown number of records";
  return loss.first == loss.last ? fmt::format("record {}", loss.first)
                                 : fmt::format("records {} to {}", loss.first, loss.last);
}

DamagedError loss_error(const JournalLoss& loss, const std::string& journal) {
  const std::string missing = loss.first > loss.last ? "is damaged" : "lacks " + records_text(loss);
  return DamagedError(
      fmt::format("the journal '{}' {}: {}", journal, missing, loss.cause), journal,
      "put it back from a copy, with the file beside it that ends in -wal; or go on without what is missing (jobs that "
      "only "
      "those records told of are forgotten, the damaged journal is kept aside): rubato up --accept-journal-loss");
}

}  // namespace rubato
