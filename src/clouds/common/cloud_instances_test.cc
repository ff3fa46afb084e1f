// What is the same in all clouds, with a cloud of this test's own in virtual time.
#include "clouds/common/cloud_instances.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "rest/rest_testing.h"

namespace rubato::clouds {
namespace {

// One machine for each node, which runs `boot` after it was asked for.
class SlowCloud final : public MachineCloud {
 public:
  SlowCloud(World& world, Duration boot, int& lists) : world_(world), boot_(boot), lists_(lists) {}

  std::string_view name() const override { return "slow"; }
  CloudRules configure(const nlohmann::json&) override { return {"lab", false, true}; }
  Task<void> open() override { co_return; }
  Task<std::vector<CloudMachine>> list() override {
    ++lists_;
    std::vector<CloudMachine> out;
    for (const auto& [node, since] : made_) {
      CloudMachine one;
      one.id = one.private_address = "id-" + node.value;
      one.node = node;
      one.state = world_.clock.now() - since >= boot_ ? MachineState::kRunning : MachineState::kStarting;
      out.push_back(std::move(one));
    }
    co_return out;
  }
  bool fit_together(const std::vector<NodeId>&) const override { return true; }
  size_t count_places(const LaunchOrder&) override { return 1; }
  Task<Launched> launch_at(LaunchOrder order, size_t) override {
    Launched out;
    for (const NodeId& node : order.nodes) {
      made_[node] = world_.clock.now();
      out.ids[node] = "id-" + node.value;
    }
    co_return out;
  }
  Task<void> start(std::string, NodeId) override { co_return; }
  Task<void> stop(std::vector<std::string>) override { co_return; }
  Task<void> end(std::vector<std::string>) override { co_return; }
  Task<void> write_status(std::vector<std::string>, std::string) override { co_return; }

 private:
  World& world_;
  const Duration boot_;
  int& lists_;
  std::map<NodeId, Instant> made_;
};

// How much later than it runs a machine is known to run, and how often the cloud was asked.
struct Waited {
  Duration late{};
  int lists = 0;
};
Task<void> create_in(World& world, Duration boot, Waited& out) {
  const Instant begun = world.clock.now();
  auto cloud = std::make_unique<SlowCloud>(world, boot, out.lists);
  CloudInstances instances(world, std::move(cloud), CloudInstancesSettings(), Log());
  instances.configure("{}");
  provider::NodeOrder order;
  order.node.value = "worker-1";
  (void)co_await instances.create(std::move(order));
  out.late = world.clock.now() - begun - boot;
}
Waited create_after(Duration boot) {
  rest::ScriptedWorld scripted;
  Waited out;
  scripted.run([&](World& world) { return create_in(world, boot, out); });
  return out;
}

TEST(CloudInstances, AMachineThatHasBootedIsSeenWithinASecond) {
  for (const Duration boot : {Duration(3s), Duration(8s), Duration(20s), Duration(50s)}) {
    EXPECT_LE(create_after(boot).late, 1s) << format_duration(boot);
  }
}

TEST(CloudInstances, OneThatTakesLongIsLookedAfterLessOften) {
  const Waited waited = create_after(10min);
  EXPECT_LE(waited.late, 5s);
  EXPECT_LE(waited.lists, 60 + 120);
}

}  // namespace
}  // namespace rubato::clouds
