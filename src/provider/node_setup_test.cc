// One node through all steps: over a real sshd with a stand-in for the rubato program, and on a scripted runner for
// what cannot be had from a real one.
#include "provider/node_setup.h"

#include <deque>
#include <fstream>

#include "core/text.h"
#include "provider/local_runner.h"
#include "provider/node_plan.h"
#include "provider/node_scripts.h"
#include "provider/ssh_testing.h"

namespace rubato::provider {
namespace {

// Does what `rubato version` and `rubato daemon` do, and notes its calls. Its agent sleeps.
constexpr const char* kStandIn = R"sh(#!/bin/sh
echo "$*" >>"$HOME/calls"
if [ "$1" = version ]; then exit 0; fi
d=$3; if [ "$2" = --grace ]; then d=$5; shift 2; fi
case $2 in
  start) [ -e "$HOME/agent-fails" ] && { echo "bad certificate" >"$d/daemon.log"; exit 0; }
    env >"$HOME/agent-env"; umask >"$HOME/agent-umask"
    setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! >"$d/daemon.pid" ;;
  running) kill -0 "$(cat "$d/daemon.pid" 2>/dev/null)" 2>/dev/null ;;
  stop) kill "$(cat "$d/daemon.pid" 2>/dev/null)" 2>/dev/null; rm -f "$d/daemon.pid" ;;
esac
)sh";

class NodeSetupTest : public SshTest {
 protected:
  void SetUp() override {
    SshTest::SetUp();
    if (IsSkipped()) return;
    folder.write("rubato", kStandIn);
    ::chmod((folder / "rubato").c_str(), 0755);
    spec.cluster = "c";
    spec.node.value = "small-1";
    spec.runtime_hash = "hash-1";
    spec.agent.node = spec.node;
    spec.agent.address = "10.0.0.7";
    spec.agent.head.host = "10.0.0.1";
    spec.identity.ca = "the ca\n";
    spec.identity.certificate = "it's the certificate\n";
    spec.identity.key = "the secret key\n";
    spec.log_file = folder / "logs/small-1.log";
    spec.limits.reachable = os::kTestPatience;
    spec.limits.again_first = 1ms;
  }
  void TearDown() override {
    if (IsSkipped()) return;
    SshRunner ssh = runner();
    NodeEnd end = ending();
    (void)error_of(stop_node(ssh, end));
    SshTest::TearDown();
  }
  NodeEnd ending() {
    NodeEnd end;
    end.cluster = "c";
    end.node = spec.node;
    end.grace = 1s;
    return end;
  }
  std::optional<Error> set_up() {
    SshRunner ssh = runner();
    RemoteBinary binary(world, settings(), folder / "rubato", folder / "cache");
    steps.clear();
    std::function<void(SetupStep, std::string)> on_step = [this](SetupStep step, const std::string& detail) {
      steps.push_back(fmt::format("{}: {}", to_string(step), detail));
    };
    return error_of(set_up_node(world, settings(), ssh, binary, spec, on_step));
  }
  std::string node_file(const std::string& name) {
    return os::read_text(home + "/.rubato/clusters/c/nodes/small-1/" + name);
  }
  std::string calls() { return os::read_text(home + "/calls"); }
  bool has_step(const std::string& text) {
    return std::ranges::any_of(steps, [&](const auto& step) { return step.find(text) != std::string::npos; });
  }

  NodeSetupSpec spec;
  std::vector<std::string> steps;
};

