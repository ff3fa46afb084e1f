#include "provider/external_instances.h"

#include "core/source_testing.h"
#include "provider/external_testing.h"

namespace rubato::provider {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// One call a word: "+n-1" create, "-n-1" remove, "!n-1" remove what could not be cleaned, "?n-1" find, "=" list.
Task<int> drive(ExternalInstances& instances, Words calls, Words& out) {
  for (const std::string& call : calls) {
    const NodeId node{call.substr(1)};
    try {
      if (call[0] == '+') {
        const NodeOrder order = external_order(node.value, node.value == "head" ? "head" : "worker");
        const Machine machine = co_await instances.create(order);
        out.push_back(words_of(machine));
      } else if (call[0] == '?') {
        const std::optional<Machine> machine = co_await instances.find(node);
        out.push_back(machine ? words_of(*machine) : "-");
      } else if (call[0] == '=') {
        std::string all;
        for (const NodeId& each : co_await instances.list()) all += (all.empty() ? "" : " ") + each.value;
        out.push_back(all);
      } else {
        NodeRemoval removal(node);
        co_await instances.remove(std::move(removal), call[0] == '-');
        out.push_back("gone");
      }
    } catch (const Error& error) {
      out.push_back(fmt::format("{}: {}", to_string(error.code), error.message));
    }
  }
  co_return 0;
}

class ExternalInstancesTest : public ExternalFixture {
 protected:
  ExternalSettings settings() {
    ExternalSettings settings;
    settings.env = os::own_environment();
    settings.folder = folder.path();
    settings.state = folder / "state";
    settings.version = "1";
    return settings;
  }
  ClusterFile file(const std::string& provider) {
    const ClusterFile file = read_cluster_file(
        "cluster_name: lab\nprovider:\n  type: external\n" + provider +
            "available_node_types:\n"
            "  head: {node_config: {size: s}, resources: {CPU: 1}, max_workers: 0}\n"
            "  worker: {node_config: {size: l}, resources: {CPU: 2}, max_workers: 9, labels: {zone: a}}\n"
            "head_node_type: head\nmax_workers: 9\n",
        "c.yaml");
    for (const Finding& finding : file.findings) {
      EXPECT_NE(finding.severity, Severity::kError) << finding.message;
    }
    return file;
  }
  std::string told(const std::string& provider) { return cluster_spec_of(file(provider)).provider_config; }
  Words calls(ExternalInstances& instances, Words reply) {
    Words out;
    runtime.run(drive(instances, std::move(reply), out));
    return out;
  }
  void use_example(const std::string& name) {
    std::filesystem::copy_file(source_path("examples/providers/" + name), folder / name);
  }
};

// ---- the examples ----

constexpr const char* kMachines =
    "  command: [./static.py]\n  head: 10.0.0.1\n"
    "  machines: [10.0.0.6, {host: me@10.0.0.7, address: 192.168.0.7}]\n";

TEST_F(ExternalInstancesTest, TheExampleInPythonHandsOutItsMachines) {
  use_example("static.py");
  ExternalInstances instances(world, told(kMachines), settings(), log());
  EXPECT_EQ(calls(instances, {"=", "+n-1", "+n-1", "+n-2", "?n-2", "?n-3", "="}),
            (Words{"", "10.0.0.6", "10.0.0.6", "me@10.0.0.7 192.168.0.7", "me@10.0.0.7 192.168.0.7", "-", "n-1 n-2"}));
  EXPECT_TRUE(instances.machines_stay());
  EXPECT_EQ(calls(instances, {"+n-3"}), Words{"conflict: create n-3: no-capacity: all machines for worker are taken"});
  // A machine that nobody could clean tells its next node what is left there.
  EXPECT_EQ(calls(instances, {"!n-1", "-n-1", "+n-3", "-n-3", "+n-4", "="}),
            (Words{"gone", "gone", "10.0.0.6 leftover n-1", "gone", "10.0.0.6", "n-2 n-4"}));
  EXPECT_EQ(calls(instances, {"+head"}), Words{"10.0.0.1"});
}

TEST_F(ExternalInstancesTest, TheExampleInPythonRemembersAfterAKill) {
  use_example("static.py");
  {
    ExternalInstances instances(world, told(kMachines), settings(), log());
    calls(instances, {"+n-1", "+n-2"});
  }
  ExternalInstances instances(world, told(kMachines), settings(), log());
  EXPECT_EQ(calls(instances, {"?n-1", "=", "+n-2"}), (Words{"10.0.0.6", "n-1 n-2", "me@10.0.0.7 192.168.0.7"}));
}

Task<int> fail_then_create(ExternalInstances& instances, Words& out) {
  Words ignored;
  const Words first{"+n-1"}, second{"-n-1", "+n-2"};
  co_await drive(instances, first, ignored);
  const NodeId failed{"n-1"};
  instances.note_failure(failed, "ssh: no route to host");
  co_await drive(instances, second, out);
  const Words third{"!n-2", "+n-3", "+n-4"}, fourth{"!n-4", "+n-5"};
  co_await drive(instances, third, out);
  const NodeId cleaned{"n-4"};
  instances.note_cleaned(cleaned);
  co_await drive(instances, fourth, out);
  co_return 0;
}

TEST_F(ExternalInstancesTest, IsToldOfAMachineThatFailsAndOfOneThatIsClean) {
  use_example("static.py");
  ExternalInstances instances(world, told(kMachines), settings(), log());
  Words out;
  runtime.run(fail_then_create(instances, out));
  const std::string second = "me@10.0.0.7 192.168.0.7";  // comes first now
  const Words after{"gone", second + " leftover n-2", "10.0.0.6", "gone", "10.0.0.6 leftover n-4"};
  EXPECT_EQ(out[1], second);
  EXPECT_EQ(Words(out.begin() + 2, out.end()), after);
}

TEST_F(ExternalInstancesTest, TheExampleInBashHandsOutItsMachines) {
  use_example("static.sh");
  folder.write("machines.txt", "10.0.0.1\n10.0.0.6\nme@10.0.0.7:23\n");
  ExternalInstances instances(world, told("  command: [./static.sh, machines.txt]\n"), settings(), log());
  EXPECT_EQ(calls(instances, {"=", "+head", "+n-1", "+n-2", "+n-1", "?n-2", "?n-3", "=", "+n-3"}),
            (Words{"", "10.0.0.1", "10.0.0.6", "me@10.0.0.7:23", "10.0.0.6", "me@10.0.0.7:23", "-", "n-1 n-2",
                   "conflict: create n-3: no-capacity: all machines in machines.txt are taken"}));
  EXPECT_EQ(calls(instances, {"-n-1", "-n-1", "=", "+n-3"}), (Words{"gone", "gone", "n-2", "10.0.0.6"}));
}

TEST_F(ExternalInstancesTest, AProgramThatRefusesItsSectionSaysWhy) {
  use_example("static.py");
  ExternalInstances instances(world, told("  command: [./static.py]\n"), settings(), log());
  EXPECT_EQ(calls(instances, {"="}), Words{"usage: list: hello: invalid: provider has no machines"});
}

TEST_F(ExternalInstancesTest, ACommandThatIsNotThereIsSaidWithItsPath) {
  ExternalInstances instances(world, told("  command: [./nothing.py]\n"), settings(), log());
  const std::string reply = calls(instances, {"="}).front();
  EXPECT_TRUE(has(reply, "usage: list: the provider's program cannot be started: cannot run")) << reply;
  EXPECT_TRUE(has(reply, folder / "nothing.py")) << reply;
}

Task<int> create_with_steps(ExternalInstances& instances, Words& out) {
  std::vector<std::string>* steps = &out;
  NodeOrder order = external_order("n-1");
  order.on_step = [steps](const std::string& step, const std::string& detail) {
    steps->push_back(step + ": " + detail);
  };
  const Machine machine = co_await instances.create(order);
  out.push_back(words_of(machine));
  co_return 0;
}

TEST_F(ExternalInstancesTest, FollowsANewerFile) {
  use_example("static.py");
  ExternalInstances instances(world, told(kMachines), settings(), log());
  calls(instances, {"="});
  Words out;
  const std::string newer =
      "cluster_name: lab\nprovider: {type: external, command: [./static.py], machines: [10.9.9.9]}\n"
      "node_types: {worker: {max_workers: 2}, head: {}}\nhead_type: head\n";
  instances.configure(cluster_spec_of(read_cluster_file(newer, "c.yaml")).provider_config);
  runtime.run(create_with_steps(instances, out));
  EXPECT_EQ(out, (Words{"machine: from ./static.py", "10.9.9.9"}));
}

constexpr const char* kLauncher = R"py(#!/usr/bin/env python3
import json, sys
launched = []
for line in sys.stdin:
    r = json.loads(line)
    m, p = r["method"], r["params"]
    if m == "hello": result = {"protocol": 1, "methods": ["launch"]}
    elif m == "launch":
        launched += [n["node"] for n in p["nodes"]]
        result = {"failed": {"n-2": {"code": "quota", "message": "two at most"}}}
    elif m == "create": result = {"host": "10.0.0.%d" % (1 + launched.index(p["node"]))}
    else: result = {"nodes": []}
    print(json.dumps({"id": r["id"], "result": result}), flush=True)
)py";

