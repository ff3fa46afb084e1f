// Nodes on machines with sshd, cables and disks of their own. tests/e2e/ssh_e2e.py makes the machines, runs these tests
// one by one, and does what they ask for: "cut w1", "crash w1".
#include <nlohmann/json.hpp>

#include "core/scope.h"
#include "core/text.h"
#include "os/certificates.h"
#include "provider/host_list.h"
#include "provider/ssh_provider.h"
#include "provider/ssh_testing.h"

namespace rubato::provider {
namespace {

using nlohmann::json;

class HostsTest : public RealWorldTest {
 protected:
  void SetUp() override {
    const char* text = ::getenv("RUBATO_TEST_HOSTS");
    if (text == nullptr) GTEST_SKIP() << "run by tests/e2e/ssh_e2e.py";
    const json document = json::parse(text);
    requests = document.at("requests").get<std::string>();
    key = document.at("key").get<std::string>();
    program = document.at("rubato").get<std::string>();
    for (const auto& [name, address] : document.at("hosts").items()) {
      addresses[name] = address.get<std::string>();
      hosts.workers.push_back(*parse_host_address("root@" + addresses[name]));
    }
    os::make_cluster_ca(folder.path());
    hosts.file = folder / "hosts.json";
    list = std::make_unique<HostList>(world, hosts);
    binary = std::make_unique<RemoteBinary>(world, settings(), program, folder / "cache");
    plan.limits.reachable = 30s;
    plan.limits.again_first = 100ms;
    provider = std::make_unique<SshProvider>(world, *list, *binary, provider_settings());
  }

  // Has the machines changed, and waits until it is so.
  void ask(const std::string& request) {
    const std::string path = fmt::format("{}/{}", requests, ++asked_);
    files.write_atomically(path, request);
    ASSERT_TRUE(turn_until([&] { return std::filesystem::exists(path + ".done"); })) << request;
  }

  SshTarget target_of(const HostAddress& host) {
    AuthConfig auth;
    auth.ssh_private_key = key;
    SshTarget target = ssh_target(host, auth);
    target.known_hosts = folder / "known_hosts";
    target.control_folder = control_folder(files, folder.path());
    return target;
  }
  SshRunner runner_of(const std::string& name) {
    return SshRunner(world, settings(), target_of(*parse_host_address("root@" + addresses.at(name))));
  }
  NodeEnd end_of(const NodeId& node) {
    NodeEnd end;
    end.cluster = "c";
    end.node = node;
    end.grace = 5s;
    return end;
  }

  static Task<NodeSetupSpec> plan_of(HostsTest& test, NodeOrder order, Machine machine) {
    NodeSetupSpec spec = test.plan;
    spec.cluster = "c";
    spec.node = order.node;
    spec.agent.node = order.node;
    spec.agent.address = machine.address;
    spec.agent.head.host = "10.255.255.1";  // nobody: these agents wait for a head
    spec.agent.head.port = 7000;
    const std::string certificate = test.folder / (order.node.value + ".pem");
    const std::string key_file = test.folder / (order.node.value + ".key");
    os::issue_certificate(test.folder.path(), "node/" + order.node.value, {}, certificate, key_file);
    spec.identity.ca = os::read_text(test.folder / "ca.pem");
    spec.identity.certificate = os::read_text(certificate);
    spec.identity.key = os::read_text(key_file);
    spec.log_file = test.folder / ("logs/" + order.node.value);
    co_return spec;
  }
  SshProviderSettings provider_settings() {
    SshProviderSettings result;
    result.runner = settings();
    result.cluster = "c";
    result.reach = [this](const Machine& machine, const NodeRecipe&) {
      auto runner = std::make_unique<SshRunner>(world, settings(), target_of(machine.host));
      runner->set_connect_timeout(5s);
      return runner;
    };
    result.plan = [this](NodeOrder order, Machine machine) {
      return plan_of(*this, std::move(order), std::move(machine));
    };
    result.stop_max = 8s;
    return result;
  }

  NodeOrder order_for(const std::string& node) {
    NodeOrder order;
    order.node.value = node;
    order.on_step = [this, node](const std::string& step, const std::string& detail) {
      steps.push_back(fmt::format("{} {}: {}", node, step, detail));
    };
    return order;
  }
  std::optional<Error> create(const std::string& node) { return error_of(provider->create(order_for(node))); }
  std::optional<Error> remove(const std::string& node) { return error_of(provider->remove(NodeId{node})); }
  bool runs(const std::string& host, const std::string& node) {
    SshRunner ssh = runner_of(host);
    return await(is_running(ssh, end_of(NodeId{node})));
  }
  std::string on_host(const std::string& host, const std::string& text) {
    SshRunner ssh = runner_of(host);
    return await(ssh.run(script(text))).out;
  }
  // A set-up command that waits for a file, told of when it has begun.
  Task<void> create_all(std::vector<std::string> nodes) {
    Scope scope(runtime);
    for (const std::string& node : nodes) scope.spawn(provider->create(order_for(node)));
    co_await scope.join();
  }
  bool has_step(const std::string& sentence) {
    return std::ranges::any_of(steps, [&](const auto& step) { return step.find(sentence) != std::string::npos; });
  }

  std::string requests, key, program;
  std::map<std::string, std::string> addresses;
  HostListSettings hosts;
  NodeSetupSpec plan;
  std::vector<std::string> steps;
  std::unique_ptr<HostList> list;
  std::unique_ptr<RemoteBinary> binary;
  std::unique_ptr<SshProvider> provider;

