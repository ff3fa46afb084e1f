// CheckpointStore: what jobs' scripts have finished in their checkpoint folders, kept as it came, by its hash.
//
//   jobs/ID/checkpoints/index.json     the items: elastic::CheckpointItem. What is not in it does not count
//   jobs/ID/checkpoints/HASH.tar.zst   one item, checked and durable. Nothing of it is ever unpacked here
//   jobs/ID/checkpoints/NODE.part      what has come so far from a node; it outlives connections and heads
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "api/job_documents.h"
#include "elastic/node_wire.h"
#include "head/offload.h"
#include "world/world.h"

namespace rubato::head {

class CheckpointStore {
 public:
  CheckpointStore(World& world, std::string jobs_folder, Offload offload, elastic::CheckpointLimits limits = {});

  // The newest first.
  const std::vector<elastic::CheckpointItem>& items(const JobId& job);

  // A node has this. kKept: so has the head, or it would not keep it; the node is taken note of as a holder.
  Task<elastic::OutputAck> offered(NodeId node, JobId job, elastic::CheckpointItem item);
  // `is_kept` of the answer: it is durable here, and in the index.
  Task<elastic::OutputAck> add(NodeId node, elastic::OutputPart part);

  // Nodes that bring what they hold, and the head has not.
  std::set<NodeId> bringing(const JobId& job) const;
  // These do not any more. Returns the jobs that nobody brings anything of since.
  std::vector<JobId> drop_bringing(const std::function<bool(const NodeId&)>& is_gone);

  // Up to `size_max` bytes. An item that is not here has the size 0.
  Task<elastic::PackagePart> read(elastic::PackageWanted wanted, size_t size_max);

  // Who has said, to this head, that it has the item.
  std::set<NodeId> holders(const JobId& job, const std::string& hash) const;
  // A node that is gone holds nothing.
  void drop_holders(const std::function<bool(const NodeId&)>& is_gone);
  // Jobs that are not known any more are not remembered here either.
  void forget_all_but(const std::function<bool(const JobId&)>& is_known);

 private:
  struct Shelf {
    std::vector<elastic::CheckpointItem> items;
    std::map<std::string, std::set<NodeId>> holders;  // by hash
    std::map<NodeId, std::string> arriving;           // which item the part of a node is of
    std::set<NodeId> bringing;
    std::vector<std::string> garbage;  // files that the next commit removes
  };
  using Key = std::pair<JobId, NodeId>;

  Shelf& shelf(const JobId& job);
  std::string folder(const JobId& job) const { return folder_ + "/" + job.value + "/checkpoints"; }
  std::string part_path(const JobId& job, const NodeId& node) const { return folder(job) + "/" + node.value + ".part"; }
  std::optional<std::string> refusal(uint64_t bytes);
  bool is_wanted(const JobId& job, const elastic::CheckpointItem& item);
  Task<elastic::OutputAck> finish(NodeId node, elastic::OutputPart part);
  Task<void> commit(JobId job, elastic::CheckpointItem item);

  World& world_;
  const std::string folder_;
  const Offload offload_;
  const elastic::CheckpointLimits limits_;
  std::map<JobId, Shelf> shelves_;  // of jobs that were asked for
  Chores<Key> checks_;
  Chores<JobId> commits_;
};

std::vector<api::Checkpoint> checkpoints_document(CheckpointStore& store, const JobId& job);

}  // namespace rubato::head
