// Commands for clusters of other machines, typed at a laptop whose ssh is made here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "cli/commands.h"
#include "cli/doctor_cluster.h"
#include "cli/testing.h"
#include "client/cluster_target.h"
#include "client/remote.h"
#include "core/text.h"
#include "deploy/cluster_tools.h"
#include "deploy/machine_commands.h"
#include "deploy/machine_shell.h"
#include "deploy/up_progress.h"
#include "os/files.h"
#include "os/processes.h"
#include "os/runtime.h"
#include "provider/pod_address.h"

namespace rubato::cli {
namespace {

using nlohmann::json;
using provider::CommandResult;
using provider::SshTarget;

constexpr const char* kLab =
    "cluster_name: lab\n"
    "provider: {type: local, head_ip: 10.0.0.1, worker_ips: [10.0.0.2, 10.0.0.3]}\n"
    "auth: {ssh_user: ubuntu, ssh_private_key: ~/.ssh/lab}\n"
    "max_workers: 2\n";

// What a laptop's ssh was asked to do, and what it says to it.
struct FakeWorld {
  std::string home = scratch("rubato_machine_test");
  std::string file = home + "/lab.yaml";
  os::RealFiles files;
  CannedHead head;
  std::vector<std::string> asked;                  // "run 10.0.0.1", "upload SRC DST"
  std::vector<std::vector<std::string>> in_front;  // argv
  int front_code = 0;
  bool has_program = true;
  bool connected = false;  // its head runs, started by somebody else
  std::optional<provider::HeadMachine> found;  // the machine that a provider finds for the head
  std::string staged;
  std::string tree = "t1";
  std::set<std::string> unreachable;
  std::optional<provider::ExternalGreeting> greeting;

  FakeWorld() {
    std::filesystem::remove_all(home);
    std::filesystem::create_directories(home);
    write(kLab);
  }
  ~FakeWorld() { std::filesystem::remove_all(home); }
  void write(const std::string& text) { std::ofstream(file) << text; }
  std::string folder() const { return home + "/rubato/clusters/lab"; }
  size_t count(const std::string& what) const {
    return static_cast<size_t>(std::count(asked.begin(), asked.end(), what));
  }
  Typed type(const std::vector<std::string>& args);
};

class FakeRemote final : public Remote {
 public:
  explicit FakeRemote(FakeWorld& world) : world_(world) {}

  CommandResult run(const SshTarget& target, provider::Command command) override {
    world_.asked.push_back("run " + target.host);
    if (world_.unreachable.contains(target.host)) throw Error(ErrorCode::kUnavailable, target.host + " is silent");
    CommandResult result;
    if (command.env.contains("PROGRAM")) {
      result.out = "folder /home/u/lab\n";
      if (world_.has_program) result.out += "program /home/u/.rubato/bin/rubato-1\n";
      if (!world_.staged.empty()) result.out += "staged " + world_.staged + "\n";
      result.out += "key ssh-ed25519 AAAA rubato-lab\n";
    } else if (command.script.find("base64") != std::string::npos) {
      if (!world_.connected) {
        result.exit_code = 3;
      } else {
        // {"api":{"port":4242}}, secret, /home/u/lab
        result.out = "folder L2hvbWUvdS9sYWI=\nhead eyJhcGkiOnsicG9ydCI6NDI0Mn19\ntoken c2VjcmV0Cg==\nca Q0E=\n";
      }
    } else if (command.script.find("head.json") != std::string::npos) {
      result.out = "{\"api\": {\"port\": 4242}}\nsecret\n\nCERTIFICATE\n";
    } else if (command.script.find("mounts.hash") != std::string::npos) {
      world_.staged = std::string(trim(command.input));
    }
    return result;
  }
  void upload(const SshTarget&, const std::string& local, const std::string& remote, provider::SyncOptions) override {
    world_.asked.push_back("upload " + local + " " + remote);
  }
  void download(const SshTarget&, const std::string& remote, const std::string& local, provider::SyncOptions) override {
    world_.asked.push_back("download " + remote + " " + local);
  }
  void upload_inside(const SshTarget&, provider::ContainerSpec container, const std::string& local,
                     const std::string& remote, provider::SyncOptions) override {
    world_.asked.push_back("upload " + local + " " + container.container.name + ":" + remote);
  }
  void download_inside(const SshTarget&, provider::ContainerSpec container, const std::string& remote,
                       const std::string& local, provider::SyncOptions) override {
    world_.asked.push_back("download " + container.container.name + ":" + remote + " " + local);
  }
  std::string tree_hash(const std::string&, provider::SyncOptions) override { return world_.tree; }
  std::string program_name() override { return "rubato-1"; }
  std::string put_program(const SshTarget& target) override {
    world_.asked.push_back("program " + target.host);
    return "/home/u/.rubato/bin/rubato-1";
  }
  std::vector<Outcome> run_all(std::vector<HostCommand> host_commands) override {
    std::vector<Outcome> out;
    for (const HostCommand& one : host_commands) {
      Outcome outcome;
      try {
        outcome.result = run(one.target, one.command);
      } catch (const Error& error) {
        outcome.error = error;
      }
      out.push_back(std::move(outcome));
    }
    return out;
  }
  void connect(const SshTarget& target) override { world_.asked.push_back("connect " + target.host); }
  void forward(const SshTarget&, const std::string&, uint16_t) override {}
  void disconnect(const SshTarget&) override {}
  void disconnect_all(const std::string&) override {}
  provider::HeadMachine make_head_machine(const ClusterFile&, provider::HeadMachineSettings) override { return {}; }
  std::optional<provider::HeadMachine> find_head_machine(const ClusterFile&, provider::HeadMachineSettings) override {
    return world_.found;
  }
  provider::ExternalGreeting greet_external(const ClusterFile&, provider::ExternalSettings) override {
    if (!world_.greeting) throw Error(ErrorCode::kFailed, "it says nothing", "", "teach it to speak");
    return *world_.greeting;
  }
  provider::HeadMachine end_head_machine(const ClusterFile&, provider::HeadMachineSettings) override { return {}; }
  std::vector<provider::LivePrice> live_prices(const ClusterFile&) override { return {}; }
  int in_front(const SshTarget& target, const provider::SshOptions& options) override {
    return in_front_here(provider::ssh_argv(target, options));
  }
  int in_front_here(const std::vector<std::string>& argv) override {
    world_.in_front.push_back(argv);
    return world_.front_code;
  }

