#include "agent/event_log.h"

#include <nlohmann/json.hpp>

namespace rubato::agent {

EventLog::EventLog(World& world, const std::string& path, std::string agent, Outlets* outlets)
    : world_(world), agent_(std::move(agent)), to_console_(path == "-") {
  if (path.empty() || to_console_) return;
  if (outlets) {
    outlet_ = outlets->open(path);
  } else {
    file_ = world.files.open_append(path);
  }
}

void EventLog::write(std::string_view event, const nlohmann::json& fields) {
  if (!file_ && !outlet_ && !to_console_) return;
  nlohmann::ordered_json line;
  line["time"] = format_time(world_.clock.wall());
  line["mono"] = to_seconds(world_.clock.now().time_since_epoch());
  line["agent"] = agent_;
  line["event"] = event;
  for (const auto& [key, value] : fields.items()) line[key] = value;
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (to_console_) {
    world_.console.out(text);
  } else if (file_) {
    file_->append(text);
  } else {
    outlet_->write(text);
    if (!outlet_->failure().empty() && !std::exchange(failed_, true)) {
      world_.console.err("rubato: no more events: " + outlet_->failure() + "\n");
    }
  }
}

}  // namespace rubato::agent
