#include "agent/doorway.h"

namespace rubato::agent {

namespace {
// More than this many cannot wait: the oldest go, and ask again.
constexpr size_t kWaitingMax = 4096;
}  // namespace

void Doorway::open(std::unique_ptr<Listener> listener) { scope_.spawn(accept_from(std::move(listener))); }

Task<void> Doorway::accept_from(std::unique_ptr<Listener> listener) {
  while (true) {
    std::unique_ptr<Connection> visitor = co_await listener->accept();
    direct(std::move(visitor));
  }
}

void Doorway::direct(std::unique_ptr<Connection> visitor) {
  if (coordinator_) {
    coordinator_->admit(std::move(visitor));
  } else if (host_) {
    visitor->send(elastic::encode(*host_, world_.clock.now()));
  } else {
    waiting_.push_back(std::move(visitor));
    if (waiting_.size() > kWaitingMax) waiting_.pop_front();
  }
}

void Doorway::serve(Coordinator& coordinator) {
  coordinator_ = &coordinator;
  host_.reset();
  for (auto& visitor : std::exchange(waiting_, {})) direct(std::move(visitor));
}

void Doorway::point_to(elastic::Moved host) {
  host.from = self_;
  coordinator_ = nullptr;
  host_ = std::move(host);
  for (auto& visitor : std::exchange(waiting_, {})) direct(std::move(visitor));
}

void Doorway::hold() {
  coordinator_ = nullptr;
  host_.reset();
}

}  // namespace rubato::agent