Task<int> launch_into(ExternalInstances& instances, std::vector<NodeOrder> orders, Words& out) {
  const LaunchErrors errors = co_await instances.launch(std::move(orders));
  for (const auto& [node, error] : errors) out.push_back(node.value + ": " + error.message);
  co_return 0;
}

TEST_F(ExternalInstancesTest, AProgramThatCanIsAskedForManyAtOnce) {
  write_program("launcher.py", kLauncher);
  ExternalInstances instances(world, told("  command: [./launcher.py]\n"), settings(), log());
  Words out;
  std::vector<NodeOrder> orders = {external_order("n-1"), external_order("n-2"), external_order("n-3")};
  runtime.run(launch_into(instances, std::move(orders), out));
  EXPECT_EQ(out, Words{"n-2: create n-2: quota: two at most"});
  EXPECT_EQ(calls(instances, {"+n-1", "+n-3"}), (Words{"10.0.0.1", "10.0.0.3"}));
}

TEST_F(ExternalInstancesTest, AProgramThatCannotIsAskedForEach) {
  use_example("static.py");
  ExternalInstances instances(world, told(kMachines), settings(), log());
  Words out;
  std::vector<NodeOrder> orders = {external_order("n-1"), external_order("n-2")};
  runtime.run(launch_into(instances, std::move(orders), out));
  EXPECT_EQ(out, Words{});
  EXPECT_EQ(calls(instances, {"="}), Words{""}) << "nothing was made yet";
}

