// Applier: what each event does to the state. apply.cc has the cluster and its nodes, apply_jobs.cc the jobs.
#pragma once

#include "cluster/reindex.h"
#include "cluster/state.h"

namespace rubato::cluster {

// Sizes of adaptive jobs are worked out anew so long after nodes or jobs have changed.
inline constexpr Duration kResizeSoon = 1s;

struct Applier {
  State& state;
  const uint64_t offset;
  const WallTime time;

  void operator()(const HeadStarted&);
  void operator()(const ClusterConfigured&);
  void operator()(const ShutdownRequested&);
  void operator()(const JournalLost&);
  void operator()(const NodeRequested&);
  void operator()(const NodeStepped&);
  void operator()(const NodeUpdating&);
  void operator()(const NodeRefreshing&);
  void operator()(const NodeRefreshed&);
  void operator()(const NodeCreated&);
  void operator()(const NodeFailed&);
  void operator()(const NodeJoined&);
  void operator()(const NodeLost&);
  void operator()(const NodeDraining&);
  void operator()(const NodeKept&);
  void operator()(const NodeRemoving&);
  void operator()(const NodeGone&);
  void operator()(const StrayFound&);
  void operator()(const ResourcesRequested&);
  void operator()(const ScaleHeld&);
  void operator()(const JobSubmitted&);
  void operator()(const JobHeld&);
  void operator()(const JobPlaced&);
  void operator()(const RestartCharged&);
  void operator()(const JobStarted&);
  void operator()(const SeatFailed&);
  void operator()(const SeatDone&);
  void operator()(const SeatVacated&);
  void operator()(const CheckpointMissed&);
  void operator()(const OutputKept&);
  void operator()(const OutputMissing&);
  void operator()(const JobProfiled&);
  void operator()(const JobSized&);
  void operator()(const JobStopping&);
  void operator()(const JobEnded&);

 private:
  Job* job_at(const JobId& id) {
    const auto it = state.jobs.find(id);
    return it == state.jobs.end() ? nullptr : &it->second;
  }
  void note_uptime(Job& job);
  void note_holding(Job& job, bool in_place);
  void note_break(Job& job, bool in_place);
  void note_beside(Job& job);
  void note_change_cost(Job& job, bool in_place) const;
  void note_devices(const Job& job);

  Output* output_at(const JobId& id, const NodeId& node);
  void lose_outputs(const Node& node);

  template <class Change>
  void change(const JobId& id, Change change) {
    Job* job = job_at(id);
    if (!job || ended(job->phase)) return;
    const Whereabouts before{job->seats, job->leaving};
    change(*job);
    reindex(state, *job, before);
  }

  // The same for what leaves its phase and its seats as they are.
  template <class Change>
  void note(const JobId& id, Change change) {
    Job* job = job_at(id);
    if (!job || ended(job->phase)) return;
    change(*job);
    state.index.update_job(state, id);
  }

  void resize_in(Duration wait);
  void set_failure_pending(Job& job, bool pending);
  void shun(Job& job, const NodeId& node);
  void decided(Job& job, const Reasons& reasons);
  void move(Node& node, NodePhase phase, const std::string& reason);
  void lose(Node& node, const std::string& reason, bool young);
  void begin_evacuations(const Node& node);
  void note_cut_off(const Node& node);
  void forget_cut_off(const NodeId& node);
  void forget_cut_off(Job& job);
  void drop_workers(const Node& node);
  void forget_oldest();
};

}  // namespace rubato::cluster
