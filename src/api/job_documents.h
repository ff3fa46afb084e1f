// Documents of jobs.
#pragma once

#include "api/event_documents.h"
#include "api/reasons.h"

namespace rubato::api {

struct MissingOfRank {
  static constexpr const char* kName = "MissingOfRank";
  int64_t rank = 0;
  uint64_t lines = 0;
  uint64_t bytes = 0;
};
template <class Io>
void fields(Io& io, MissingOfRank& d) {
  io("rank", d.rank, "");
  io("lines", d.lines, "");
  io("bytes", d.bytes, "");
}

struct MissingLines {
  static constexpr const char* kName = "MissingLines";
  uint64_t lines = 0;
  uint64_t bytes = 0;
  std::vector<MissingOfRank> ranks;
};
template <class Io>
void fields(Io& io, MissingLines& d) {
  io("lines", d.lines, "log lines that a node with a full disk could not keep");
  io("bytes", d.bytes, "");
  io("ranks", d.ranks, "");
}

struct JobSummary {
  static constexpr const char* kName = "JobSummary";
  std::string id;
  std::string name;
  std::string phase;
  std::string owner;
  int64_t priority = 0;
  int64_t workers = 0;
  int64_t workers_min = 0;
  int64_t workers_max = 0;
  int64_t workers_step = 1;
  uint64_t generation = 0;
  int64_t restarts_used = 0;
  int64_t max_restarts = 0;
  std::string reason;
  std::optional<WallTime> submitted, started, ended;
  std::optional<int64_t> queue_place;
  std::optional<MissingLines> missing_lines;
};
template <class Io>
void fields(Io& io, JobSummary& d) {
  io("id", d.id, "");
  io("name", d.name, "");
  io("phase", d.phase, "",
     {"queued", "starting", "running", "restarting", "stopping", "succeeded", "failed", "stopped"});
  io("owner", d.owner, "");
  io("priority", d.priority, "");
  io("workers", d.workers, "now");
  io("workers_min", d.workers_min, "");
  io("workers_max", d.workers_max, "");
  io("workers_step", d.workers_step, "it runs on multiples only");
  io("generation", d.generation, "");
  io("restarts_used", d.restarts_used, "");
  io("max_restarts", d.max_restarts, "");
  io("reason", d.reason, "of its phase, for people");
  io("submitted", d.submitted, "");
  io("started", d.started, "");
  io("ended", d.ended, "");
  io("queue_place", d.queue_place, "of a queued one in a list, from 1");
  io("missing_lines", d.missing_lines, "");
}

struct Jobs {
  static constexpr const char* kName = "Jobs";
  std::vector<JobSummary> jobs;
};
template <class Io>
void fields(Io& io, Jobs& d) {
  io("jobs", d.jobs, "those with workers, then the queue in its order, then the ended ones that were asked for");
}

struct Member {
  static constexpr const char* kName = "Member";
  std::string node;
  Nullable<int64_t> rank_first;
  int64_t workers = 0;
  std::string state;
};
template <class Io>
void fields(Io& io, Member& d) {
  io("node", d.node, "");
  io("rank_first", d.rank_first, "null: its workers are leaving");
  io("workers", d.workers, "");
  io("state", d.state, "", {"gathering", "running", "done", "failed", "leaving"});
}

struct Output {
  static constexpr const char* kName = "Output";
  std::string node;
  std::string state;
  uint64_t files = 0;
  uint64_t bytes = 0;
  std::optional<std::string> reason;
};
template <class Io>
void fields(Io& io, Output& d) {
  io("node", d.node, "one with a disk of its own");
  io("state", d.state, "", {"held", "kept", "missing"});
  io("files", d.files, "");
  io("bytes", d.bytes, "");
  io("reason", d.reason, "");
}

struct Checkpoint {
  static constexpr const char* kName = "Checkpoint";
  std::string name;
  uint64_t bytes = 0;
  uint64_t files = 0;
  uint64_t generation = 0;
  std::optional<WallTime> saved;
  std::string node;
  std::string hash;
  std::vector<std::string> copies;
};
template <class Io>
void fields(Io& io, Checkpoint& d) {
  io("name", d.name, "in the checkpoint folder");
  io("bytes", d.bytes, "of its files");
  io("files", d.files, "");
  io("generation", d.generation, "of the workers that wrote it");
  io("saved", d.saved, "when it was finished there");
  io("node", d.node, "that wrote it");
  io("hash", d.hash, "sha256 of the tar.zst that travels");
  io("copies", d.copies, "where it is: head, and nodes");
}

struct Adaptive {
  static constexpr const char* kName = "Adaptive";
  Nullable<int64_t> workers;
  Nullable<int64_t> worthwhile;
  std::string reason;
  std::optional<double> change_cost_s;
  Json profile;
};
template <class Io>
void fields(Io& io, Adaptive& d) {
  io("workers", d.workers, "that it is to have of the nodes that are there; null: not worked out yet");
  io("worthwhile", d.worthwhile, "the most for which the autoscaler adds nodes");
  io("reason", d.reason, "for people");
  io("change_cost_s", d.change_cost_s, "what a change of its size costs it, as measured; before that, as assumed");
  io("profile", d.profile, "what its workers told last, in the names of AdaptDL's hints");
}

struct Job : JobSummary {
  static constexpr const char* kName = "Job";
  Json spec;
  std::vector<Member> members;
  std::optional<std::string> master;
  std::optional<std::string> rerun_of;
  std::optional<std::string> moved;
  std::vector<Json> failures;
  std::vector<Output> outputs;
  std::optional<std::string> exit;
  std::optional<std::string> cause;
  std::optional<QueuePlace> queue;
  std::optional<Adaptive> adaptive;
  std::optional<Reasons> never_fits;
  std::optional<std::vector<Event>> events;
};
template <class Io>
void fields(Io& io, Job& d) {
  fields(io, static_cast<JobSummary&>(d));
  io("spec", d.spec, "what was submitted, as a submission takes it");
  io("members", d.members, "nodes with workers of it");
  io("master", d.master, "host:port, while it runs");
  io("rerun_of", d.rerun_of, "");
  io("moved", d.moved, "how it last got away from a node that had a deadline, and how long each step took");
  io("failures", d.failures, "of the last round: rank, host, exit code or signal, message");
  io("outputs", d.outputs, "");
  io("exit", d.exit, "how it ended, for people");
  io("cause", d.cause, "how it ended");
  io("queue", d.queue, "");
  io("adaptive", d.adaptive, "a job whose workers have told what they found out about it");
  io("never_fits", d.never_fits, "in the answer to a submission: no cluster of this file could hold it");
  io("events", d.events, "the last ones, of GET");
}

// What is kept beside the state, with it.
struct JobDetail : Job {
  static constexpr const char* kName = "JobDetail";
  std::vector<Checkpoint> checkpoints;
};
template <class Io>
void fields(Io& io, JobDetail& d) {
  fields(io, static_cast<Job&>(d));
  io("checkpoints", d.checkpoints, "that the head keeps, the newest first");
}

struct PackageProgress {
  static constexpr const char* kName = "PackageProgress";
  uint64_t have_bytes = 0;
  std::optional<bool> present;
  std::optional<bool> complete;
};
template <class Io>
void fields(Io& io, PackageProgress& d) {
  io("have_bytes", d.have_bytes, "");
  io("present", d.present, "of GET: all of it is here");
  io("complete", d.complete, "of PUT: all of it is here");
}

}  // namespace rubato::api