TEST_F(ExternalInstancesTest, TheHeadsOwnMachineIsNeverAskedFor) {
  use_example("static.py");
  ExternalSettings own = settings();
  own.own = Machine{};
  own.own->host.host = "127.0.0.1";
  own.own->this_machine = true;
  ExternalInstances instances(world, told(kMachines), own, log());
  EXPECT_EQ(calls(instances, {"+head", "?head", "-head", "?head", "="}),
            (Words{"127.0.0.1", "127.0.0.1", "gone", "127.0.0.1", ""}));
}

// ---- replies that make no sense, and machines that take their time ----

constexpr const char* kOdd = R"py(#!/usr/bin/env python3
import json, sys
looks = 0
for line in sys.stdin:
    r = json.loads(line)
    m, p = r["method"], r["params"]
    node = p.get("node", "")
    if m == "hello": result = {"protocol": 1}
    elif m == "list": result = ["n-1"]
    elif m == "create" and node == "evil": result = {"host": "-oProxyCommand=x"}
    elif m == "create": result = {"id": "i-1"}
    elif m == "remove": result = {"pending": True}
    elif node == "lost": result = None
    elif node == "slow": result = {"id": "i-1"}
    else:
        looks += 1
        result = {"id": "i-1", "host": "h"} if looks == 2 else None if looks > 3 else {"id": "i-1"}
    print(json.dumps({"id": r["id"], "result": result}), flush=True)
)py";

TEST_F(ExternalInstancesTest, WaitsForAnAddressAndForTheEnd) {
  write_program("odd.py", kOdd);
  ExternalInstances instances(world, told("  command: [./odd.py]\n"), settings(), log());
  EXPECT_EQ(calls(instances, {"+n-1", "-n-1", "?n-1"}), (Words{"h", "gone", "-"}));
  EXPECT_EQ(calls(instances, {"+lost"}),
            Words{"unavailable: create lost: the machine went away before it had an address"});
  ExternalSettings hasty = settings();
  hasty.create_timeout = 2s;
  ExternalInstances impatient(world, told("  command: [./odd.py]\n"), hasty, log());
  EXPECT_EQ(calls(impatient, {"?lost", "+slow"}),
            (Words{"-", "unavailable: create slow: machine i-1 has no address after 2.0s"}));
}

