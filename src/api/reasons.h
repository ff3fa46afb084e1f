// Documents that say why: what is wanted, what stands against it, what would change it.
#pragma once

#include "api/fields.h"

namespace rubato::api {

struct Obstacle {
  static constexpr const char* kName = "Obstacle";
  std::string text;
  std::optional<std::string> where;
};
template <class Io>
void fields(Io& io, Obstacle& d) {
  io("text", d.text, "what stands against it");
  io("where", d.where, "file:line:column that says so");
}

struct Change {
  static constexpr const char* kName = "Change";
  std::string text;
  std::optional<WallTime> when;
};
template <class Io>
void fields(Io& io, Change& d) {
  io("text", d.text, "what would change it, or what happened");
  io("when", d.when, "");
}

struct Reasons {
  static constexpr const char* kName = "Reasons";
  std::vector<Obstacle> against;
  std::vector<Change> changes;
};
template <class Io>
void fields(Io& io, Reasons& d) {
  io("against", d.against, "");
  io("changes", d.changes, "");
}

struct Decision {
  static constexpr const char* kName = "Decision";
  uint64_t offset = 0;
  std::optional<WallTime> time;
  std::string text;
};
template <class Io>
void fields(Io& io, Decision& d) {
  io("offset", d.offset, "its place in the journal");
  io("time", d.time, "");
  io("text", d.text, "");
}

struct QueuedJob {
  static constexpr const char* kName = "QueuedJob";
  std::string id;
  std::string name;
  std::string owner;
  int64_t priority = 0;
};
template <class Io>
void fields(Io& io, QueuedJob& d) {
  io("id", d.id, "");
  io("name", d.name, "");
  io("owner", d.owner, "");
  io("priority", d.priority, "");
}

struct QueuePlace {
  static constexpr const char* kName = "QueuePlace";
  std::optional<int64_t> place;
  std::optional<int64_t> of;
  std::optional<std::vector<QueuedJob>> ahead;
};
template <class Io>
void fields(Io& io, QueuePlace& d) {
  io("place", d.place, "from 1; absent, as all of this, when it does not wait");
  io("of", d.of, "");
  io("ahead", d.ahead, "the first few");
}

struct Why {
  static constexpr const char* kName = "Why";
  std::string subject;
  std::string phase;
  std::string wanted;
  std::optional<QueuePlace> queue;
  std::string state;
  Decision decision;
  std::vector<Obstacle> against;
  std::optional<std::vector<Obstacle>> others;
  std::vector<Change> changes;
  std::optional<std::vector<Change>> history;
  // Of a node that is gone: its last decision.
  std::optional<uint64_t> offset;
  std::optional<WallTime> time;
  std::optional<std::string> text, kind, node, node_type;
};
template <class Io>
void fields(Io& io, Why& d) {
  io("subject", d.subject, "");
  io("phase", d.phase, "");
  io("wanted", d.wanted, "");
  io("queue", d.queue, "of a job");
  io("state", d.state, "");
  io("decision", d.decision, "");
  io("against", d.against, "");
  io("others", d.others, "of a node: alternatives, and what stood against each");
  io("changes", d.changes, "");
  io("history", d.history, "of a node: what happened to it");
  io("offset", d.offset, "of a node that is gone: its last decision, as in ScaleDecision");
  io("time", d.time, "likewise");
  io("text", d.text, "likewise");
  io("kind", d.kind, "likewise");
  io("node", d.node, "likewise");
  io("node_type", d.node_type, "likewise");
}

}  // namespace rubato::api
