// Checkpoints that travel: what a script has finished in its checkpoint folder ($RUBATO_CHECKPOINT). Pure.
//
//   finished on a node ──packed, hashed──▶ kept at the head ──▶ copied to peers
//                                              └──before workers of a later generation start──▶ on each of their nodes
//
// An item is a file or a folder of that folder, or of `adaptdl` in it. A later one of the same name takes its place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/ids.h"

namespace rubato::elastic {

// ADAPTDL_CHECKPOINT_PATH, in the checkpoint folder: what is finished in here is an item too.
inline constexpr std::string_view kAdaptdlFolder = "adaptdl";
inline constexpr size_t kCheckpointItemsMax = 256;  // of one job

struct CheckpointItem {
  std::string name;           // "epoch-3.pt", "adaptdl/checkpoint-7"
  std::string hash;           // sha256 of its tar.zst; empty: it is not packed yet
  uint64_t packed_bytes = 0;  // of that
  uint64_t bytes = 0;         // of its files
  uint64_t files = 0;
  Generation generation = 0;  // of the workers that wrote it
  int64_t saved_us = 0;       // when it was finished, by the wall clock of its node; never twice the same there
  uint64_t sequence = 0;      // in which order the head got those of a job; 0: it has not
  NodeId node;                // who wrote it
  bool operator==(const CheckpointItem&) const = default;
};

struct CheckpointCopy {  // of a job's item, to hold for others
  JobId job;
  CheckpointItem item;
};

// Whether it may be the name of an item: one component, or one in `adaptdl`; printable UTF-8; none that scripts use for
// what is not finished (".x", "_x", "x.tmp", "x~").
bool is_checkpoint_name(std::string_view name);

// Workers of a later generation went on from what the head had: what an earlier one brings late is older. So is what
// came late because a newer one was sent first.
bool is_newer(const CheckpointItem& a, const CheckpointItem& b);

struct CheckpointLimits {
  size_t keep = 3;
  uint64_t bytes_max = uint64_t{256} << 30;  // packed, of one job; the newest item is kept in any case
};

// What is kept of these, the newest first: of each name the newest; and an item goes when, for each number in its name,
// `keep` newer ones differ from it in that number only. So epoch-1.pt goes when there are epoch-2.pt to epoch-4.pt; but
// the shards of an epoch stay together, and best.pt stays.
std::vector<CheckpointItem> retained(std::vector<CheckpointItem> items, const CheckpointLimits& limits);

// What one node has, or had, of a job's items, by name.
struct CheckpointEntry {
  std::string hash;  // empty: finished here, and not at the head yet
  Generation generation = 0;
  int64_t saved_us = 0;
  bool operator==(const CheckpointEntry&) const = default;
};
using CheckpointLedger = std::map<std::string, CheckpointEntry>;

// Which of the head's items a node must get before workers of `generation` start there. Not what these write
// themselves; not what was here once, and was removed by the script; not what is newer here.
std::vector<CheckpointItem> missing_items(const std::vector<CheckpointItem>& kept, const CheckpointLedger& here,
                                          Generation generation);

struct PeerCandidate {
  NodeId node;
  bool on_head_machine = false;  // it goes when that one goes
  bool works_on_it = false;
};
// Who is to hold copies of a job's items: on other machines than the head if there are any, then on nodes without
// workers of the job; always the same ones for the same nodes, and few change when a node comes or goes.
std::vector<NodeId> choose_peers(const JobId& job, std::vector<PeerCandidate> candidates, size_t count);

}  // namespace rubato::elastic
