// What of a machine an agent needs whose workers change their group in place (docs/training.md): the folder in which
// plans and reports lie, and the server in which the members of a generation meet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace rubato {

// $RUBATO_PLAN_DIR of the workers of one agent; removed with it.
class PlanBoard {
 public:
  virtual ~PlanBoard() = default;
  virtual const std::string& path() const = 0;
  // The newest plan; workers see it whole or not at all. Generations grow. Throws Error when the disk is full.
  virtual void publish(uint64_t generation, const std::string& plan) = 0;
  // The newest report of a worker; nullopt: it has made none.
  virtual std::optional<std::string> report(const std::string& worker) = 0;
};

// Closes its port when it goes.
class MeetingStore {
 public:
  virtual ~MeetingStore() = default;
  virtual uint16_t port() const = 0;
};

class InPlaceHost {
 public:
  virtual ~InPlaceHost() = default;
  // `on_report` is called from the loop when a worker may have reported something new. Throws Error.
  virtual std::unique_ptr<PlanBoard> make_board(std::function<void()> on_report) = 0;
  // Serves python/rubato/_store.py's protocol to whoever knows the token, at loopback only or everywhere. Throws Error.
  virtual std::unique_ptr<MeetingStore> open_store(const std::string& token, bool loopback) = 0;
};

}  // namespace rubato
