// CheckpointKeeper: the checkpoint folders of this node's jobs ($RUBATO_CHECKPOINT): what is finished there goes to the
// head in the background; what the head has is there before workers start.
//
//   checkpoints/JOB/         the folder that workers see; it outlives them, and the agent
//   checkpoints/JOB.ledger   what is, or was, in it: elastic::CheckpointLedger
//   copies/HASH.tar.zst      items of other nodes' jobs, held for a head that has lost its disk; HASH.json says which
//   arriving/                what is being fetched
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/scope.h"
#include "elastic/node_wire.h"
#include "node/checkpoint_tracker.h"
#include "node/node_settings.h"
#include "world/world.h"

namespace rubato::node {

class DeliveryLink;
struct Cargo;

std::string checkpoint_folder(const std::string& node_folder, const JobId& job);

class CheckpointKeeper {
 public:
  using Report = std::function<void(const std::string&)>;

  // All outlive it. `wake`: something was kept or restored. `discard`: a folder is out of the way at once.
  CheckpointKeeper(World& world, const NodeSettings& settings, std::function<void()> wake, Report report,
                   std::function<void(const std::string& folder)> discard);
  ~CheckpointKeeper();

  // Workers are about to start, or go on as another generation: what is finished from now on is theirs. `warn` says it
  // in the job's log.
  void begin(const JobId& job, Generation generation, Report warn);
  // The job's workers have ended: all that they have finished is known from now on.
  void end(const JobId& job);

  // All that was finished here is at the head, or the head will not have it.
  bool all_kept(const JobId& job) const;
  // For people: what it waits for. Empty: nothing.
  std::string progress(const JobId& job) const;

  // Whether workers of this generation find all of these here that they should. If not, they are fetched, for as long
  // as it takes, and wake() is called.
  bool restore(const JobId& job, Generation generation, const std::vector<elastic::CheckpointItem>& items);

  // The job has no workers here any more, nor will it soon. What the head could not take, its disk being full, stays
  // until it has: it may be the only copy.
  void forget(const JobId& job);

  // All that the head wants of this node now: jobs that are not in it are forgotten.
  void follow(const elastic::Orders& orders);
  // A head that was not there before may have lost its disk: it is told again what is here.
  void connected(uint64_t head_epoch);

  void start();

 private:
  struct Shelf {
    std::string prefix;  // of names: "" or "adaptdl/"
    std::unique_ptr<FolderWatch> watch;
  };
  struct Arrival {
    std::vector<elastic::CheckpointItem> items;
    std::string problem;
  };
  struct JobPart {
    CheckpointTracker tracker;
    std::vector<Shelf> shelves;  // while workers run
    Generation generation = 0;
    Report warn;
    std::set<std::string> offered;           // to this head, of those that were kept before
    std::map<std::string, Instant> refused;  // by name: when it is tried again
    std::set<std::string> refused_before;    // named in the log
    std::set<std::string> unreadable;        // refused by this node itself: nobody will ever have them
    bool is_left = false;                    // to be forgotten when the head has all that it may want
    std::optional<Arrival> arrival;
    std::map<std::string, int> failed;  // how often an item of this hash did not unpack
    bool dirty = false;                 // the ledger
  };
  struct Copy {
    JobId job;
    elastic::CheckpointItem item;
    bool offered = false;             // to this head
    std::optional<Instant> unwanted;  // since
  };
  struct Load {  // what is to be brought to the head next
    JobId job;
    elastic::CheckpointItem item;
    uint64_t version = 0;
    bool is_copy = false;
  };

  JobPart& part(const JobId& job);
  void adopt_folders();
  void adopt_copies();
  Task<void> watch_folders();
  void take_changes(const JobId& job, JobPart& part, bool ended);
  static void drop_forgotten(JobPart& part);
  Task<void> send_all();
  Task<bool> send_round();
  std::optional<Load> next_load();
  std::optional<Load> next_of(const JobId& job, JobPart& part);
  std::optional<Instant> next_try() const;
  Cargo make_cargo(const Load& load);
  void kept(const Load& load, const elastic::OutputPart& sent);
  void refused(const Load& load, const DeliveryLink& link);
  void forget_if_left(const JobId& job);
  Task<void> save_ledgers();
  Task<void> bring(JobId job);
  Task<void> bring_item(JobId job, elastic::CheckpointItem item);
  Task<void> fetch_copies();
  Task<void> fetch_file(JobId job, elastic::CheckpointItem item, std::string path);
  Task<void> beside(std::function<void()> work);
  void drop_unwanted_copies();
  std::string folder(const JobId& job) const { return checkpoint_folder(settings_.folder, job); }
  std::string ledger_path(const JobId& job) const { return folder(job) + ".ledger"; }
  std::string copy_path(const std::string& hash) const { return settings_.folder + "/copies/" + hash + ".tar.zst"; }

  World& world_;
  const NodeSettings& settings_;
  std::function<void()> wake_;
  Report report_;
  std::function<void(const std::string& folder)> discard_;
  std::map<JobId, std::unique_ptr<JobPart>> parts_;
  std::map<std::string, Copy> copies_;  // that are here, by hash
  std::vector<elastic::CheckpointCopy> wanted_copies_;
  uint64_t head_epoch_ = 0;
  std::string last_problem_;
  std::string last_copy_problem_;
  Event to_send_;
  Event to_save_;
  Event to_watch_;
  Event to_copy_;
  Scope scope_;
};

}  // namespace rubato::node
