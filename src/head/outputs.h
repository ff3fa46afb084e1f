// OutputStore: what nodes with disks of their own had of jobs' outputs, brought here bit by bit.
//
//   jobs/ID/nodes/NODE.part    what has come so far of the folder as a tar.zst. It outlives connections and heads:
//                              whoever brings it goes on from there
//   jobs/ID/nodes/NODE.draft   being unpacked
//   jobs/ID/nodes/NODE/        whole and durable
#pragma once

#include <map>
#include <string>
#include <vector>

#include "archive/merged_tree.h"
#include "cluster/state.h"
#include "head/offload.h"
#include "world/world.h"

namespace rubato::head {

inline std::string output_folder(const std::string& jobs_folder, const JobId& job) {
  return jobs_folder + "/" + job.value + "/output";
}

// The job's output as it lies under `jobs_folder`: the folder that nodes of this disk write to, and what others
// brought; the first has the last word about a path. Docs: jobs.md, "Several machines".
std::vector<archive::Layer> output_layers(Files& files, const std::string& jobs_folder, const cluster::Job& job);

class OutputStore {
 public:
  OutputStore(World& world, std::string jobs_folder, Offload offload);

  // How much of it is here. Waits while it is being unpacked.
  Task<uint64_t> have(JobId job, NodeId node);

  // Adds what is new of these bytes, which stand at `offset`. Returns how much is here: less than their end when there
  // is a gap before them. Throws when the disk has no room (some is left for the journal): nothing of it is here then.
  uint64_t add(const JobId& job, const NodeId& node, uint64_t offset, std::string_view bytes);

  // All has come: it is checked and unpacked, instead of what the node brought before. False: the bytes are not those
  // of this hash, and nothing of them is here any more. Throws when it cannot be unpacked, as above.
  Task<bool> finish(JobId job, NodeId node, std::string hash, uint64_t content_bytes);

  std::vector<archive::Layer> layers(const cluster::Job& job) const {
    return output_layers(world_.files, folder_, job);
  }

  // The output folder of a job, and what has come of others.
  std::string folder(const JobId& job) const { return output_folder(folder_, job); }

 private:
  using Key = std::pair<JobId, NodeId>;

  std::string place(const JobId& job, const NodeId& node) const;
  void check_room(uint64_t wanted);
  void drop(const JobId& job, const NodeId& node);

  World& world_;
  const std::string folder_;
  std::map<Key, uint64_t> have_;  // of what was asked for by this head
  Chores<Key> unpacking_;
};

}  // namespace rubato::head