TEST_F(NodeSetupTest, ANodeComesUpInOrder) {
  folder.write("mount/data.txt", "d");
  NodeMount mount;
  mount.local = folder / "mount";
  mount.remote = "~/data";
  spec.mounts = {mount};
  spec.host_commands = {"cat ~/data/data.txt; echo init >>~/order"};
  spec.setup_commands = {"echo $WHO setup >>~/order", "echo second >>~/order"};
  spec.before_agent = {"export FOR_WORKERS=yes"};
  spec.after_agent = {"echo after >>~/order"};
  spec.env = {{"WHO", "my"}};
  spec.agent.denied = {"CPU"};
  ASSERT_FALSE(set_up());
  EXPECT_EQ(os::read_text(home + "/order"), "init\nmy setup\nsecond\nafter\n");
  EXPECT_TRUE(has_step("reachable: connecting to 127.0.0.1"));
  EXPECT_TRUE(has_step("files: ~/data (1 of 1)"));
  EXPECT_TRUE(has_step("setup: `echo second >>~/order` (2 of 2)"));
  EXPECT_EQ(node_file("runtime"), "hash-1\n");
  EXPECT_EQ(node_file("node.pem"), spec.identity.certificate);
  EXPECT_EQ(node_file("node.key"), spec.identity.key);
  struct stat facts {};
  ::stat((home + "/.rubato/clusters/c/nodes/small-1/node.key").c_str(), &facts);
  EXPECT_EQ(facts.st_mode & 0777u, 0600u);
  const AgentFile written = agent_file_from_text(node_file("agent.json"));
  EXPECT_EQ(written.address, "10.0.0.7");
  EXPECT_EQ(written.denied, std::vector<std::string>{"CPU"});
  EXPECT_EQ(written.identity.key, "node.key") << "relative: only the machine knows its home folder";
  EXPECT_NE(os::read_text(home + "/agent-env").find("FOR_WORKERS=yes"), std::string::npos);
  EXPECT_NE(os::read_text(home + "/agent-env").find("WHO=my"), std::string::npos);
  EXPECT_EQ(os::read_text(home + "/agent-umask"), "0022\n");
  const std::string log = os::read_text(spec.log_file);
  EXPECT_NE(log.find("initialization: `cat ~/data/data.txt; echo init >>~/order` (1 of 1)\nd\n"), std::string::npos)
      << log;
  EXPECT_EQ(log.find("secret key"), std::string::npos);
}

TEST_F(NodeSetupTest, ThePersonsProfileIsThereUnlessUnwanted) {
  std::ofstream(home + "/.bash_profile") << "export FROM_PROFILE=yes\n";
  spec.setup_commands = {"echo \"profile: $FROM_PROFILE\" >>~/order"};
  ASSERT_FALSE(set_up());
  spec.login_shells = false;
  spec.runtime_hash = "hash-2";
  ASSERT_FALSE(set_up());
  EXPECT_EQ(os::read_text(home + "/order"), "profile: yes\nprofile: \n");
}

TEST_F(NodeSetupTest, ASecondCallFindsEverythingDone) {
  spec.setup_commands = {"echo setup >>~/order"};
  ASSERT_FALSE(set_up());
  const std::string before = node_file("daemon.pid");
  ASSERT_FALSE(set_up());
  EXPECT_EQ(os::read_text(home + "/order"), "setup\n");
  EXPECT_EQ(node_file("daemon.pid"), before);
  size_t starts = 0;
  const std::string called = calls();
  for (const std::string_view line : split(called, '\n')) starts += line.starts_with("daemon start") ? 1 : 0;
  EXPECT_EQ(starts, 1u);
  EXPECT_EQ(calls().find("version"), calls().rfind("version")) << "the program was sent once";
}

TEST_F(NodeSetupTest, AnotherRuntimeIsSetUpBesideTheAgent) {
  spec.setup_commands = {"echo setup >>~/order"};
  ASSERT_FALSE(set_up());
  const std::string before = node_file("daemon.pid");
  spec.runtime_hash = "hash-2";
  ASSERT_FALSE(set_up());
  EXPECT_EQ(os::read_text(home + "/order"), "setup\nsetup\n");
  EXPECT_EQ(node_file("runtime"), "hash-2\n");
  EXPECT_EQ(node_file("daemon.pid"), before);
  spec.restart = true;
  ASSERT_FALSE(set_up());
  EXPECT_NE(node_file("daemon.pid"), before);
}