TEST_F(ExternalInstancesTest, RefusesAnswersThatMakeNoSense) {
  write_program("odd.py", kOdd);
  ExternalInstances instances(world, told("  command: [./odd.py]\n"), settings(), log());
  const Words out = calls(instances, {"=", "+evil"});
  EXPECT_TRUE(has(out[0], "list: the provider's program answered what is no answer: answered list with [\"n-1\"]"));
  EXPECT_TRUE(has(out[1], "\"host\" is not [user@]host[:port]: -oProxyCommand=x")) << out[1];
}

// ---- Ray's classes ----

class RayClassTest : public ExternalInstancesTest {
 protected:
  void SetUp() override {
    std::filesystem::copy(source_path("tests/data/ray_provider"), folder / "ray_provider",
                          std::filesystem::copy_options::recursive);
  }
  std::string section(const std::string& more = "", const std::string& name = "FileNodeProvider") {
    return fmt::format("  module: ray_provider.file_provider.{}\n  file: {}\n{}", name, folder / "cloud.json", more);
  }
  Json cloud() { return Json::parse(os::read_text(folder / "cloud.json")); }
};

TEST_F(RayClassTest, MakesFindsAndEndsNodes) {
  ExternalInstances instances(world, told(section()), settings(), log());
  // The head goes to private addresses, whatever the file says.
  EXPECT_EQ(calls(instances, {"=", "+n-1", "+n-1", "+n-2", "?n-2", "="}),
            (Words{"", "10.1.0.1 10.1.0.1", "10.1.0.1 10.1.0.1", "10.1.0.2 10.1.0.2", "10.1.0.2 10.1.0.2", "n-1 n-2"}));
  EXPECT_FALSE(instances.machines_stay());
  EXPECT_EQ(calls(instances, {"-n-1", "-n-1", "?n-1", "="}), (Words{"gone", "gone", "-", "n-2"}));
  EXPECT_TRUE(has(logged, "FileNodeProvider is here")) << logged;  // what it prints is for the log
  EXPECT_TRUE(has(logged, "and so is its child")) << logged;
}

TEST_F(RayClassTest, GetsTagsAndConfigAsFromRay) {
  ExternalInstances instances(world, told(section("", "WithResources")), settings(), log());
  calls(instances, {"+n-1"});
  const Json call = cloud()["calls"][0];
  EXPECT_EQ(call["count"], 1);
  EXPECT_EQ(call["node_config"]["size"], "l");
  EXPECT_EQ(call["node_config"]["bootstrapped"], true);
  EXPECT_EQ(call["node_config"]["got"], Json::parse(R"([{"CPU": 2}, {"zone": "a"}])"));
  const Json tags = call["tags"];
  EXPECT_EQ(tags["ray-cluster-name"], "lab");
  EXPECT_EQ(tags["ray-node-name"], "ray-lab-worker");
  EXPECT_EQ(tags["ray-node-type"], "worker");
  EXPECT_EQ(tags["ray-user-node-type"], "worker");
  EXPECT_EQ(tags["ray-node-status"], "uninitialized");
  EXPECT_NE(tags["ray-launch-config"], "");
  EXPECT_EQ(tags["rubato-node"], "n-1");
}

Task<int> take_greeting(ExternalInstances& instances, ExternalGreeting& out) {
  out = co_await instances.greet();
  co_return 0;
}

TEST_F(RayClassTest, OnAPersonsMachineReachesPublicAddressesAndCarriesItsConfigOn) {
  ExternalSettings client = settings();
  client.place = ExternalPlace::kClient;
  ExternalInstances instances(world, told(section()), client, log());
  EXPECT_EQ(calls(instances, {"+head"}), Words{"203.0.113.1 10.1.0.1"});
  EXPECT_EQ(cloud()["calls"][0]["tags"]["ray-node-type"], "head");
  ExternalGreeting greeting;
  runtime.run(take_greeting(instances, greeting));
  EXPECT_EQ(greeting.carry["config"]["provider"]["prepared"], true);

  ExternalSettings head = settings();
  head.carry = greeting.carry;
  ExternalInstances at_head(world, told(section()), head, log());
  EXPECT_EQ(calls(at_head, {"?head", "+n-1"}), (Words{"10.1.0.1 10.1.0.1", "10.1.0.2 10.1.0.2"}));
  EXPECT_EQ(cloud()["calls"][1]["node_config"], Json::parse(R"({"size": "l", "bootstrapped": true})"));

  ExternalSettings inside = client;
  ExternalInstances internal(world, told(section("  use_internal_ips: true\n")), inside, log());
  EXPECT_EQ(calls(internal, {"?head"}), Words{"10.1.0.1 10.1.0.1"});
}

