#include "provider/local_provider.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "os/daemons.h"
#include "os/files.h"
#include "os/machine.h"
#include "os/network.h"
#include "os/process_fixture.h"
#include "provider/fake_provider.h"
#include "sim/simulation.h"

namespace rubato::provider {
namespace {

struct FakeDaemons final : Daemons {
  struct One {
    DaemonSpec spec;
    int pid = 0;
    bool deaf = false;  // to all but SIGKILL
    std::vector<int> signals;
  };
  void start(const DaemonSpec& spec) override {
    if (!fails.empty()) throw Error(ErrorCode::kFailed, fails);
    if (alive.contains(spec.folder)) return;
    alive[spec.folder] = One{spec, ++last_pid, deaf, {}};
  }
  std::optional<int> running(const std::string& folder) override {
    const auto found = alive.find(folder);
    return found == alive.end() ? std::nullopt : std::optional<int>(found->second.pid);
  }
  void signal(const std::string& folder, int signal) override {
    const auto found = alive.find(folder);
    if (found == alive.end()) return;
    sent.push_back(signal);
    if (signal == SIGKILL || !found->second.deaf) alive.erase(found);
  }
  std::map<std::string, One> alive;
  std::vector<int> sent;
  std::string fails;
  bool deaf = false;
  int last_pid = 0;
};

LocalSettings some_settings() {
  LocalSettings settings;
  settings.cluster = "test";
  settings.folder = "/c";
  settings.program = "/usr/bin/rubato";
  settings.env = {"PATH=/bin", "CUDA_VISIBLE_DEVICES=7"};
  settings.issue = [](const NodeId& node, const std::string& folder) {
    TlsFiles files;
    files.use_tls = true;
    files.ca = "/c/ca.pem";
    files.certificate = folder + "/" + node.value + ".pem";
    files.key = folder + "/" + node.value + ".key";
    return files;
  };
  return settings;
}

NodeOrder some_order(const std::string& name, int gpus = 0) {
  NodeOrder order;
  order.node.value = name;
  order.head = Endpoint{"127.0.0.1", 7000};
  order.type.name = "small";
  order.type.resources.set(kCpu, 1500);
  order.type.resources.set(kMemory, 1 << 30);
  if (gpus > 0) order.type.resources.set(kGpu, gpus * 1000);
  return order;
}

enum class What { kCreate, kRemove, kList };

// One call, as its own program. The outcome: "" or the error's words.
struct Call {
  What what;
  NodeOrder order;
  std::string text = "(not ended)";
  std::vector<NodeId> nodes;
};

Task<int> make_call(sim::SimProgram& self, Daemons& daemons, Call& call) {
  LocalProvider provider(self.world(), daemons, some_settings());
  try {
    if (call.what == What::kCreate) co_await provider.create(call.order);
    if (call.what == What::kRemove) co_await provider.remove(call.order.node);
    if (call.what == What::kList) call.nodes = co_await provider.list();
    call.text.clear();
  } catch (const Error& error) {
    call.text = fmt::format("{}: {}", to_string(error.code), error.message);
  }
  co_return 0;
}

class LocalProviderTest : public testing::Test {
 protected:
  // A new provider each time: it has no memory but the folders.
  Call run(What what, const NodeOrder& order = {}) {
    Call call{what, order};
    sim.machine(1).start("head", [&](sim::SimProgram& self) { return make_call(self, daemons, call); });
    sim.simulator.run_for(100s);
    return call;
  }
  AgentFile agent_file(const std::string& node) {
    const sim::SimFile* file = sim.machine(1).disk().find("/c/nodes/" + node + "/agent.json");
    return file ? agent_file_from_text(file->bytes) : AgentFile{};
  }
  FakeDaemons daemons;
  sim::Simulation sim{1, 1};
};

TEST_F(LocalProviderTest, StartsAnAgentThatKnowsWhatItIs) {
  EXPECT_EQ(run(What::kCreate, some_order("small-1")).text, "");
  ASSERT_EQ(daemons.alive.size(), 1u);
  const DaemonSpec& spec = daemons.alive.at("/c/nodes/small-1").spec;
  EXPECT_EQ(spec.argv, (std::vector<std::string>{"/usr/bin/rubato", "agent", "--dir", "/c/nodes/small-1"}));
  EXPECT_EQ(spec.cpus, 2);
  EXPECT_EQ(spec.memory_bytes, 1 << 30);
  EXPECT_EQ(spec.netns, "");
  const AgentFile file = agent_file("small-1");
  EXPECT_EQ(file.node.value, "small-1");
  EXPECT_EQ(file.head, (Endpoint{"127.0.0.1", 7000}));
  EXPECT_EQ(file.address, "127.0.1.1");
  EXPECT_EQ(file.resources.of(kCpu), 1500);
  EXPECT_TRUE(file.identity.use_tls);
  EXPECT_EQ(file.identity.certificate, "/c/nodes/small-1/small-1.pem");
}

TEST_F(LocalProviderTest, CreateTwiceIsCreateOnce) {
  run(What::kCreate, some_order("small-1"));
  run(What::kCreate, some_order("small-1"));
  EXPECT_EQ(daemons.last_pid, 1);
}

TEST_F(LocalProviderTest, ANodeWhoseAgentDiedKeepsItsAddress) {
  run(What::kCreate, some_order("small-1"));
  run(What::kCreate, some_order("small-2"));
  daemons.alive.erase("/c/nodes/small-2");
  NodeOrder again = some_order("small-2");
  again.head.port = 7001;
  run(What::kCreate, again);
  EXPECT_EQ(agent_file("small-2").address, "127.0.1.2");
  EXPECT_EQ(agent_file("small-2").head.port, 7001);
  EXPECT_EQ(daemons.alive.size(), 2u);
}

TEST_F(LocalProviderTest, AddressesAreTheNodesOwnAndUsedAgain) {
  for (int i = 1; i <= 3; ++i) run(What::kCreate, some_order("n-" + std::to_string(i)));
  EXPECT_EQ(agent_file("n-3").address, "127.0.1.3");
  run(What::kRemove, some_order("n-2"));
  run(What::kCreate, some_order("n-4"));
  EXPECT_EQ(agent_file("n-4").address, "127.0.1.2");
}

TEST_F(LocalProviderTest, GpusAreSplitAmongTheNodes) {
  run(What::kCreate, some_order("n-1", 2));
  run(What::kCreate, some_order("n-2"));
  EXPECT_EQ(agent_file("n-1").gpus, (std::vector<std::string>{"0", "1"}));
  EXPECT_TRUE(agent_file("n-2").gpus.empty());
  EXPECT_EQ(daemons.alive.at("/c/nodes/n-1").spec.env.back(), "CUDA_VISIBLE_DEVICES=0,1");
  EXPECT_EQ(daemons.alive.at("/c/nodes/n-1").spec.env.size(), 2u);
}

TEST_F(LocalProviderTest, RemoveAsksThenKills) {
  run(What::kCreate, some_order("n-1"));
  EXPECT_EQ(run(What::kRemove, some_order("n-1")).text, "");
  EXPECT_EQ(daemons.sent, std::vector<int>{SIGTERM});
  daemons.deaf = true;
  run(What::kCreate, some_order("n-2"));
  EXPECT_EQ(run(What::kRemove, some_order("n-2")).text, "");
  EXPECT_EQ(daemons.sent, (std::vector<int>{SIGTERM, SIGTERM, SIGKILL}));
  EXPECT_TRUE(run(What::kList).nodes.empty());
  for (const auto& [path, file] : sim.machine(1).disk().files()) ADD_FAILURE() << path << " is left";
  EXPECT_EQ(run(What::kRemove, some_order("n-2")).text, "");  // again: nothing to do
}

TEST_F(LocalProviderTest, AHeadThatStoodStillHasGivenNoGrace) {
  daemons.deaf = true;
  run(What::kCreate, some_order("n-1"));
  Call call{What::kRemove, some_order("n-1")};
  sim::SimProgram& head =
      sim.machine(1).start("head", [&](sim::SimProgram& self) { return make_call(self, daemons, call); });
  sim.simulator.run_for(1s);
  head.stop();
  sim.simulator.run_for(some_settings().stop_grace + 10s);
  head.resume();
  sim.simulator.run_for(1s);
  EXPECT_EQ(daemons.sent, std::vector<int>{SIGTERM}) << "nobody has looked whether it ends";
  daemons.alive.clear();
  sim.simulator.run_for(10s);
  EXPECT_EQ(call.text, "");
  EXPECT_EQ(daemons.sent, std::vector<int>{SIGTERM});
}

TEST_F(LocalProviderTest, FindsWhatAnotherHeadMade) {
  run(What::kCreate, some_order("b-1"));
  run(What::kCreate, some_order("a-1"));
  daemons.alive.erase("/c/nodes/a-1");  // dead, but its folder is there
  EXPECT_EQ(run(What::kList).nodes, (std::vector<NodeId>{NodeId{"a-1"}, NodeId{"b-1"}}));
}

TEST_F(LocalProviderTest, ErrorsSayWhetherTryingAgainHelps) {
  daemons.fails = "cannot run '/usr/bin/rubato'";
  EXPECT_EQ(run(What::kCreate, some_order("n-1")).text.rfind("unavailable", 0), 0u);
  EXPECT_EQ(run(What::kCreate, some_order("../x")).text.rfind("usage", 0), 0u);
  daemons.fails.clear();
  EXPECT_EQ(run(What::kCreate, some_order("n-1")).text, "");  // goes on where it failed
}

// ---- the real machine ----

Task<int> with_namespaces(World& world, os::RealDaemons& daemons, LocalSettings settings, std::string& seen) {
  LocalProvider provider(world, daemons, settings);
  for (int time = 0; time < 2; ++time) {
    Scope at_once(world.clock.loop());
    for (const char* name : {"n-1", "n-2"}) {
      NodeOrder order = some_order(name);
      order.isolation = Isolation::kNetns;
      at_once.spawn(provider.create(std::move(order)));
    }
    co_await at_once.join();
  }
  const NodeId second{"n-2"};
  const std::string log = provider.folder(second) + "/daemon.log";
  for (int i = 0; i < 5000 && world.files.read(log).value_or("").find("done") == std::string::npos; ++i) {
    co_await Sleep(world.clock.loop(), world.clock.now() + 2ms);
  }
  seen = world.files.read(log).value_or("");
  const std::vector<NodeId> all = co_await provider.list();
  Scope at_once(world.clock.loop());
  for (const NodeId& node : all) at_once.spawn(provider.remove(node));
  co_await at_once.join();
  const std::vector<NodeId> left = co_await provider.list();
  co_return static_cast<int>(left.size());
}

TEST(LocalProviderOnThisMachine, NodesWithNamespacesReachEachOtherAndLeaveNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const os::TempFolder folder;
  os::Runtime runtime;
  os::RealNetwork network(runtime);
  os::RealProcesses processes(runtime);
  os::RealFiles files;
  os::RealConsole console;
  Random random(1);
  const MachineFacts machine;
  World world{runtime, network, processes, files, console, random, machine};
  os::RealDaemons daemons;
  LocalSettings settings = some_settings();
  settings.cluster = "t" + std::to_string(::getpid());
  settings.folder = folder.path();
  // An "agent": it reaches the first node and the machine, and not the machine's loopback.
  settings.program = folder.write("agent.sh",
                                  "#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nip -o -4 addr show dev eth0\n"
                                  "ip route get 127.0.1.1\necho done\nexec sleep 1000\n");
  std::filesystem::permissions(settings.program, std::filesystem::perms::owner_all);
  std::string seen;
  EXPECT_EQ(runtime.run(with_namespaces(world, daemons, settings, seen)), 0);
  EXPECT_NE(seen.find(".3/24"), std::string::npos) << seen;
  const LocalNetwork names(world, settings.cluster);
  EXPECT_FALSE(std::filesystem::exists("/run/netns/" + names.namespace_of(NodeId{"n-1"})));
  EXPECT_FALSE(std::filesystem::exists("/sys/class/net/" + names.bridge()));
}

// ---- the fake ----

Task<int> use_fake(sim::SimProgram& self, FakeProvider::Machines& machines, std::string& text) {
  FakeProvider provider(self.world().clock, machines);
  const NodeOrder order = some_order("n-1");
  try {
    co_await provider.create(order);
  } catch (const Error& error) {
    text = error.message;
  }
  co_await provider.create(order);
  co_await provider.create(order);
  const std::vector<NodeId> nodes = co_await provider.list();
  co_await provider.remove(order.node);
  co_await provider.remove(order.node);
  co_return static_cast<int>(nodes.size());
}

TEST(FakeProvider, FailsWhenToldAndIsOtherwiseAProvider) {
  FakeProvider::Machines machines;
  std::vector<std::string> happened;
  machines.started = [&](const NodeOrder& order) { happened.push_back("+" + order.node.value); };
  machines.removed = [&](const NodeId& node) { happened.push_back("-" + node.value); };
  machines.create_errors.emplace_back(ErrorCode::kUnavailable, "no capacity");
  std::string text;
  sim::Simulation sim(1, 1);
  sim::SimProgram& program =
      sim.machine(1).start("head", [&](sim::SimProgram& self) { return use_fake(self, machines, text); });
  sim.simulator.run_for(2s);
  EXPECT_EQ(program.exit_code(), 1);
  EXPECT_EQ(text, "no capacity");
  EXPECT_EQ(happened, (std::vector<std::string>{"+n-1", "-n-1"}));
  EXPECT_TRUE(machines.nodes.empty());
}

}  // namespace
}  // namespace rubato::provider