TEST_F(NodeSetupTest, AnAgentForAnotherHeadIsStartedAnew) {
  ASSERT_FALSE(set_up());
  const std::string before = node_file("daemon.pid");
  spec.agent.head.port = 7001;
  spec.keep_running = true;
  ASSERT_FALSE(set_up());
  EXPECT_EQ(node_file("daemon.pid"), before);
  spec.keep_running = false;
  ASSERT_FALSE(set_up());
  EXPECT_NE(node_file("daemon.pid"), before);
}

TEST_F(NodeSetupTest, ACommandThatFailsOnceIsRepeated) {
  spec.setup_commands = {"test -e ~/tried || { touch ~/tried; echo 'no network' >&2; exit 4; }"};
  ASSERT_FALSE(set_up());
  EXPECT_TRUE(has_step("setup: attempt 2 of 3"));
}

TEST_F(NodeSetupTest, ACommandThatAlwaysFailsSaysAll) {
  spec.setup_commands = {"echo fine", "echo one; echo 'E: no such package' >&2; exit 100"};
  const std::optional<Error> error = set_up();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kFailed);
  for (const char* text : {"node small-1 failed at 'setup'", "exit code 100", "echo one", "E: no such package"}) {
    EXPECT_NE(error->message.find(text), std::string::npos) << error->message;
  }
  EXPECT_NE(error->hint.find(spec.log_file), std::string::npos) << error->hint;
  EXPECT_EQ(calls(), "") << "no agent";
  EXPECT_EQ(node_file("runtime"), "");
}

TEST_F(NodeSetupTest, AnAgentThatEndsAtOnceSaysWhy) {
  folder.write("home/agent-fails", "");
  const std::optional<Error> error = set_up();
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("bad certificate"), std::string::npos) << error->message;
}

TEST_F(NodeSetupTest, AnAttemptThatStillRunsIsEndedBeforeTheNext) {
  spec.limits.command = 5s;
  spec.limits.attempts = 2;
  spec.setup_commands = {"echo $$ >>~/pids; exec sleep 1000"};
  ASSERT_TRUE(set_up());
  const std::string pids = os::read_text(home + "/pids");
  ASSERT_EQ(std::ranges::count(pids, '\n'), 2) << pids;
  EXPECT_FALSE(os::is_running(std::stoi(pids))) << "the first";
  SshRunner ssh = runner();
  finish_call(stop_node(ssh, ending()));
  EXPECT_TRUE(os::eventually([&] { return !os::is_running(std::stoi(pids.substr(pids.find('\n') + 1))); }));
}

TEST_F(NodeSetupTest, EndsWithNothingLeft) {
  ASSERT_FALSE(set_up());
  SshRunner ssh = runner();
  const pid_t agent = std::stoi(node_file("daemon.pid"));
  EXPECT_TRUE(await(is_running(ssh, ending())));
  finish_call(stop_node(ssh, ending()));
  EXPECT_FALSE(await(is_running(ssh, ending())));
  EXPECT_TRUE(os::eventually([&] { return !os::is_running(agent); }));
  EXPECT_FALSE(std::filesystem::exists(home + "/.rubato/clusters/c/nodes/small-1"));
  finish_call(stop_node(ssh, ending()));
}

TEST_F(NodeSetupTest, WhatADeadAgentLeftIsDeliveredWhenItHasEnded) {
  ASSERT_FALSE(set_up());
  SshRunner ssh = runner();
  const pid_t agent = std::stoi(node_file("daemon.pid"));
  finish_call(salvage_node(ssh, ending()));
  EXPECT_TRUE(os::eventually([&] { return !os::is_running(agent); }));
  EXPECT_LT(calls().find("daemon --grace"), calls().find("agent --deliver --dir "));
  EXPECT_NE(calls().find("agent --deliver --dir "), std::string::npos) << calls();
  EXPECT_TRUE(std::filesystem::exists(home + "/.rubato/clusters/c/nodes/small-1")) << "that is stop_node's";
  finish_call(stop_node(ssh, ending()));
  finish_call(salvage_node(ssh, ending()));
}

