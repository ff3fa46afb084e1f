// Index: which parts of a state a decision must look at, so that it need not look at all of it at each turn.
//
// It holds nothing that does not follow from the rest of the state: index_of() makes it from nothing, apply() keeps it,
// and a property test compares the two after each record. It is not written to snapshots. For each node and each job
// it remembers what was counted (its facts); a change takes the old facts out of the sums and puts the new ones in.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/time.h"
#include "model/cluster_spec.h"
#include "model/ids.h"
#include "model/resources.h"

namespace rubato::cluster {

struct Job;
struct Node;
struct State;

// What tells nodes with work on them apart, for who wants to put more there.
struct Lot {
  std::string type;
  std::string zone;
  Market market = Market::kOnDemand;
  Resources free;  // when workers that are being stopped have gone
  auto operator<=>(const Lot&) const = default;
};

// What is free on a usable node: now, and when workers that are being stopped have gone.
struct Room {
  Resources now, soon;
  bool operator==(const Room&) const = default;
};

class Index {
 public:
  // Of an owner's jobs, in thousandths. Sums wrap around: what is added can always be taken away again.
  struct Use {
    int64_t jobs = 0;
    uint64_t cpus = 0, gpus = 0;
    bool operator==(const Use&) const = default;
  };
  struct TypeCount {
    int all = 0;    // in whatever phase
    int limited = 0;  // what max_workers limits: up, coming, or drained to be updated; not the head's
    int up = 0;
    int coming = 0;
    bool operator==(const TypeCount&) const = default;
  };

  // Queued jobs of one owner and one priority, the oldest first.
  using Line = std::set<std::pair<WallTime, JobId>>;
  using Lines = std::map<int, std::map<std::string, Line>, std::greater<>>;  // the highest priority first

  // One that is not among these does nothing by itself, however much time passes: a node that is up or on its way and
  // as the file wants it, or that is being removed; a job that runs on all its seats, waits, or has ended, and has
  // neither a timeout nor finished.
  const std::set<NodeId>& pending_nodes() const { return pending_nodes_; }
  const std::set<JobId>& pending_jobs() const { return pending_jobs_; }
  // Not ended, with MIN below MAX, and with seats.
  const std::set<JobId>& elastic_jobs() const { return elastic_jobs_; }

  const Lines& lines() const { return lines_; }

  const std::map<NodeId, Room>& rooms() const { return rooms_; }          // usable nodes with something free
  const std::map<Resources, int>& sizes() const { return sizes_; }        // usable nodes by what they have
  const std::map<Lot, std::set<NodeId>>& busy() const { return busy_; }   // up, with work on them, not the head's
  const std::set<NodeId>& unassigned() const { return unassigned_; }                // all other nodes
  const std::map<std::string, Use>& used_by() const { return used_by_; }  // by owner: what jobs with seats take
  TypeCount count(const std::string& type) const;
  int limited() const { return limited_; }  // TypeCount::limited of all types
  const std::string& launch_hash_of(const std::string& type) const { return launch_hashes_.at(type); }  // of the file's

  // The state's nodes, jobs or file have changed so; called by apply() when everything else is up to date.
  void update_node(const State& state, const NodeId& id);
  void update_job(const State& state, const JobId& id);
  void update_spec(const State& state);

  bool operator==(const Index&) const = default;

 private:
  struct NodeFacts {
    Lot lot;
    bool up = false, coming = false, limited = false, pending = false, busy = false;
    Resources size;
    Room room;
    bool operator==(const NodeFacts&) const = default;
  };
  struct JobFacts {
    std::string owner;
    bool pending = false, elastic = false, queued = false;
    int priority = 0;      // of a queued one
    WallTime submitted{};  // likewise
    Use use;               // of this job alone
    bool operator==(const JobFacts&) const = default;
  };
  NodeFacts facts_of(const State& state, const Node& node) const;
  bool as_wanted(const State& state, const Node& node) const;
  void add(const NodeId& id, const NodeFacts& facts);
  void take(const NodeId& id, const NodeFacts& facts);
  void enqueue(const JobId& id, const JobFacts& facts);
  void dequeue(const JobId& id, const JobFacts& facts);

  std::map<NodeId, NodeFacts> node_facts_;
  std::map<JobId, JobFacts> job_facts_;
  std::map<std::string, std::string> launch_hashes_;  // by type of the file

  std::set<NodeId> pending_nodes_;
  std::set<JobId> pending_jobs_;
  std::set<JobId> elastic_jobs_;
  Lines lines_;
  std::map<NodeId, Room> rooms_;
  std::map<Resources, int> sizes_;
  std::map<Lot, std::set<NodeId>> busy_;
  std::set<NodeId> unassigned_;
  std::map<std::string, Use> used_by_;
  std::map<std::string, TypeCount> types_;
  int limited_ = 0;
};

Index index_of(const State& state);

}  // namespace rubato::cluster
