// Documents of a cluster and its nodes.
#pragma once

#include "api/job_documents.h"
#include "api/scale_documents.h"

namespace rubato::api {

struct Node {
  static constexpr const char* kName = "Node";
  std::string id;
  std::string type;
  bool head = false;
  std::string phase;
  std::string step;
  std::string detail;
  bool updating = false;
  WallTime since{};
  double age_s = 0;
  std::string address;
  std::string host;
  Resources resources;
  Resources used;
  std::vector<std::string> jobs;
  std::string why;
  std::optional<WallTime> deadline;
};
template <class Io>
void fields(Io& io, Node& d) {
  io("id", d.id, "");
  io("type", d.type, "of the cluster file");
  io("head", d.head, "the head's own machine");
  io("phase", d.phase, "", {"requested", "starting", "up", "lost", "draining", "removing"});
  io("step", d.step, "of its set-up");
  io("detail", d.detail, "of that step");
  io("updating", d.updating, "its files or its set-up are being renewed");
  io("since", d.since, "of this phase");
  io("age_s", d.age_s, "");
  io("address", d.address, "");
  io("host", d.host, "");
  io("resources", d.resources, "");
  io("used", d.used, "");
  io("jobs", d.jobs, "ids");
  io("why", d.why, "");
  io("deadline", d.deadline, "it drains: its machine goes then, or a person wants it empty by then");
}

struct Drain {
  static constexpr const char* kName = "Drain";
  std::optional<double> deadline_s;
};
template <class Io>
void fields(Io& io, Drain& d) {
  io("deadline_s", d.deadline_s, "from now: its workers are gone by then, saved or not");
}

struct Nodes {
  static constexpr const char* kName = "Nodes";
  std::vector<Node> nodes;
};
template <class Io>
void fields(Io& io, Nodes& d) {
  io("nodes", d.nodes, "");
}

struct Supervisor {
  static constexpr const char* kName = "Supervisor";
  std::string kind;
  int64_t pid = 0;
  int64_t restarts = 0;
  std::string last_end;
};
template <class Io>
void fields(Io& io, Supervisor& d) {
  io("kind", d.kind, "who starts the head again: rubato, systemd, or none");
  io("pid", d.pid, "");
  io("restarts", d.restarts, "");
  io("last_end", d.last_end, "of a head: \"signal 9\"");
}

struct Head {
  static constexpr const char* kName = "Head";
  int64_t pid = 0;
  std::string version;
  uint64_t epoch = 0;
  std::optional<WallTime> since;
  std::optional<Supervisor> supervisor;
};
template <class Io>
void fields(Io& io, Head& d) {
  io("pid", d.pid, "");
  io("version", d.version, "");
  io("epoch", d.epoch, "how many heads this cluster has had");
  io("since", d.since, "");
  io("supervisor", d.supervisor, "");
}

struct JournalEnd {
  static constexpr const char* kName = "JournalEnd";
  uint64_t offset = 0;
};
template <class Io>
void fields(Io& io, JournalEnd& d) {
  io("offset", d.offset, "of the last record");
}

struct Cluster {
  static constexpr const char* kName = "Cluster";
  std::string name;
  Head head;
  WallTime time{};
  bool shutting_down = false;
  JournalEnd journal;
};
template <class Io>
void fields(Io& io, Cluster& d) {
  io("name", d.name, "");
  io("head", d.head, "");
  io("time", d.time, "of this document");
  io("shutting_down", d.shutting_down, "");
  io("journal", d.journal, "");
}

struct Totals {
  static constexpr const char* kName = "Totals";
  Resources resources;
  Resources used;
  uint64_t queued = 0;
  int64_t running = 0;
};
template <class Io>
void fields(Io& io, Totals& d) {
  io("resources", d.resources, "of all usable nodes");
  io("used", d.used, "");
  io("queued", d.queued, "jobs");
  io("running", d.running, "jobs");
}

struct Status {
  static constexpr const char* kName = "Status";
  Cluster cluster;
  std::vector<Node> nodes;
  std::vector<JobSummary> jobs;
  Totals totals;
  Autoscaler autoscaler;
  std::vector<Event> events;
};
template <class Io>
void fields(Io& io, Status& d) {
  io("cluster", d.cluster, "");
  io("nodes", d.nodes, "");
  io("jobs", d.jobs, "those that have not ended, and the last ten that have");
  io("totals", d.totals, "");
  io("autoscaler", d.autoscaler, "");
  io("events", d.events, "the last few, the oldest first");
}

struct Health {
  static constexpr const char* kName = "Health";
  bool ok = true;
};
template <class Io>
void fields(Io& io, Health& d) {
  io("ok", d.ok, "");
}

// Of an action that has begun.
struct Accepted {
  static constexpr const char* kName = "Accepted";
};
template <class Io>
void fields(Io&, Accepted&) {}

}  // namespace rubato::api
