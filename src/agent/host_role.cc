#include "agent/host_role.h"

#include <nlohmann/json.hpp>

#include "agent/loopback.h"

namespace rubato::agent {

HostRole::HostRole(World& world, AgentId self, ChannelKey key, std::string run_id, EventLog& events, Doorway& doorway)
    : world_(world),
      self_(std::move(self)),
      key_(std::move(key)),
      run_id_(std::move(run_id)),
      events_(events),
      doorway_(doorway),
      changed_(world.clock.loop()),
      scope_(world.clock.loop()) {}

void HostRole::begin(elastic::Rendezvous machine, Endpoint address, Coordinator::Confirm confirm) {
  end();
  address_ = std::move(address);
  coordinator_ =
      std::make_unique<Coordinator>(world_, self_, key_, run_id_, std::move(machine), std::move(confirm), events_);
  coordinator_->set_address(address_);
  events_.write("hosting", {{"epoch", coordinator_->legacy().epoch}, {"address", to_string(address_)}});
  doorway_.serve(*coordinator_);
  scope_.spawn(serve());
}

Task<void> HostRole::serve() {
  try {
    co_await coordinator_->run();
  } catch (const Error& error) {
    // Nobody else hears of it here, and a host that stands still would hold up the group: say it, and stop hosting.
    world_.console.err(render(error));
  }
  successor_ = coordinator_->superseded_by();
  doorway_.hold();
  // The coordinator's members, and our own loopback, see their connections close.
  coordinator_.reset();
  changed_.notify();
}

void HostRole::end() {
  scope_.cancel();
  if (!coordinator_) return;
  doorway_.hold();
  coordinator_.reset();
  changed_.notify();
}

std::unique_ptr<Connection> HostRole::connect() {
  auto [ours, theirs] = make_loopback(world_.clock.loop(), address_.host);
  // A visitor may have told of a better host before we were ready: then this connection is closed already.
  if (coordinator_) coordinator_->admit(std::move(theirs));
  return std::move(ours);
}

Task<void> HostRole::hand_over(std::string reason) {
  if (coordinator_) coordinator_->retire(reason);
  co_await ended();
}

Task<void> HostRole::ended() {
  while (coordinator_) co_await changed_.wait();
}

}  // namespace rubato::agent