TEST_F(NodeSetupTest, ProgramsThatNothingUsesGo) {
  const std::string bin = home + "/.rubato/bin/";
  std::filesystem::create_directories(bin);
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(3);
  for (const char* name : {"rubato-old", "rubato-linked", "rubato-young", "mine"}) {
    std::ofstream(bin + name) << "x";
    if (std::string_view(name) != "rubato-young") std::filesystem::last_write_time(bin + name, old);
  }
  const std::string other = home + "/.rubato/clusters/other/nodes/n-1";
  std::filesystem::create_directories(other);
  std::filesystem::create_symlink(bin + "rubato-linked", other + "/program");
  ASSERT_FALSE(set_up());
  EXPECT_FALSE(std::filesystem::exists(bin + "rubato-old"));
  for (const char* name : {"rubato-linked", "rubato-young", "mine"})
    EXPECT_TRUE(std::filesystem::exists(bin + name)) << name;

  SshRunner ssh = runner();
  finish_call(stop_node(ssh, ending()));
  EXPECT_FALSE(std::filesystem::exists(home + "/.rubato/clusters/c")) << "nothing is in it";
  EXPECT_TRUE(std::filesystem::exists(other + "/program"));
  std::filesystem::remove_all(home + "/.rubato/clusters/other");
  std::filesystem::remove(bin + "mine");
  Command tidy;
  tidy.script = tidy_script("");
  EXPECT_TRUE(await(ssh.run(std::move(tidy))).ok());
  EXPECT_FALSE(std::filesystem::exists(home + "/.rubato"));
}

TEST_F(NodeSetupTest, APurgeOutwaitsProcessesThatAreAboutToEnd) {
  const std::string bin = home + "/.rubato/bin/";
  std::filesystem::create_directories(bin);
  std::filesystem::copy_file("/bin/sleep", bin + "rubato-ending");
  SshRunner ssh = runner();
  Command begin, tidy;
  begin.script = "\"$HOME\"/.rubato/bin/rubato-ending 1 </dev/null >/dev/null 2>&1 &\n";
  EXPECT_TRUE(await(ssh.run(std::move(begin))).ok());
  tidy.script = tidy_script("");
  EXPECT_TRUE(await(ssh.run(std::move(tidy))).ok());
  EXPECT_FALSE(std::filesystem::exists(home + "/.rubato"));
}

TEST_F(NodeSetupTest, AMachineThatDoesNotAnswerIsTriedUntilTheDeadline) {
  stop_sshd();
  spec.limits.reachable = 10s;
  const std::optional<Error> error = set_up();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kUnavailable);
  EXPECT_NE(error->message.find("failed at 'reachable'"), std::string::npos) << error->message;
  EXPECT_GE(std::ranges::count_if(steps, [](const auto& step) { return step.find("refused") != std::string::npos; }),
            2)
      << "often: it may be booting";
}

TEST_F(NodeSetupTest, ADamagedProgramIsSentAgain) {
  ASSERT_FALSE(set_up());
  const std::string bin = home + "/.rubato/bin";
  std::string name;
  for (const auto& entry : std::filesystem::directory_iterator(bin)) {
    if (!entry.is_symlink()) name = entry.path();
  }
  EXPECT_EQ(std::filesystem::canonical(bin + "/rubato"), std::filesystem::canonical(name));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(bin), {}), 2) << "it and the link, no drafts";
  const std::string whole = os::read_text(name);
  std::ofstream(name, std::ios::app) << "x";
  SshRunner ssh = runner();
  RemoteBinary binary(world, settings(), folder / "rubato", folder / "cache");
  EXPECT_TRUE(await(binary.put(ssh, 60s)).sent);
  EXPECT_EQ(os::read_text(name), whole);
  EXPECT_FALSE(await(binary.put(ssh, 60s)).sent);
}

