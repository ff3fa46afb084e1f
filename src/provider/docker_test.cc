// Containers: the words for docker, and a real dockerd of our own with an image made of busybox, whose tools are the
// smallest that scripts may meet.
#include <csignal>

#include "core/text.h"
#include "provider/docker_runner.h"
#include "provider/local_runner.h"
#include "provider/ssh_testing.h"

namespace rubato::provider {
namespace {

ContainerSpec some_container() {
  ContainerSpec spec;
  spec.container.image = "tiny:1";
  spec.container.name = "rubato-test";
  return spec;
}

TEST(DockerWords, FollowWhatTheFileSays) {
  ContainerSpec spec = some_container();
  spec.container.name = "it's mine";
  spec.container.run_options = {"--ulimit nofile=65536:65536", "-v $HOME/data:/data"};
  const std::string script = bring_up_script(spec);
  EXPECT_NE(script.find("docker=docker\n"), std::string::npos);
  EXPECT_NE(script.find("$docker pull tiny:1"), std::string::npos);
  EXPECT_NE(script.find("--name 'it'\\''s mine' -d -i -t"), std::string::npos) << script;
  EXPECT_NE(script.find("-e LC_ALL=C.UTF-8 --net=host"), std::string::npos);
  EXPECT_NE(script.find("set -- --ulimit nofile=65536:65536 -v $HOME/data:/data\n"), std::string::npos);
  EXPECT_NE(script.find("shm=yes\ngpus=yes\n"), std::string::npos);
  spec.use_podman = true;
  spec.container.pull_before_run = false;
  spec.container.run_options = {"--shm-size=1g", "--gpus all"};
  const std::string other = bring_up_script(spec);
  EXPECT_NE(other.find("docker=podman\n"), std::string::npos);
  EXPECT_EQ(other.find(" pull "), std::string::npos);
  EXPECT_NE(other.find("shm=no\ngpus=no\n"), std::string::npos) << "what a person says is not said twice";
}

TEST(DockerWords, AnotherOptionIsAnotherContainer) {
  const ContainerSpec one = some_container();
  ContainerSpec other = one;
  other.container.pull_before_run = false;
  EXPECT_EQ(container_hash(one), container_hash(other)) << "this changes nothing in it";
  other.container.run_options = {"-v /a:/b"};
  EXPECT_NE(container_hash(one), container_hash(other));
  ContainerSpec image = one;
  image.container.image = "tiny:2";
  EXPECT_NE(container_hash(one), container_hash(image));
}

class DockerTest : public RealWorldTest {
 protected:
  void SetUp() override {
    for (const char* program : {"/usr/sbin/dockerd", "/bin/busybox"}) {
      if (::access(program, X_OK) != 0) GTEST_SKIP() << program << " is missing: tools/install-packages.sh test";
    }
    if (::geteuid() != 0) GTEST_SKIP() << "dockerd needs root";
    std::filesystem::create_directories(folder / "home");
    SpawnSpec spec = spec_of({"/usr/sbin/dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec",
                              "--pidfile", folder / "pid", "-H", "unix://" + (folder / "sock"), "--iptables=false",
                              "--ip6tables=false", "--bridge=none"});
    spec.out.kind = OutputTarget::Kind::kNull;
    spec.err.kind = OutputTarget::Kind::kFile;
    spec.err.path = folder / "dockerd.log";
    dockerd_ = processes.spawn(spec);
    ASSERT_TRUE(turn_until([&] {
      return os::read_text(folder / "dockerd.log").find("API listen") != std::string::npos || dockerd_->status();
    }));
    ASSERT_FALSE(dockerd_->status()) << os::read_text(folder / "dockerd.log");
    const os::Finished made = on_machine(
        "cd " + (folder / "home") +
        " && mkdir -p fs/bin fs/root fs/tmp fs/etc && cp /bin/busybox fs/bin && for a in $(busybox --list); do "
        "[ $a = busybox ] || ln -s busybox fs/bin/$a; done && echo root:x:0:0:root:/root:/bin/sh >fs/etc/passwd && "
        "tar -C fs -c . | docker import - tiny:1");
    ASSERT_TRUE(made.status.ok()) << made.err;
  }
  void TearDown() override {
    if (!dockerd_) return;
    on_machine("docker rm -f rubato-test");
    dockerd_->signal_group(SIGTERM);  // it ends its containers' keepers, which a SIGKILL would leave
    (void)await(dockerd_->wait());
    dockerd_.reset();
    run(spec_of({"umount", folder / "exec/netns/default"}));  // dockerd leaves it behind
  }
  RunnerSettings machine_settings() {
    RunnerSettings result = settings();
    std::erase_if(result.env, [](const std::string& entry) { return entry.starts_with("HOME="); });
    result.env.push_back("HOME=" + (folder / "home"));
    result.env.push_back("DOCKER_HOST=unix://" + (folder / "sock"));
    return result;
  }
  os::Finished on_machine(const std::string& text) {
    SpawnSpec spec = shell(text);
    spec.env = machine_settings().env;
    return run(spec);
  }

