#include "sim/simulator.h"

#include <algorithm>

#include "core/error.h"

namespace rubato::sim {

uint64_t hash_of(std::string_view bytes) {
  RunningHash hash;
  hash.add(bytes);
  return hash.value();
}

std::string_view to_string(EventKind kind) {
  switch (kind) {
    case EventKind::kProgram:
      return "program";
    case EventKind::kMachine:
      return "machine";
    case EventKind::kNetwork:
      return "network";
    case EventKind::kConnection:
      return "connection";
    case EventKind::kMessage:
      return "message";
    case EventKind::kWorker:
      return "worker";
    case EventKind::kStore:
      return "store";
  }
  return "unknown";
}

class Simulator::Planned final : public Timed {
 public:
  Planned(Simulator& owner, uint64_t id, std::function<void()> call) : owner_(owner), id_(id), call_(std::move(call)) {}
  void due() override {
    std::unique_ptr<Planned> self = std::move(owner_.planned_.at(id_));
    owner_.planned_.erase(id_);
    call_();
  }

 private:
  Simulator& owner_;
  uint64_t id_;
  std::function<void()> call_;
};

Simulator::Simulator(uint64_t seed) : random_(seed) {}
Simulator::~Simulator() = default;

void Simulator::at(Instant when, std::function<void()> call) {
  const uint64_t id = next_planned_++;
  std::unique_ptr<Planned>& planned = planned_[id];
  planned = std::make_unique<Planned>(*this, id, std::move(call));
  arm(*planned, when);
}

bool Simulator::step(Instant limit) {
  drain();
  const std::optional<Instant> next = next_due();
  if (!next || *next > limit || *next == Instant::max()) return false;  // a timer at the end of time never comes
  if (events_ >= events_max_) {
    throw Error(ErrorCode::kFailed, "the simulation passed " + std::to_string(events_max_) + " events");
  }
  now_ = std::max(now_, *next);
  ++events_;
  hash_.add(static_cast<uint64_t>(now_.time_since_epoch().count()));
  fire_due(now_, 1);
  drain();
  if (hook_) hook_();
  return true;
}

bool Simulator::run_until(const std::function<bool()>& condition, Instant limit) {
  drain();
  while (!condition()) {
    if (step(limit)) continue;
    if (limit != Instant::max()) now_ = std::max(now_, limit);
    return condition();
  }
  return true;
}

void Simulator::run_until(Instant at) {
  while (step(at)) {
  }
  now_ = std::max(now_, at);
}

void Simulator::record(EventKind kind, int node, uint64_t payload) {
  hash_.add(static_cast<uint64_t>(kind) << 32 | static_cast<uint32_t>(node));
  hash_.add(payload);
  if (!trace_) return;
  const SimEvent event{now_, kind, node, payload};
  trace_(event);
}

void Simulator::mark(std::string_view name) {
  const auto found = marks_.find(name);
  if (found != marks_.end()) {
    ++found->second;
  } else {
    marks_.emplace(name, 1);
  }
}

uint64_t Simulator::marked(std::string_view name) const {
  const auto found = marks_.find(name);
  return found == marks_.end() ? 0 : found->second;
}

}  // namespace rubato::sim