 private:
  FakeWorld& world_;
};

struct NoHold final : FolderHold {};

class LaptopTools final : public ClusterTools {
 public:
  explicit LaptopTools(FakeWorld& world) : world_(world) {}
  Files& files() override { return world_.files; }
  Daemons& daemons() override { throw Error(ErrorCode::kFailed, "no daemon is started on a laptop"); }
  MachineFacts machine() override { return {}; }
  std::string program() override { return "/bin/rubato"; }
  void make_identity(const ClusterPlace&, const std::string&) override {}
  bool run_script(const std::string&, const std::string&) override { return false; }
  std::unique_ptr<FolderHold> try_hold(const ClusterPlace& place) override {
    world_.files.make_folders(place.folder);
    return std::make_unique<NoHold>();
  }

 private:
  FakeWorld& world_;
};

Typed FakeWorld::type(const std::vector<std::string>& args) {
  Typed typed;
  Shell shell{.env = {{"XDG_STATE_HOME", home}, {"HOME", "/h"}}};
  shell.out = [&](std::string_view text) { typed.out += text; };
  shell.err = [&](std::string_view text) { typed.err += text; };
  shell.now = [] { return *parse_time("2026-11-15T04:00:00Z"); };
  shell.open_api = [this](const ClusterPlace&) { return std::make_unique<CannedApi>(head); };
  shell.cluster_tools = [this] { return std::make_unique<LaptopTools>(*this); };
  shell.remote = [this] { return std::make_unique<FakeRemote>(*this); };
  typed.code = run_cli(args, shell);
  return typed;
}

TEST(RemoteUp, PutsWhatIsMissingAndRunsUpThere) {
  FakeWorld world;
  world.has_program = false;
  world.write(std::string(kLab) + "file_mounts: {/srv/code: /tmp}\n");
  const Typed typed = world.type({"up", world.file, "-y"});
  EXPECT_EQ(typed.code, 0) << typed.err;
  EXPECT_EQ(world.count("program 10.0.0.1"), 1u);
  EXPECT_EQ(world.count("run 10.0.0.2"), 1u);  // lets the head's key in
  ASSERT_EQ(world.in_front.size(), 1u);
  const std::string there = world.in_front[0].back();
  EXPECT_NE(there.find("/home/u/.rubato/bin/rubato-1 up /home/u/lab/incoming/cluster.yaml --here"), std::string::npos);
  EXPECT_NE(there.find("--files-hash " + world.staged), std::string::npos) << there;
  EXPECT_EQ(typed.err,
            "[1/5] ubuntu@10.0.0.1 is reached\n"
            "[2/5] 10.0.0.1 has rubato now\n"
            "[3/5] 1 path of file_mounts: new contents on 10.0.0.1 (nothing new to send)\n"
            "[4/5] 2 workers let the head in\n"
            "[5/5] the head, on 10.0.0.1\n");
  EXPECT_EQ(world.files.read(world.folder() + "/token"), "secret\n");
  EXPECT_EQ(json::parse(*world.files.read(world.folder() + "/remote.json")).at("api_port"), 4242);
}

TEST(RemoteUp, TheSecondTimeNothingIsSent) {
  FakeWorld world;
  world.write(std::string(kLab) + "file_mounts: {/srv/code: /tmp}\n");
  world.type({"up", world.file});
  world.asked.clear();
  const Typed again = world.type({"up", world.file});
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(world.asked, (std::vector<std::string>{"connect 10.0.0.1", "run 10.0.0.1", "run 10.0.0.1"}));
  world.tree = "t2";
  EXPECT_NE(world.type({"up", world.file}).err.find("[3/5]"), std::string::npos);
}

TEST(RemoteUp, ADryRunKnowsTheFiles) {
  FakeWorld world;
  world.write(std::string(kLab) + "file_mounts: {/srv/code: /tmp}\n");
  world.type({"up", world.file});
  world.asked.clear();
  EXPECT_EQ(world.type({"up", world.file, "--dry-run"}).err, "");
  EXPECT_NE(world.in_front.back().back().find("--files-hash " + world.staged), std::string::npos);
  EXPECT_EQ(world.asked, (std::vector<std::string>{"connect 10.0.0.1", "run 10.0.0.1"}));
}

TEST(RemoteUp, AWorkerThatDoesNotAnswerHoldsUpNobody) {
  FakeWorld world;
  world.unreachable = {"10.0.0.3"};
  const Typed typed = world.type({"up", world.file});
  EXPECT_EQ(typed.code, 0);
  EXPECT_NE(typed.err.find("note: 10.0.0.3 does not let the head in yet: 10.0.0.3 is silent"), std::string::npos);
  EXPECT_NE(typed.err.find("1 of 2 workers let the head in"), std::string::npos);
  EXPECT_EQ(world.count("run 10.0.0.3"), 2u);  // straight, and by way of the head
}

TEST(RemoteUp, AnotherHeadNeedsADownFirst) {
  FakeWorld world;
  world.type({"up", world.file});
  std::string moved = kLab;
  world.write(moved.replace(moved.find("10.0.0.1"), 8, "10.0.0.9"));
  const Typed typed = world.type({"up", world.file});
  EXPECT_EQ(typed.code, 1);
  EXPECT_NE(typed.err.find("the head of 'lab' is 10.0.0.1, the file says 10.0.0.9"), std::string::npos);
}

TEST(RemoteDown, ForgetsTheClusterAndTakesTheKeyBack) {
  FakeWorld world;
  world.type({"up", world.file});
  world.asked.clear();
  EXPECT_EQ(world.type({"down", "lab", "-y"}).code, 0);
  EXPECT_NE(world.in_front.back().back().find("down --here --cluster lab --yes"), std::string::npos);
  EXPECT_EQ(world.count("run 10.0.0.2") + world.count("run 10.0.0.3"), 2u);
  EXPECT_FALSE(world.files.exists(world.folder() + "/remote.json"));
  EXPECT_FALSE(world.files.exists(world.folder() + "/token"));
  EXPECT_NE(world.type({"down", world.file, "-y"}).err.find("is not running"), std::string::npos);
}

TEST(RemoteDown, APurgeAfterDownGoesToEveryMachineThatEverBelonged) {
  FakeWorld world;
  world.type({"up", world.file});
  // One that the file names no more.
  std::string smaller = kLab;
  const size_t at = smaller.find(", 10.0.0.3");
  ASSERT_NE(at, std::string::npos);
  world.write(smaller.erase(at, 10));
  world.type({"up", world.file});
  EXPECT_EQ(world.type({"down", "lab", "-y"}).code, 0);
  world.asked.clear();
  const Typed purged = world.type({"down", "--purge", "lab", "-y"});
  EXPECT_EQ(purged.code, 0) << purged.err;
  EXPECT_NE(world.in_front.back().back().find("down --here --cluster lab --yes --purge"), std::string::npos);
  for (const char* host : {"10.0.0.1", "10.0.0.2", "10.0.0.3"}) {
    EXPECT_GE(world.count(std::string("run ") + host), 1u) << host;
  }
  EXPECT_NE(purged.err.find("nothing of 'lab' is left here, nor on 3 machines"), std::string::npos) << purged.err;
  EXPECT_FALSE(world.files.exists(world.folder()));
}

TEST(RemoteDown, APurgeKeepsWhatItCouldNotReachForTheNextOne) {
  FakeWorld world;
  world.type({"up", world.file});
  world.unreachable = {"10.0.0.3"};
  const Typed first = world.type({"down", "--purge", "lab", "-y"});
  EXPECT_EQ(first.code, 1);
  EXPECT_NE(first.err.find("note: 10.0.0.3 was not cleaned: 10.0.0.3 is silent"), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("rubato down --purge lab"), std::string::npos) << first.err;
  world.unreachable.clear();
  world.asked.clear();
  world.in_front.clear();
  const Typed second = world.type({"down", "--purge", "lab", "-y"});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(world.count("run 10.0.0.3"), 1u);
  EXPECT_FALSE(world.files.exists(world.folder()));
}

TEST(Connect, KnowsAClusterThatRunsAndChangesNothingThere) {
  FakeWorld world;
  world.connected = true;
  world.head.reply("GET status", {{"nodes", json::array({json::object()})}});
  const Typed asked = world.type({"status", world.file});
  EXPECT_EQ(asked.code, 1);
  EXPECT_NE(asked.err.find("rubato connect " + world.file), std::string::npos) << asked.err;
  const Typed typed = world.type({"connect", world.file});
  EXPECT_EQ(typed.code, 0) << typed.err;
  EXPECT_NE(typed.err.find("connected to 'lab' on 10.0.0.1: 1 node"), std::string::npos) << typed.err;
  EXPECT_EQ(world.asked, (std::vector<std::string>{"connect 10.0.0.1", "run 10.0.0.1"}));
  EXPECT_TRUE(world.in_front.empty());
  EXPECT_EQ(world.files.read(world.folder() + "/token"), "secret\n");
  EXPECT_EQ(json::parse(*world.files.read(world.folder() + "/remote.json")).at("api_port"), 4242);
  EXPECT_EQ(json::parse(world.type({"connect", world.file, "--json"}).out).at("nodes").size(), 1u);
}

TEST(Connect, SaysThatNothingRunsThere) {
  FakeWorld world;
  const Typed typed = world.type({"connect", world.file});
  EXPECT_EQ(typed.code, 1);
  EXPECT_NE(typed.err.find("'lab' is not up on 10.0.0.1"), std::string::npos) << typed.err;
  EXPECT_FALSE(world.files.exists(world.folder()));
  EXPECT_EQ(world.type({"connect", "lab"}).code, 2);
}

// Its provider knows which pod has the head; the file does not.
TEST(Connect, FindsTheHeadThatAProviderHasMade) {
  FakeWorld world;
  world.write(
      "cluster_name: lab\nprovider: {type: kubernetes}\nhead_node_type: a\n"
      "available_node_types: {a: {node_config: {spec: {containers: [{image: i}]}}}}\n");
  world.connected = true;
  world.head.reply("GET status", {{"nodes", json::array()}});
  const Typed unknown = world.type({"connect", world.file});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("does not say which machine has the head"), std::string::npos) << unknown.err;
  world.found.emplace();
  world.found->found = false;
  const Typed absent = world.type({"connect", world.file});
  EXPECT_EQ(absent.code, 1);
  EXPECT_NE(absent.err.find("'lab' has no head that runs"), std::string::npos) << absent.err;
  EXPECT_TRUE(world.asked.empty());
  EXPECT_FALSE(world.files.exists(world.folder()));
  provider::PodAddress pod;
  pod.namespace_name = "ml";
  pod.pod = "lab-head";
  pod.container = "node";
  world.found->found = true;
  world.found->host.host = to_string(pod);
  world.found->instance = "lab-head.uid";
  const Typed typed = world.type({"connect", world.file});
  EXPECT_EQ(typed.code, 0) << typed.err;
  EXPECT_EQ(world.asked, (std::vector<std::string>{"connect " + to_string(pod), "run " + to_string(pod)}));
  const json noted = json::parse(*world.files.read(world.folder() + "/remote.json"));
  EXPECT_EQ(noted.at("api_port"), 4242);
  EXPECT_NE(noted.dump().find("lab-head.uid"), std::string::npos) << noted;
}

// It must not run here instead.
TEST(Exec, NeedsAClusterThatIsUpOnThisMachineToo) {
  FakeWorld world;
  world.write(
      "cluster_name: own\nprovider: {type: local}\n"
      "available_node_types: {a: {resources: {CPU: 1}, min_workers: 1}}\n");
  const Typed typed = world.type({"exec", world.file, "touch x"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_EQ(typed.err, "error: 'own' is not up\n  fix start it with: rubato up " + world.file + ", or add --start\n");
  EXPECT_TRUE(world.in_front.empty());
}

TEST(Exec, HasTheCommandsExitCode) {
  FakeWorld world;
  const Typed down = world.type({"exec", world.file, "exit 7"});
  EXPECT_EQ(down.err, "error: 'lab' is not up, as far as this machine knows\n  fix start it with: rubato up " +
                          world.file + ", or add --start; if it runs, started from another machine: rubato connect " +
                          world.file + "\n");
  EXPECT_EQ(down.code, 1);
  world.type({"up", world.file});
  world.in_front.clear();
  world.front_code = 7;
  EXPECT_EQ(world.type({"exec", world.file, "exit 7"}).code, 7);
  const auto& argv = world.in_front.at(0);
  EXPECT_EQ(argv.front(), "ssh");
  EXPECT_NE(std::find(argv.begin(), argv.end(), "10.0.0.1"), argv.end());
  EXPECT_NE(argv.back().find("bash --login -i -c"), std::string::npos);
  world.front_code = kNoMultiplexer;
  const Typed missing = world.type({"exec", world.file, "x", "--tmux"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.err.find("there is no tmux on 10.0.0.1"), std::string::npos) << missing.err;
  EXPECT_EQ(world.type({"exec", world.file}).code, 2);
  EXPECT_EQ(world.type({"exec", world.file, "x", "--run-env", "moon"}).code, 2);
  EXPECT_EQ(world.type({"exec", world.file, "x", "--run-env", "docker"}).code, 2);
}

TEST(Exec, PortsHaveAConnectionOfTheirOwn) {
  FakeWorld world;
  world.type({"up", world.file});
  world.in_front.clear();
  world.type({"exec", world.file, "serve", "-p", "8899", "-p", "80:8080"});
  const std::string command_line = shell_join(world.in_front.at(0));
  EXPECT_NE(command_line.find("-L 127.0.0.1:8899:127.0.0.1:8899"), std::string::npos);
  EXPECT_NE(command_line.find("-L 127.0.0.1:80:127.0.0.1:8080"), std::string::npos);
  EXPECT_EQ(command_line.find("ControlPath"), std::string::npos);
  EXPECT_EQ(world.type({"exec", world.file, "serve", "-p", "http"}).code, 2);
}

TEST(Exec, StopEndsTheClusterOnTheHeadAndHere) {
  FakeWorld world;
  world.type({"exec", world.file, "train", "--start", "--stop"});
  ASSERT_EQ(world.in_front.size(), 3u);  // up, the command, down
  EXPECT_NE(world.in_front[1].back().find("down -y --here --cluster lab"), std::string::npos);
  EXPECT_FALSE(world.files.exists(world.folder() + "/remote.json"));
}

// A cluster must not be started for a command that cannot be run, nor ended after it.
TEST(Exec, WrongWordsTouchNothing) {
  FakeWorld world;
  using Words = std::vector<std::string>;
  for (const Words& wrong : {Words{"--screen", "--tmux"}, Words{"--run-env", "moon"}, Words{"-p", "http"}}) {
    Words command_line = {"exec", world.file, "x", "--start", "--stop"};
    command_line.insert(command_line.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(world.type(command_line).code, 2) << wrong.front();
    command_line[0] = "attach";
    command_line.erase(command_line.begin() + 4);
    command_line.erase(command_line.begin() + 2);
    EXPECT_EQ(world.type(command_line).code, 2) << wrong.front();
  }
  EXPECT_EQ(world.type({"attach", world.file, "--start", "--new"}).code, 2);
  EXPECT_EQ(world.type({"rsync-up", world.file, "one"}).code, 2) << "though it is not up";
  EXPECT_TRUE(world.in_front.empty());
  EXPECT_FALSE(world.files.exists(world.folder() + "/remote.json"));
}

TEST(Exec, OnThisMachineItIsPlainBash) {
  FakeWorld world;
  world.write(
      "cluster_name: here\nprovider: {type: local}\n"
      "available_node_types: {a: {resources: {CPU: 1}, min_workers: 1}}\n");
  const std::string head = world.home + "/rubato/clusters/here/head";
  world.files.make_folders(head);
  world.files.write_atomically(head + "/head.json", "{}");
  world.type({"exec", world.file, "echo hi"});
  const auto& argv = world.in_front.at(0);
  EXPECT_EQ(argv[0], "bash");
  EXPECT_NE(argv.back().find("export RUBATO_CLUSTER=here"), std::string::npos);
  EXPECT_TRUE(argv.back().ends_with("echo hi"));
  EXPECT_EQ(world.type({"get-head-ip", world.file}).out, "127.0.0.1\n");
}

TEST(Submit, AClusterFileInFrontMeansRaysSubmit) {
  EXPECT_TRUE(is_submit_to_cluster(submit_to_table(), {"c.yaml", "train.py"}));
  EXPECT_TRUE(is_submit_to_cluster(submit_to_table(), {"--start", "-p", "8899", "c.yml", "train.py"}));
  EXPECT_FALSE(is_submit_to_cluster(submit_to_table(), {"train.py", "c.yaml"}));
  EXPECT_FALSE(is_submit_to_cluster(submit_to_table(), {"--name", "c.yaml", "train.py"}));
  FakeWorld world;
  std::ofstream(world.home + "/train.py") << "";
  world.type({"up", world.file});
  world.in_front.clear();
  world.type({"submit", world.file, world.home + "/train.py", "--epochs", "3"});
  EXPECT_EQ(world.count("upload " + world.home + "/train.py ~/train.py"), 1u);
  EXPECT_NE(world.in_front.at(0).back().find("train.py --epochs 3"), std::string::npos);
}

TEST(Rsync, WithoutPathsItIsTheMounts) {
  FakeWorld world;
  world.write(std::string(kLab) + "file_mounts: {/srv/code: ~/code}\n");
  EXPECT_EQ(world.type({"rsync_up", world.file}).code, 1);  // it is not up
  world.type({"up", world.file});
  EXPECT_EQ(world.type({"rsync_up", world.file}).code, 0);
  EXPECT_EQ(world.count("upload /h/code /srv/code"), 1u);
  world.type({"rsync-down", world.file, "/srv/out", "/tmp/out/"});
  EXPECT_EQ(world.count("download /srv/out /tmp/out/"), 1u);
  EXPECT_EQ(world.type({"rsync-up", world.file, "one"}).code, 2);
}

TEST(Rsync, MeansTheContainerIfThereIsOne) {
  FakeWorld world;
  world.write(std::string(kLab) + "docker: {image: i, container_name: box}\n");
  world.type({"up", world.file});
  world.type({"rsync-up", world.file, "/a", "~/b"});
  EXPECT_EQ(world.count("upload /a box:~/b"), 1u);
  world.type({"rsync-up", world.file, "/a", "~/b", "--run-env", "host"});
  EXPECT_EQ(world.count("upload /a ~/b"), 1u);
  world.type({"rsync-down", world.file, "~/b", "/c"});
  EXPECT_EQ(world.count("download box:~/b /c"), 1u);
  std::ofstream(world.home + "/train.py") << "";
  world.type({"submit", world.file, world.home + "/train.py"});
  EXPECT_EQ(world.count("upload " + world.home + "/train.py box:~/train.py"), 1u);
}

TEST(MachineWords, EachClusterHasSessionsOfItsOwn) {
  AttachCommand command_line;
  command_line.cluster = "lab";
  command_line.program = "/b/rubato";
  command_line.multiplexer = Multiplexer::kTmux;
  const std::string tmux = attach_line(command_line);
  EXPECT_NE(tmux.find("tmux -L rubato-lab has-session"), std::string::npos) << tmux;
  command_line.multiplexer = Multiplexer::kScreen;
  EXPECT_NE(attach_line(command_line).find("screen -L -S rubato-lab. -xRR"), std::string::npos)
      << attach_line(command_line);
  command_line.fresh = true;
  EXPECT_EQ(attach_line(command_line).find("-xRR"), std::string::npos);
}

std::optional<pid_t> pid_in(const std::string& path) {
  pid_t pid = 0;
  return std::ifstream(path) >> pid ? std::optional(pid) : std::nullopt;
}

Task<bool> comes(Loop& loop, std::function<bool()> condition) {
  for (int i = 0; i < 15'000; ++i) {
    if (condition()) co_return true;
    co_await Sleep(loop, loop.now() + 10ms);
  }
  co_return false;
}

// Until the command runs; then the group of `rubato while-heard` gets its signal.
Task<int> end_while_it_runs(os::Runtime& runtime, os::RealProcesses& processes, std::string folder, std::string line) {
  SpawnSpec spec;
  spec.argv = {"/bin/sh", "-c", std::move(line)};
  spec.env = {"PATH=" + folder + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + folder};
  const std::unique_ptr<Process> client = processes.spawn(spec);
  std::function<bool()> runs = [&folder] { return pid_in(folder + "/inner") && pid_in(folder + "/group"); };
  const bool begun = co_await comes(runtime, std::move(runs));
  if (!begun) co_return 1;
  const pid_t inner = *pid_in(folder + "/inner");
  if (::kill(inner, 0) != 0) co_return 2;
  ::kill(-*pid_in(folder + "/group"), SIGTERM);
  std::function<bool()> is_gone = [inner] { return ::kill(inner, 0) != 0; };
  const bool gone = co_await comes(runtime, std::move(is_gone));
  (void)co_await client->wait();
  co_return gone ? 0 : 3;
}

// A machine whose docker starts what it is told in a session of its own, which outlives the client, as the real one.
TEST(MachineWords, ACommandInAContainerEndsWithWhoeverTypedIt) {
  const std::string folder = scratch("rubato_container_test");
  std::filesystem::create_directories(folder);
  const auto program = [&](const char* name, const std::string& text) {
    std::ofstream(folder + "/" + name) << "#!/bin/sh\ncd " << folder << "\n" << text;
    std::filesystem::permissions(folder + "/" + name, std::filesystem::perms::owner_all);
  };
  program("rubato",
          "shift; [ \"$1\" = true ] && exit\n"
          "setsid \"$@\" & echo $! >group.new; mv group.new group; wait $!\n");
  program("docker",
          "shift; mark=none=\n"
          "while [ \"$1\" != box ]; do [ \"$1\" != -e ] || { mark=$2; shift; }; shift; done; shift\n"
          "setsid env \"$mark\" \"$@\" & wait $!\n");
  ExecCommand command_line;
  command_line.cluster = "lab";
  command_line.program = folder + "/rubato";
  command_line.container = "box";
  command_line.script = fmt::format("cd {}; echo $$ >inner.new; mv inner.new inner; exec sleep 1000", folder);
  os::Runtime runtime;
  os::RealProcesses processes(runtime);
  EXPECT_EQ(runtime.run(end_while_it_runs(runtime, processes, folder, exec_line(command_line))), 0);
  std::filesystem::remove_all(folder);
}

TEST(DoctorCluster, AProvidersProgramIsARow) {
  FakeWorld world;
  world.write(
      "cluster_name: lab\nprovider: {type: external, command: [./p]}\n"
      "available_node_types: {h: {resources: {CPU: 1}}}\nhead_node_type: h\n");
  const Typed broken = world.type({"doctor", world.file});
  EXPECT_EQ(broken.code, 1);
  EXPECT_NE(broken.out.find("program  fail   it says nothing\n         fix    teach it to speak\n"), std::string::npos)
      << broken.out << broken.err;
  world.greeting.emplace();
  world.greeting->name = "p";
  world.greeting->version = "1.0";
  const Typed well = world.type({"doctor", world.file});
  EXPECT_EQ(well.code, 0) << well.err;
  EXPECT_NE(well.out.find("p 1.0 answers"), std::string::npos) << well.out;
}

TEST(ClusterText, OverridesArePutWhereTheKeyStands) {
  ClusterText text;
  text.path = "c.yaml";
  text.text = kLab;
  text.file = read_cluster_file(text.text, text.path);
  ParsedCommand parsed;
  parsed.given["cluster-name"] = {.values = {"other"}, .origin = "--cluster-name"};
  parsed.given["max-workers"] = {.values = {"1"}, .origin = "--max-workers"};
  const ClusterText changed = with_overrides(text, parsed);
  EXPECT_TRUE(changed.text.starts_with("cluster_name: other\nprovider:")) << changed.text;
  EXPECT_NE(changed.text.find("\nmax_workers: 1\n"), std::string::npos) << changed.text;
  EXPECT_EQ(changed.file.name, "other");
  EXPECT_EQ(changed.file.autoscaling.max_workers, 1);
  const ClusterText none = without_min_workers(text);
  for (const auto& [name, type] : none.file.types) EXPECT_EQ(type.min_workers, 0) << name << none.text;
  parsed.given["max-workers"].values = {"many"};
  EXPECT_EQ(usage_error([&] { with_overrides(text, parsed); }).code, ErrorCode::kUsage);
}

TEST(ClusterText, ShellsAreChosenOnTheCommandLineToo) {
  ClusterText text;
  text.path = "c.yaml";
  text.text = kLab;
  text.file = read_cluster_file(text.text, text.path);
  ParsedCommand parsed;
  parsed.given["use-login-shells"] = {};
  EXPECT_EQ(with_overrides(text, parsed).text, text.text) << "that is so already";
  parsed.given["use-normal-shells"] = {};
  EXPECT_EQ(usage_error([&] { with_overrides(text, parsed); }).code, ErrorCode::kUsage);
  parsed.given.erase("use-login-shells");
  EXPECT_FALSE(with_overrides(text, parsed).file.commands.login_shells);
}

api::Node node(const char* id, const char* phase, const char* step, const char* detail) {
  api::Node node;
  node.id = id;
  node.phase = phase;
  node.step = step;
  node.detail = detail;
  return node;
}

api::Status status_of(std::vector<api::Node> nodes) {
  api::Status status;
  status.nodes = std::move(nodes);
  return status;
}

api::Event node_failed(const char* node, const char* error) {
  api::Event event;
  event.type = "node-failed";
  event.node = node;
  event.data = {{"error", error}};
  return event;
}

TEST(UpProgress, TellsEachStepOnceAndStopsWhenAllHaveAnswered) {
  UpProgress progress(2);
  progress.take({}, {}, false, {});
  const api::Status first =
      status_of({node("head", "up", "", ""), node("worker-1", "requested", "setup", "`pip install x`")});
  EXPECT_EQ(progress.take(first, {}, true, {}), "  worker-1      4/6 setup: `pip install x`\n");
  EXPECT_EQ(progress.take(first, {}, true, {}), "");
  EXPECT_FALSE(progress.done());
  EXPECT_EQ(progress.take(first, {node_failed("worker-1", "exit code 3\n    boom")}, true, {}),
            "  worker-1 failed: exit code 3\n    boom\n");
  EXPECT_TRUE(progress.given_up());
  EXPECT_EQ(progress.failed_node(), "worker-1");
  progress.take(status_of({node("head", "up", "", ""), node("worker-2", "up", "", "")}), {}, false, {});
  EXPECT_TRUE(progress.done());
}

TEST(UpProgress, WaitsWhileTheHeadLooksElsewhereForAMachine) {
  UpProgress progress(2);
  progress.take({}, {}, false, {});
  api::Event none = node_failed("worker-1", "no capacity in this zone");
  none.data["code"] = 1;
  const api::Node head = node("head", "up", "", "");
  Style look;
  const auto pass = [&](Duration time) { look.now += std::chrono::floor<WallTime::duration>(time); };
  progress.take(status_of({head}), {none}, false, look);
  EXPECT_FALSE(progress.given_up()) << "the head is about to ask for another";
  pass(4s);
  progress.take(status_of({head, node("worker-2", "requested", "", "")}), {}, false, look);
  pass(1min);
  progress.take(status_of({head}), {}, false, look);
  EXPECT_FALSE(progress.given_up());
  pass(UpProgress::kElsewhereMax);
  progress.take(status_of({head}), {}, false, look);
  EXPECT_TRUE(progress.given_up()) << "nobody asks for one any more";
}

TEST(UpProgress, AFailureOfWhatWasBegunBeforeIsNotThisOnes) {
  UpProgress progress(1);
  const api::Status before = status_of({node("worker-1", "requested", "setup", "")});
  progress.take(before, {}, false, {});
  EXPECT_NE(progress.take(before, {node_failed("worker-1", "old")}, false, {}), "");
  EXPECT_FALSE(progress.given_up());
}

TEST(DoctorCluster, StopsAtTheStepThatFails) {
  HostFacts facts;
  facts.host = "gone";
  facts.resolved.error = "no such name";
  EXPECT_EQ(judge_host(facts, {}).size(), 1u);
  facts.resolved.addresses = {"10.0.0.1"};
  facts.door = os::EndpointProbe{.result = os::EndpointProbe::Result::kRefused};
  auto findings = judge_host(facts, {});
  EXPECT_EQ(findings.back().check, "port");
  EXPECT_EQ(findings.back().health, Health::kFail);
  facts.door->result = os::EndpointProbe::Result::kConnected;
  facts.login = Error(ErrorCode::kUsage, "the key is refused", "", "add it");
  findings = judge_host(facts, {});
  EXPECT_EQ(findings.back().check, "key");
  EXPECT_EQ(findings.back().fix, "add it");
}

TEST(DoctorCluster, JudgesWhatAHostSays) {
  HostFacts facts;
  facts.direct = false;
  facts.asked_at = *parse_time("2026-11-15T04:00:00Z");
  facts.answered_at = facts.asked_at + 20s;  // a slow host
  const auto clock = std::to_string(to_ms(facts.asked_at.time_since_epoch()) / 1000 + 600);
  facts.said = {{"user", "ubuntu"},   {"home", "yes"},          {"disk", "1000"},
                {"clock", clock},     {"clock-last", clock},    {"docker", "20.1"},
                {"python", "3.11.2"}, {"torch", "2.1.0+cpu 0"}, {"gpu", "4"}};
  std::map<std::string, Health> found;
  HostWants wants;
  wants.docker = true;
  for (const Finding& one : judge_host(facts, wants)) found[one.check] = one.health;
  EXPECT_EQ(found.at("disk"), Health::kFail);
  EXPECT_EQ(found.at("clock"), Health::kFail);
  EXPECT_EQ(found.at("docker"), Health::kOk);
  EXPECT_EQ(found.at("sudo"), Health::kWarn);
  EXPECT_EQ(found.at("PyTorch"), Health::kOk);
  EXPECT_EQ(found.at("GPU"), Health::kWarn);  // PyTorch sees none of four
}

}  // namespace
}  // namespace rubato::cli