 private:
  int asked_ = 0;
};

TEST_F(HostsTest, NodesComeUpAtOnceAndEndWithNothingLeft) {
  plan.setup_commands = {"echo x >>~/setups"};
  plan.runtime_hash = "r";
  const std::vector<std::string> nodes = {"n-1", "n-2", "n-3"};
  finish_call(create_all(nodes));
  EXPECT_TRUE(runs("w1", "n-1"));
  EXPECT_TRUE(runs("w3", "n-3"));
  const std::string agent =
      on_host("w2", "tr '\\0' ' ' </proc/$(cat ~/.rubato/clusters/c/nodes/n-2/daemon.pid)/cmdline");
  EXPECT_NE(agent.find(" agent --dir /root/.rubato/clusters/c/nodes/n-2"), std::string::npos) << agent;
  finish_call(create_all(nodes));
  EXPECT_EQ(on_host("w1", "cat ~/setups; ls -d ~/.rubato/bin/rubato-* | wc -l"), "x\n1\n");
  for (const std::string& node : nodes) EXPECT_FALSE(remove(node));
  EXPECT_EQ(on_host("w1", "ls ~/.rubato/clusters/c/nodes; pgrep -f 'rubato.* agent' | wc -l"), "0\n");
  EXPECT_TRUE(await(provider->list()).empty());
}

TEST_F(HostsTest, AgentsOutliveTheConnection) {
  ASSERT_FALSE(create("n-1"));
  const std::string pid = on_host("w1", "cat ~/.rubato/clusters/c/nodes/n-1/daemon.pid");
  SshRunner ssh = runner_of("w1");
  finish_call(ssh.disconnect());
  ask("cut w1");
  ask("mend w1");
  EXPECT_TRUE(runs("w1", "n-1"));
  EXPECT_EQ(on_host("w1", "cat ~/.rubato/clusters/c/nodes/n-1/daemon.pid"), pid);
}

// The cable is out from when the command has begun until its loss is told of.
Task<void> cut_until_noticed(os::Runtime& runtime, const std::vector<std::string>& steps, std::string requests) {
  os::RealFiles files;
  while (!files.exists(requests + "/../w1/root/attempts")) co_await Sleep(runtime, runtime.now() + 20ms);
  files.write_atomically(requests + "/1001", "cut w1");
  const auto told = [](const std::string& step) { return step.find("setup: attempt 2") != std::string::npos; };
  while (std::ranges::none_of(steps, told)) co_await Sleep(runtime, runtime.now() + 20ms);
  files.write_atomically(requests + "/1002", "mend w1");
}

TEST_F(HostsTest, ACutCableDuringSetUpCostsAnAttempt) {
  // The first attempt waits for ever; it is ended before the second one runs.
  plan.setup_commands = {"echo $$ >>~/attempts; [ $(wc -l <~/attempts) -gt 1 ] || exec sleep 1000"};
  plan.limits.again_first = 1s;
  plan.limits.attempts = 5;
  Scope scope(runtime);
  scope.spawn(cut_until_noticed(runtime, steps, requests));
  ASSERT_FALSE(create("n-1"));
  EXPECT_EQ(on_host("w1", "wc -l <~/attempts; pgrep -x sleep -a | grep -c 'sleep 1000'"), "2\n0\n");
  EXPECT_TRUE(runs("w1", "n-1"));
}

TEST_F(HostsTest, ACrashedHostIsPassedOverAndCleanedWhenItIsBack) {
  ASSERT_FALSE(create("n-1"));
  ask("crash w1");
  ASSERT_FALSE(remove("n-1"));
  ASSERT_FALSE(create("n-2"));
  EXPECT_TRUE(runs("w2", "n-2"));
  ask("boot w1");
  EXPECT_EQ(on_host("w1", "ls ~/.rubato/clusters/c/nodes"), "n-1\n")
      << "what the dead host could not be asked to remove";
  ASSERT_FALSE(create("n-3"));
  EXPECT_EQ(on_host("w1", "ls ~/.rubato/clusters/c/nodes"), "n-3\n");
  EXPECT_TRUE(runs("w1", "n-3"));
}

TEST_F(HostsTest, AFullDiskIsSaidAndThenOvercome) {
  ask("fill w1");
  plan.limits.attempts = 1;
  const std::optional<Error> error = create("n-1");
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("No space left on device"), std::string::npos) << error->message;
  EXPECT_EQ(on_host("w1", "ls -A ~/.rubato/bin 2>/dev/null | wc -l"), "0\n") << "no half of a program is left";
  ask("free w1");
  EXPECT_FALSE(create("n-1"));
  EXPECT_TRUE(runs("w1", "n-1"));
}

TEST_F(HostsTest, ASlowSshdIsWaitedForAndANewHostKeyIsNot) {
  ask("slow w1");
  ASSERT_FALSE(create("n-1"));
  SshRunner ssh = runner_of("w1");
  finish_call(ssh.disconnect());
  ask("newkey w1");
  const std::optional<Error> error = create("n-1");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kUsage);
  EXPECT_NE(error->message.find("has changed"), std::string::npos) << error->message;
  EXPECT_NE(error->hint.find("ssh-keygen -R"), std::string::npos) << error->hint;
}

}  // namespace
}  // namespace rubato::provider