TEST_F(RayClassTest, DeathAfterTheLaunchMakesNoSecondMachine) {
  ExternalInstances instances(world, told(section("  dies_once: " + (folder / "died") + "\n")), settings(), log());
  EXPECT_EQ(calls(instances, {"+n-1", "="}), (Words{"10.1.0.1 10.1.0.1", "n-1"}));
  EXPECT_EQ(cloud()["nodes"].size(), 1u);
}

TEST_F(RayClassTest, WaitsForBootAndForListsThatLagBehind) {
  ExternalInstances instances(world, told(section("  boot: 2\n  hidden: 3\n")), settings(), log());
  EXPECT_EQ(calls(instances, {"+n-1"}), Words{"10.1.0.1 10.1.0.1"});
  EXPECT_EQ(cloud()["nodes"].size(), 1u);
}

TEST_F(RayClassTest, ItsExceptionsBecomeErrorsThatWeActOn) {
  const auto reply = [&](const std::string& fails) {
    ExternalInstances instances(world, told(section("  fails: '" + fails + "'\n")), settings(), log());
    return calls(instances, {"+n-1"}).front();
  };
  EXPECT_EQ(reply("InsufficientInstanceCapacity in us-east-1a"),
            "conflict: create n-1: no-capacity: RuntimeError: InsufficientInstanceCapacity in us-east-1a");
  EXPECT_EQ(reply("Quota exceeded: CPUS"), "conflict: create n-1: quota: RuntimeError: Quota exceeded: CPUS");
  EXPECT_EQ(reply("AuthFailure"), "usage: create n-1: auth: RuntimeError: AuthFailure");
  EXPECT_EQ(reply("boom"), "unavailable: create n-1: internal: RuntimeError: boom");
  EXPECT_TRUE(has(logged, "Traceback")) << logged;
}

TEST_F(RayClassTest, AModuleOrClassThatIsNotThereIsSaidWithAFix) {
  const auto reply = [&](const std::string& module) {
    ExternalInstances instances(world, told("  module: " + module + "\n"), settings(), log());
    return calls(instances, {"="}).front();
  };
  EXPECT_TRUE(has(reply("nowhere.Provider"), "usage: list: hello: invalid: cannot import nowhere: No module named"));
  EXPECT_TRUE(has(reply("ray_provider.file_provider.Nobody"),
                  "usage: list: hello: invalid: the module ray_provider.file_provider has no Nobody"));
}

// ---- the file ----

TEST_F(ExternalInstancesTest, SaysWhichFilesItsHeadNeeds) {
  folder.write("tools/make.py", "");
  folder.write("list.txt", "");
  folder.write("mypack/__init__.py", "");
  folder.write("single.py", "");
  const std::string here = folder.path();
  const auto needed = [&](const std::string& provider) { return external_files(files, file(provider), here); };
  EXPECT_EQ(needed("  command: [./tools/make.py, --from, list.txt, ../list.txt, /etc/passwd, nothing]\n"),
            (Words{"list.txt", "tools/make.py"}));
  EXPECT_EQ(needed("  command: [single.py]\n"), Words{});  // from PATH
  EXPECT_EQ(needed("  module: mypack.a.B\n"), Words{"mypack"});
  EXPECT_EQ(needed("  module: single.B\n"), Words{"single.py"});
  EXPECT_EQ(needed("  module: installed.B\n"), Words{});
}

TEST_F(ExternalInstancesTest, TellsTheProgramWhatTheFileSays) {
  const ExternalProgramSpec spec =
      external_program_of(Json::parse(told("  command: [~/p, x]\n  rack: 12\n")), settings());
  EXPECT_FALSE(spec.argv.front().starts_with("~"));
  EXPECT_EQ(spec.hello["provider"]["rack"], 12);
  EXPECT_EQ(spec.hello["provider"]["type"], "external");
  EXPECT_EQ(spec.hello["cluster"], "lab");
  EXPECT_EQ(spec.hello["place"], "head");
  EXPECT_EQ(spec.hello["config"]["available_node_types"]["worker"]["node_config"]["size"], "l");
  EXPECT_EQ(spec.hello["config"]["head_node_type"], "head");
}

}  // namespace
}  // namespace rubato::provider
