// EventLog: one JSON line per event of an agent (`--events FILE`), the record that benchmarks and tests read.
// docs/events.md lists the events.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "world/outlet.h"
#include "world/world.h"

namespace rubato::agent {

class EventLog {
 public:
  // An empty path writes nothing, "-" writes to standard output. With outlets, which outlive it, a write never waits,
  // and one that fails is said once.
  EventLog(World& world, const std::string& path, std::string agent, Outlets* outlets = nullptr);
  void write(std::string_view event, const nlohmann::json& fields);

 private:
  World& world_;
  std::string agent_;
  bool to_console_;
  std::unique_ptr<Appender> file_;
  std::unique_ptr<Outlet> outlet_;
  bool failed_ = false;
};

}  // namespace rubato::agent
