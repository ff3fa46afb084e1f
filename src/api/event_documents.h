// Documents of the journal's records.
#pragma once

#include "api/fields.h"

namespace rubato::api {

struct Event {
  static constexpr const char* kName = "Event";
  uint64_t offset = 0;
  WallTime time{};
  std::string type;
  std::string text;
  Json data;
  std::optional<std::string> job;
  std::optional<std::string> node;
};
template <class Io>
void fields(Io& io, Event& d) {
  io("offset", d.offset, "its place in the journal");
  io("time", d.time, "");
  io("type", d.type, "job-submitted, node-joined, ...: docs/events.md");
  io("text", d.text, "for people");
  io("data", d.data, "by type: docs/events.md");
  io("job", d.job, "");
  io("node", d.node, "");
}

struct Events {
  static constexpr const char* kName = "Events";
  std::vector<Event> events;
};
template <class Io>
void fields(Io& io, Events& d) {
  io("events", d.events, "");
}

}  // namespace rubato::api
