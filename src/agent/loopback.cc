#include "agent/loopback.h"

namespace rubato::agent {

namespace {

class LoopbackEnd final : public Connection {
 public:
  using Queue = std::shared_ptr<Channel<std::string>>;
  LoopbackEnd(Queue in, Queue out, std::string address)
      : in_(std::move(in)), out_(std::move(out)), address_(std::move(address)) {}
  ~LoopbackEnd() override {
    in_->close();
    out_->close();
  }

  void send(std::string message) override { out_->push(std::move(message)); }
  Task<std::optional<std::string>> receive() override { return receive_from(in_); }
  // A host that stops hosting while its process lives has been replaced, or must not go on: unlike a dead one, it may
  // have a successor already.
  End ended() const override { return in_->closed() ? End::kSilent : End::kOpen; }
  std::string local_address() const override { return address_; }
  std::string peer_address() const override { return address_; }

 private:
  // Holds the queue itself: this end may go while a receive is under way.
  static Task<std::optional<std::string>> receive_from(Queue queue) { co_return co_await queue->pop(); }

  Queue in_, out_;
  std::string address_;
};

}  // namespace

std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> make_loopback(Loop& loop, std::string address) {
  auto there = std::make_shared<Channel<std::string>>(loop);
  auto back = std::make_shared<Channel<std::string>>(loop);
  return {std::make_unique<LoopbackEnd>(there, back, address), std::make_unique<LoopbackEnd>(back, there, address)};
}

}  // namespace rubato::agent
