// Hosts of one's own: which node gets which, what is remembered, and what happens to a host that is gone.
#include "provider/ssh_provider.h"

#include <set>

#include "core/text.h"
#include "provider/host_list.h"
#include "provider/ssh_testing.h"

namespace rubato::provider {
namespace {

HostAddress host(const std::string& text) { return *parse_host_address(text); }

NodeOrder order_for(const std::string& node, bool of_head = false) {
  NodeOrder order;
  order.node.value = node;
  order.type.name = "worker";
  order.of_head = of_head;
  return order;
}

class HostListTest : public RealWorldTest {
 protected:
  HostListSettings some_hosts() {
    HostListSettings settings;
    settings.head = host("head");
    settings.workers = {host("a"), host("root@b:2222"), host("c")};
    settings.file = folder / "hosts.json";
    return settings;
  }
  std::string give(HostList& list, const std::string& node, bool of_head = false) {
    NodeOrder order = order_for(node, of_head);
    const Outcome<Machine> outcome = settle(list.create(order));
    return outcome.error ? std::string(to_string(outcome.error->code)) : to_string(outcome.value->host);
  }
  std::string nodes(HostList& list) {
    std::vector<std::string> names;
    for (const NodeId& node : await(list.list())) names.push_back(node.value);
    return join(names, " ");
  }
};

TEST_F(HostListTest, GivesHostsInOrderAndRemembersThem) {
  {
    HostList list(world, some_hosts());
    EXPECT_EQ(give(list, "head", true), "head");
    EXPECT_EQ(give(list, "w-1"), "a");
    EXPECT_EQ(give(list, "w-2"), "root@b:2222");
    EXPECT_EQ(give(list, "w-1"), "a") << "asked again, the same";
  }
  HostList list(world, some_hosts());
  EXPECT_EQ(nodes(list), "head w-1 w-2");
  EXPECT_EQ(give(list, "w-3"), "c");
  EXPECT_EQ(give(list, "w-4"), "conflict");
  const std::optional<Machine> machine = await(list.find(NodeId{"w-2"}));
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->address, "b");
  EXPECT_FALSE(machine->this_machine);
  EXPECT_TRUE(await(list.find(NodeId{"head"}))->this_machine);
  finish_call(list.remove(NodeId{"w-1"}, true));
  finish_call(list.remove(NodeId{"w-1"}, true));
  EXPECT_EQ(give(list, "w-5"), "a");
}

TEST_F(HostListTest, AHostThatFailedIsTakenLast) {
  HostList list(world, some_hosts());
  give(list, "w-1");
  list.note_failure(NodeId{"w-1"}, "refused\nmore");
  finish_call(list.remove(NodeId{"w-1"}, true));
  HostList after(world, some_hosts());
  EXPECT_EQ(give(after, "w-2"), "root@b:2222");
  EXPECT_EQ(give(after, "w-3"), "c");
  EXPECT_EQ(give(after, "w-4"), "a") << "but it is taken";
}

TEST_F(HostListTest, FailuresAreForgotten) {
  HostListSettings settings = some_hosts();
  settings.failure_memory = 0s;
  HostList list(world, settings);
  give(list, "w-1");
  list.note_failure(NodeId{"w-1"}, "refused");
  finish_call(list.remove(NodeId{"w-1"}, true));
  EXPECT_TRUE(turn_until([&, since = world.clock.wall()] { return world.clock.wall() > since; }));
  EXPECT_EQ(give(list, "w-2"), "a");
}

TEST_F(HostListTest, WhatCouldNotBeCleanedIsCleanedAtTheNextUse) {
  HostList list(world, some_hosts());
  give(list, "w-1");
  finish_call(list.remove(NodeId{"w-1"}, false));
  EXPECT_EQ(nodes(list), "") << "the node is gone all the same";
  HostList again(world, some_hosts());
  EXPECT_EQ(give(again, "w-3"), "root@b:2222") << "another is better";
  EXPECT_EQ(give(again, "w-4"), "c");
  const Machine machine = await(again.create(order_for("w-2")));
  ASSERT_EQ(machine.leftovers.size(), 1u);
  EXPECT_EQ(machine.leftovers[0].node.value, "w-1");
  again.note_cleaned(NodeId{"w-2"});
  EXPECT_TRUE(await(again.create(order_for("w-2"))).leftovers.empty());
}

TEST_F(HostListTest, ADamagedFileIsNotTakenForAnEmptyOne) {
  folder.write("hosts.json", "{\"hosts\": {\"a\": ");
  HostList list(world, some_hosts());
  EXPECT_TRUE(settle(list.list()).error);
}

// Hosts as folders of this machine, some of which are dead.
struct ScriptedHosts {
  std::set<std::string> dead;
  std::vector<std::string> log;      // "host: what"
  std::vector<std::string> scripts;  // of each of them
};

struct ScriptedRunner final : CommandRunner {
  ScriptedRunner(ScriptedHosts& hosts_in, std::string name_in) : hosts(hosts_in), name(std::move(name_in)) {}
  Task<CommandResult> run(Command command) override {
    if (hosts.dead.contains(name)) throw Error(ErrorCode::kUnavailable, name + " does not answer");
    hosts.log.push_back(name + ": " + summary(command));
    hosts.scripts.push_back(command.script);
    CommandResult result;
    if (command.what == "looking for rubato") {
      result.out = fmt::format("rubato-binary {} none raw /p\n", RemoteBinary::machine());
    }
    co_return result;
  }
  Task<void> upload(std::string, std::string, SyncOptions) override { co_return; }
  Task<void> download(std::string, std::string, SyncOptions) override { co_return; }
  std::string describe() const override { return name; }
  ScriptedHosts& hosts;
  const std::string name;
};

Task<NodeSetupSpec> plan_of_test(NodeOrder order, Machine) {
  NodeSetupSpec spec;
  spec.cluster = "c";
  spec.node = order.node;
  spec.limits.reachable = 0s;
  spec.limits.attempts = 1;
  co_return spec;
}

class SshProviderTest : public HostListTest {
 protected:
  SshProviderSettings provider_settings() {
    SshProviderSettings result;
    result.runner = settings();
    result.cluster = "c";
    result.reach = [this](const Machine& machine, const NodeRecipe&) {
      return std::make_unique<ScriptedRunner>(hosts, machine.host.host);
    };
    result.plan = plan_of_test;
    result.stop_max = 20ms;
    result.stop_again = 5ms;
    return result;
  }
  std::optional<Error> create(const std::string& node) { return error_of(provider.create(order_for(node))); }
  std::optional<Error> remove(const std::string& node) { return error_of(provider.remove(NodeId{node})); }