  LocalRunner host{world, machine_settings()};
  std::unique_ptr<Process> dockerd_;
};

TEST_F(DockerTest, CommandsAndFilesGoInside) {
  ContainerSpec spec = some_container();
  DockerRunner docker(world, machine_settings(), host, spec);
  EXPECT_FALSE(await(docker.is_up()));
  finish_call(docker.bring_up(60s, {}));  // the image is not in a registry: the one that is there will do
  EXPECT_TRUE(await(docker.is_up()));
  EXPECT_EQ(docker.describe(), "container rubato-test in this machine");

  Command command = script("printf '%s|%s|' \"$A\" \"$LC_ALL\"; cat; exit 9");
  command.env = {{"A", "it's"}};
  command.input = "in";
  const CommandResult result = await(docker.run(command));
  EXPECT_EQ(result.out, "it's|C.UTF-8|in");
  EXPECT_EQ(result.exit_code, 9);

  folder.write("src/a", "1");
  folder.write("src/sub/run.sh", "echo ran");
  ::chmod((folder / "src/sub/run.sh").c_str(), 0755);
  finish_call(docker.upload(folder / "src", "~/code", SyncOptions{}));
  EXPECT_EQ(await(docker.run(script("cat ~/code/a && ~/code/sub/run.sh"))).out, "1ran\n");
  std::filesystem::remove(folder / "src/a");
  finish_call(docker.upload(folder / "src", "~/code", SyncOptions{}));
  EXPECT_EQ(await(docker.run(script("ls ~/code"))).out, "sub\n");

  spec.container.run_options = {"-e FOO='two words'", "--shm-size=32m"};
  DockerRunner changed(world, machine_settings(), host, spec);
  EXPECT_FALSE(await(changed.is_up())) << "it was made from something else";
  finish_call(changed.bring_up(60s, {}));
  EXPECT_EQ(await(changed.run(script("echo $FOO; ls -A ~"))).out, "two words\n");
  finish_call(changed.remove(60s));
  EXPECT_FALSE(await(changed.is_up()));
}

TEST_F(DockerTest, AnImageThatIsNowhereIsSaid) {
  ContainerSpec spec = some_container();
  spec.container.image = "nowhere.invalid/none:1";
  DockerRunner docker(world, machine_settings(), host, spec);
  const std::optional<Error> error = error_of(docker.bring_up(60s, {}));
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("nowhere.invalid"), std::string::npos) << error->message;
}

// Does what `rubato version` and `rubato daemon` do.
constexpr const char* kProgram = R"sh(#!/bin/sh
d=$3; if [ "$2" = --grace ]; then d=$5; shift 2; fi
case $2 in
  start) setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! >"$d/daemon.pid" ;;
  running) kill -0 "$(cat "$d/daemon.pid" 2>/dev/null)" 2>/dev/null ;;
  stop) kill "$(cat "$d/daemon.pid")"; rm -f "$d/daemon.pid" ;;
esac
)sh";

TEST_F(DockerTest, ANodeIsSetUpInsideAndItsMachineOnlyInitialized) {
  folder.write("rubato", kProgram);
  ::chmod((folder / "rubato").c_str(), 0755);
  folder.write("mount/data", "d");
  RemoteBinary binary(world, machine_settings(), folder / "rubato", folder / "cache");
  NodeSetupSpec spec;
  spec.cluster = "c";
  spec.node.value = "n-1";
  spec.container = some_container();
  spec.runtime_hash = "r";
  NodeMount mount;
  mount.local = folder / "mount";
  mount.remote = "/data";
  spec.mounts = {mount};
  spec.host_commands = {"echo init >>~/order"};
  spec.setup_commands = {"cat /data/data >>~/order; echo setup >>~/order"};
  spec.limits.attempts = 1;
  spec.log_file = folder / "log";
  for (int i = 0; i < 2; ++i) {
    finish_call(set_up_node(world, machine_settings(), host, binary, spec, {}));
    EXPECT_EQ(os::read_text(folder / "home/order"), "init\n");
    DockerRunner inside(world, machine_settings(), host, *spec.container);
    EXPECT_EQ(await(inside.run(script("cat ~/order"))).out, "dsetup\n") << os::read_text(folder / "log");
  }
  NodeEnd end;
  end.cluster = "c";
  end.node = spec.node;
  end.container = spec.container;
  EXPECT_TRUE(await(is_running(host, end)));
  finish_call(stop_node(host, end));
  EXPECT_FALSE(await(is_running(host, end)));
  EXPECT_EQ(on_machine("docker ps -aq").out, "");
  finish_call(stop_node(host, end));
}

}  // namespace
}  // namespace rubato::provider
