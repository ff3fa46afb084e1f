// CheckpointTracker: what is finished in one job's checkpoint folder, from what happens to the names in it. Pure.
//
//   (new name) ──renamed into place──▶ FINISHED ──the head has it──▶ KEPT
//        │                              ▲  │ written to                │ renamed over: FINISHED again
//        └──written──▶ IN PLACE ────────┘◀─┘                           ▼
//                       named once in a warning, never copied          removed by the script: remembered as KEPT, so
//                       that
//                                                                      it is not brought back
// A job may finish one file a minute for months: of more than kLedgerMax names those that a head would keep are
// remembered (elastic::retained), and the others are as if they had never been.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/time.h"
#include "elastic/checkpoints.h"
#include "world/folder_watch.h"

namespace rubato::node {

class CheckpointTracker {
 public:
  static constexpr size_t kLedgerMax = 1024;

  explicit CheckpointTracker(elastic::CheckpointLedger ledger = {});

  // Something has happened to an item's name ("adaptdl/checkpoint-7"), while workers of this generation ran.
  void apply(FolderWatch::Kind kind, const std::string& name, Generation generation, Instant now, WallTime wall);

  // Not at the head yet; the newest first: an older one may be removed before its turn comes.
  std::vector<std::string> finished() const;
  // Changes whenever something happens to the name; 0 of one that is not remembered.
  uint64_t version(const std::string& name) const;

  // The head has it, unless it has changed since that version.
  void kept(const std::string& name, uint64_t version, const std::string& hash);
  // It came from the head.
  void restored(const elastic::CheckpointItem& item);
  // It cannot be sent, or the head will not have it: as if it were not finished.
  void give_up(const std::string& name, uint64_t version);

  // Written in place, not touched for a while or `ended` (no worker is left), and not named before.
  std::vector<std::string> take_warnings(Instant now, bool ended);

  const elastic::CheckpointLedger& ledger() const { return ledger_; }

 private:
  void forget_old();

  elastic::CheckpointLedger ledger_;
  std::map<std::string, uint64_t> versions_;
  std::map<std::string, Instant> in_place_;  // by name: when it was last written to
  std::set<std::string> warned_;
  uint64_t count_ = 0;
  int64_t saved_us_ = 0;  // of the newest: clocks may be set back
};

}  // namespace rubato::node