TEST_F(NodeSetupTest, AProgramIsPackedAsTheOtherSideCanUnpackIt) {
  for (const auto& without : std::vector<std::vector<std::string>>{{"zstd"}, {"zstd", "gzip"}, {}}) {
    std::filesystem::remove_all(home + "/.rubato");
    SshRunner ssh = runner();
    finish_call(ssh.disconnect());
    start_sshd(path_without(without));
    RemoteBinary binary(world, settings(), folder / "rubato", folder / "cache");
    const RemoteBinary::Put put = await(binary.put(ssh, 60s));
    EXPECT_TRUE(put.sent);
    EXPECT_EQ(os::read_text(put.path), kStandIn);
    finish_call(ssh.disconnect());
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "cache"), {}), 2) << "zstd and gzip";
}

// ---- a scripted machine ----

struct FakeRunner final : CommandRunner {
  Task<CommandResult> run(Command command) override {
    commands.push_back(command);
    CommandResult result;
    if (!answers.empty()) {
      result = answers.front();
      answers.pop_front();
    }
    co_return result;
  }
  Task<void> upload(std::string, std::string, SyncOptions) override { co_return; }
  Task<void> download(std::string, std::string, SyncOptions) override { co_return; }
  std::string describe() const override { return "fake"; }

  std::deque<CommandResult> answers;
  std::vector<Command> commands;
};

TEST_F(RealWorldTest, AnotherProcessorIsAClearError) {
  folder.write("rubato", "x");
  RemoteBinary binary(world, settings(), folder / "rubato", folder / "cache");
  FakeRunner runner;
  CommandResult answer;
  answer.out = "hello from .bashrc\n\nrubato-binary riscv64 none zstd /home/my user/.rubato/bin/rubato-1\n";
  runner.answers = {answer};
  const Outcome<RemoteBinary::Put> outcome = settle(binary.put(runner, 60s));
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kUsage);
  EXPECT_NE(outcome.error->message.find("is a riscv64 machine"), std::string::npos) << outcome.error->message;
}

TEST(NodePlan, TakesWhatTheFileSays) {
  const ClusterFile file = read_cluster_file(R"(cluster_name: mine
provider: {type: local, head_ip: h, worker_ips: [a, b]}
auth: {ssh_user: u}
file_mounts: {~/code: ./code}
rsync_exclude: ["*.log"]
initialization_commands: [init]
setup_commands: [all]
worker_setup_commands: [worker]
worker_start_ray_commands: [ray stop, "source activate env && ray start --address=$RAY_HEAD_IP:6379"]
)",
                                             "f.yaml");
  ASSERT_FALSE(file.has(Severity::kError));
  NodeOrder order;
  order.node.value = "w-1";
  order.type.name = file.types.begin()->first;
  order.type.resources.set(kGpu, 2000);
  order.runtime = "r";
  Machine machine;
  machine.host.host = "a";
  order.recipe = node_recipe_of(file, order.type.name, false);
  const NodeSetupSpec spec = plan_node(order, machine, "/c");
  EXPECT_EQ(spec.cluster, "mine");
  ASSERT_EQ(spec.mounts.size(), 1u);
  EXPECT_EQ(spec.mounts[0].remote, "~/code");
  EXPECT_EQ(spec.mounts[0].local, staged_mount("/c", "~/code"));
  EXPECT_EQ(spec.sync.exclude, std::vector<std::string>{"*.log"});
  EXPECT_EQ(spec.host_commands, std::vector<std::string>{"init"});
  EXPECT_EQ(spec.setup_commands, (std::vector<std::string>{"all", "worker"}));
  EXPECT_EQ(join(spec.before_agent, "|"), "source activate env");
  EXPECT_EQ(spec.agent.address, "a");
  EXPECT_EQ(join(spec.agent.gpus, ","), "0,1");
  EXPECT_EQ(spec.runtime_hash, "r");
  EXPECT_FALSE(spec.fresh_machine);
  EXPECT_FALSE(plan_end(order.recipe, order.node).container);
}

}  // namespace
}  // namespace rubato::provider