  ScriptedHosts hosts;
  HostList list{world, some_hosts()};
  RemoteBinary binary{world, settings(), folder.write("rubato", "x"), folder / "cache"};
  SshProvider provider{world, list, binary, provider_settings()};
};

TEST_F(SshProviderTest, CreatesAndRemoves) {
  EXPECT_FALSE(create("w-1"));
  EXPECT_EQ(hosts.log.back(), "a: starting the agent");
  EXPECT_FALSE(remove("w-1"));
  EXPECT_EQ(hosts.log.back(), "a: stopping the agent");
  EXPECT_EQ(nodes(list), "");
  const size_t calls = hosts.log.size();
  EXPECT_FALSE(remove("w-1"));
  EXPECT_EQ(hosts.log.size(), calls);
}

TEST_F(SshProviderTest, ADeadHostIsPassedOver) {
  hosts.dead = {"a"};
  const std::optional<Error> error = create("w-1");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kUnavailable);
  EXPECT_FALSE(remove("w-1")) << "what does not answer does not hold up a removal for ever";
  EXPECT_FALSE(create("w-2"));
  EXPECT_EQ(hosts.log.back(), "b: starting the agent");
}

TEST_F(SshProviderTest, AHostThatComesBackIsCleanedFirst) {
  EXPECT_FALSE(create("w-1"));
  hosts.dead = {"a"};
  EXPECT_FALSE(remove("w-1"));
  hosts.dead.clear();
  hosts.log.clear();
  EXPECT_FALSE(create("w-3"));
  EXPECT_FALSE(create("w-4"));
  EXPECT_EQ(hosts.log.back(), "c: starting the agent");
  hosts.log.clear();
  EXPECT_FALSE(create("w-2"));
  ASSERT_FALSE(hosts.log.empty());
  EXPECT_EQ(hosts.log.front(), "a: bringing what the node's workers have left");
  EXPECT_LT(std::ranges::find(hosts.log, "a: stopping the agent"),
            std::ranges::find(hosts.log, "a: starting the agent"));
  EXPECT_EQ(hosts.log.back(), "a: starting the agent");
  EXPECT_TRUE(await(list.create(order_for("w-2"))).leftovers.empty());
}

// ---- recipes: a node is ended as it was made ----

