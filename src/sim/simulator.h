// Simulator: virtual time for a whole simulation. One thread, one seed, one order of events.
//
// A step is: take the earliest timer, move time to it, fire it, resume every coroutine that became ready, call the
// invariant hook. Everything one machine does to another travels by a timer, so a hook sees no half-done event.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/hash.h"
#include "core/loop.h"
#include "core/random.h"
#include "core/time.h"

namespace rubato::sim {

uint64_t hash_of(std::string_view bytes);

// A Timed that calls a member function: no allocation, no std::function.
template <class T>
class Due final : public Timed {
 public:
  Due(T& owner, void (T::*call)()) : owner_(owner), call_(call) {}
  void due() override { (owner_.*call_)(); }

 private:
  T& owner_;
  void (T::*call_)();
};

enum class EventKind {
  kProgram,     // started, exited, killed, stopped
  kMachine,     // crashed, rebooted, frozen, thawed
  kNetwork,     // cut, healed
  kConnection,  // opened or ended
  kMessage,     // arrived
  kWorker,      // started or ended
  kStore,       // written
};
std::string_view to_string(EventKind kind);

struct SimEvent {
  Instant time;
  EventKind kind;
  int node;          // the machine it happened on, as SimNetwork numbers them
  uint64_t payload;  // a hash or a small number that tells two events of a kind apart
};

class Simulator final : public Scheduler {
 public:
  explicit Simulator(uint64_t seed);
  ~Simulator() override;

  Instant now() const override { return now_; }
  Random& random() { return random_; }

  // One event, unless the next one is later than `limit`. False: there was none.
  bool step(Instant limit = Instant::max());

  // Runs until the condition holds after an event (true), or nothing is left to happen by `limit` (false; the time
  // is then `limit`, unless that is Instant::max()). The condition is asked before the first event and after each.
  bool run_until(const std::function<bool()>& condition, Instant limit);
  void run_until(Instant at);
  void run_for(Duration span) { run_until(now_ + span); }

  // Calls a function at an instant: for faults of a test's plan.
  void at(Instant when, std::function<void()> call);

  // Called after each event, when every coroutine waits: check invariants here. Crashing machines is allowed.
  void after_each_event(std::function<void()> hook) { hook_ = std::move(hook); }

  // The parts of the world record what happens. The same seed gives the same hash.
  void record(EventKind kind, int node, uint64_t payload);
  uint64_t hash() const { return hash_.value(); }
  uint64_t events() const { return events_; }
  void trace(std::function<void(const SimEvent&)> sink) { trace_ = std::move(sink); }  // to study one seed

  // A run that passes this many events throws: two coroutines may keep each other busy for ever.
  void set_events_max(uint64_t most) { events_max_ = most; }

  // Coverage marks: a fault that was really hit. For rare events only.
  void mark(std::string_view name);
  const std::map<std::string, uint64_t, std::less<>>& marks() const { return marks_; }
  uint64_t marked(std::string_view name) const;

 private:
  class Planned;
  Instant now_{};
  Random random_;
  RunningHash hash_;
  uint64_t events_ = 0;
  uint64_t events_max_ = 1'000'000'000;
  std::function<void()> hook_;
  std::function<void(const SimEvent&)> trace_;
  std::map<std::string, uint64_t, std::less<>> marks_;
  std::map<uint64_t, std::unique_ptr<Planned>> planned_;
  uint64_t next_planned_ = 0;
};

}  // namespace rubato::sim
