// One agent, no network: the agent hosts its own rendezvous and nothing listens.
#include "agent/finder.h"

namespace rubato::agent {

namespace {

class SoloFinder final : public Finder {
 public:
  explicit SoloFinder(const FinderContext& context)
      : context_(context),
        doorway_(context.world, context.self),
        role_(context.world, context.self, context.key, context.spec.run_id, context.events, doorway_) {}

  Task<std::unique_ptr<Connection>> find(Past) override {
    if (!role_.active()) {
      elastic::Rendezvous machine(context_.terms, context_.world.clock.now());
      role_.begin(std::move(machine), found(), nullptr);
    }
    co_return role_.connect();
  }
  void following(const elastic::View&) override {}
  void settled(const elastic::View&) override {}
  Task<void> watch() override { co_return; }
  Endpoint found() const override { return {"127.0.0.1", 0}; }
  Task<void> farewell() override { co_await role_.ended(); }
  Task<void> hand_over(std::string) override { co_return; }
  uint16_t peer_port() const override { return 0; }
  bool hosting() const override { return role_.active(); }

 private:
  FinderContext context_;
  Doorway doorway_;
  HostRole role_;
};

}  // namespace

std::unique_ptr<Finder> make_solo_finder(const FinderContext& context) { return std::make_unique<SoloFinder>(context); }

}  // namespace rubato::agent