NodeRecipe in_container(const std::string& name) {
  NodeRecipe recipe;
  recipe.cluster = "c";
  if (name.empty()) return recipe;
  recipe.container.emplace();
  recipe.container->container.image = "image";
  recipe.container->container.name = name;
  return recipe;
}

class RecipeTest : public SshProviderTest {
 protected:
  // How many of the scripts so far remove the container.
  int64_t removed(const std::string& container) const {
    return std::ranges::count_if(hosts.scripts, [&](const std::string& script) {
      return script.find("rm -f " + container + " ") != std::string::npos;
    });
  }
  // A file whose nodes are in this container.
  void accept(const std::string& container) {
    ClusterSpec spec;
    spec.recipes.emplace("newest", in_container(container));
    spec.provider_config = R"({"head": "head", "workers": ["a", "root@b:2222", "c"]})";
    provider.configure(spec);
  }
};

TEST_F(RecipeTest, ANodeIsRemovedWithTheContainerItWasMadeWith) {
  EXPECT_FALSE(create("w-1"));
  accept("new");
  NodeRemoval removal(NodeId{"w-1"});
  removal.recipes = {in_container("old")};
  EXPECT_FALSE(error_of(provider.remove(removal)));
  EXPECT_EQ(removed("old"), 1);
  EXPECT_EQ(removed("new"), 0);
}

TEST_F(RecipeTest, ANodeThatMovesToAnotherContainerLeavesNothingInTheFirst) {
  NodeOrder order = order_for("w-1");
  order.recipe = in_container("new");
  order.before = {in_container("old"), in_container("new")};
  EXPECT_FALSE(error_of(provider.create(order)));
  EXPECT_EQ(removed("old"), 1);
  EXPECT_EQ(removed("new"), 0) << "it is in use";
  order.before = {in_container("")};
  hosts.log.clear();
  EXPECT_FALSE(error_of(provider.create(order)));
  EXPECT_EQ(hosts.log.front(), "a: bringing what the node's workers have left") << "from beside the container";
}

TEST_F(RecipeTest, WhatNobodyRemembersIsEndedAsTheNewestFileSays) {
  EXPECT_FALSE(create("w-1"));
  accept("new");
  EXPECT_FALSE(remove("w-1"));
  EXPECT_EQ(removed("new"), 1);
}

TEST_F(RecipeTest, AHostThatComesBackLateIsCleanedOfTheContainerItHad) {
  EXPECT_FALSE(create("w-1"));
  hosts.dead = {"a"};
  NodeRemoval removal(NodeId{"w-1"});
  removal.recipes = {in_container("old")};
  EXPECT_FALSE(error_of(provider.remove(removal)));
  hosts.dead.clear();
  accept("new");
  HostList again(world, some_hosts());  // as a head that starts anew reads it
  give(again, "w-3");
  give(again, "w-4");
  const Machine machine = await(again.create(order_for("w-2")));
  ASSERT_EQ(machine.leftovers.size(), 1u);
  EXPECT_EQ(machine.leftovers[0].recipes, std::vector<NodeRecipe>{in_container("old")});
  EXPECT_FALSE(create("w-3"));
  EXPECT_FALSE(create("w-4"));
  EXPECT_FALSE(create("w-2"));
  EXPECT_EQ(removed("old"), 1);
  EXPECT_EQ(removed("new"), 0);
}

TEST_F(HostListTest, ReadsWhatAnOlderHeadWrote) {
  folder.write("hosts.json", R"({"hosts": {"a": {"leftovers": ["w-1"], "node": "w-2"}}})");
  HostList list(world, some_hosts());
  const std::optional<Machine> machine = await(list.find(NodeId{"w-2"}));
  ASSERT_TRUE(machine);
  ASSERT_EQ(machine->leftovers.size(), 1u);
  EXPECT_EQ(machine->leftovers[0].node.value, "w-1");
  EXPECT_TRUE(machine->leftovers[0].recipes.empty());
}

TEST_F(HostListTest, FollowsTheNewestFile) {
  HostList list(world, some_hosts());
  EXPECT_EQ(give(list, "w-1"), "a");
  list.configure(R"({"head": "head", "workers": ["d"]})");
  EXPECT_EQ(give(list, "w-1"), "a") << "it has it";
  EXPECT_EQ(give(list, "w-2"), "d");
  EXPECT_EQ(give(list, "w-3"), "conflict");
  EXPECT_THROW(list.configure(R"({"workers": ["-oProxyCommand=x"]})"), Error);
}

}  // namespace
}  // namespace rubato::provider
