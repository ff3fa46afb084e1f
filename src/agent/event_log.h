// EventLog: one JSON line per event of an agent (`--events FILE`), the record that benchmarks and tests read.
// docs/events.md lists the events.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "world/world.h"

namespace rubato::agent {

class EventLog {
 public:
  // An empty path writes nothing, "-" writes to standard output.
  EventLog(World& world, const std::string& path, std::string agent);
  void write(std::string_view event, const nlohmann::json& fields);

 private:
  World& world_;
  std::string agent_;
  bool to_console_;
  std::unique_ptr<Appender> file_;
};

}  // namespace rubato::agent
