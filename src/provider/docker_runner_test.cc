// DockerRunner with a dockerd of the test's own (tests/e2e/dockerd.py); skipped where none can run.
#include "provider/docker_runner.h"

#include "core/source_testing.h"
#include "core/text.h"
#include "provider/local_runner.h"
#include "provider/ssh_testing.h"

namespace rubato::provider {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// ---- the script, without Docker ----

ContainerSpec some_container() {
  ContainerSpec spec;
  spec.container.image = "rubato-test";
  spec.container.name = "box";
  spec.container.pull_before_run = false;
  return spec;
}

TEST(ContainerHash, ChangesWithAllThatAContainerIsMadeFrom) {
  const std::string before = container_hash(some_container());
  EXPECT_EQ(before, container_hash(some_container()));
  ContainerSpec other = some_container();
  other.container.image = "another";
  EXPECT_NE(container_hash(other), before);
  other = some_container();
  other.container.run_options = {"--cap-add=SYS_PTRACE"};
  EXPECT_NE(container_hash(other), before);
  other = some_container();
  other.use_podman = true;
  EXPECT_NE(container_hash(other), before);
  other = some_container();
  other.container.pull_before_run = true;  // how it got here does not matter
  EXPECT_EQ(container_hash(other), before);
}

// ---- with a real one ----

class DockerOnThisMachine : public RealWorldTest {
 protected:
  static Task<int> first_line(Process& process, std::string& line) {
    while (line.find('\n') == std::string::npos) {
      std::optional<OutputChunk> chunk = co_await process.output().pop();
      if (!chunk) break;
      if (!chunk->is_stderr) line += chunk->bytes;
    }
    co_return 0;
  }

  void SetUp() override {
    SpawnSpec spec = spec_of({"python3", source_path("tests/e2e/dockerd.py"), folder / "docker"});
    spec.in = InputSource::kPipe;
    spec.err.kind = OutputTarget::Kind::kInherit;
    dockerd = processes.spawn(spec);
    std::string line;
    runtime.run(first_line(*dockerd, line));
    if (line.starts_with("skip ")) GTEST_SKIP() << trim(line);
    ASSERT_TRUE(line.starts_with("ready ")) << "dockerd.py said: " << line;
    socket = "unix://" + std::string(trim(line.substr(6)));
    RunnerSettings with_docker = settings();
    std::erase_if(with_docker.env, [](const std::string& entry) { return entry.starts_with("DOCKER_HOST="); });
    with_docker.env.push_back("DOCKER_HOST=" + socket);
    docker_settings = with_docker;
    host = std::make_unique<LocalRunner>(world, docker_settings);
  }
  void TearDown() override {
    if (!dockerd) return;
    dockerd->close_input();
    finish(*dockerd);
  }

  DockerRunner runner(const ContainerSpec& spec) { return DockerRunner(world, docker_settings, *host, spec); }
  void bring_up(DockerRunner& docker) { finish_call(docker.bring_up(60s, {})); }
  CommandResult command(CommandRunner& where, const std::string& script) {
    Command command;
    command.script = script;
    return await(where.run(command));
  }
  std::string here(const std::string& script) { return std::string(trim(command(*host, script).out)); }

  std::unique_ptr<Process> dockerd;
  std::string socket;
  RunnerSettings docker_settings;
  std::unique_ptr<LocalRunner> host;
};

TEST_F(DockerOnThisMachine, RunsCommandsInsideAndMovesFiles) {
  ContainerSpec spec = some_container();
  spec.container.run_options = {"-e FROM_OPTIONS='a b'", "-v " + (folder / "data") + ":/data"};
  folder.write("data/mounted", "seen");
  DockerRunner docker = runner(spec);
  EXPECT_FALSE(await(docker.is_up()));
  bring_up(docker);
  EXPECT_TRUE(await(docker.is_up()));
  EXPECT_EQ(docker.describe(), "container box in this machine");

  // Inside, with the options, with a shell's words as they are.
  EXPECT_EQ(command(docker, "cat /etc/image; echo $FROM_OPTIONS; cat /data/mounted").out, "rubato-test\na b\nseen");
  Command secret;
  secret.script = "echo \"$TOKEN\"; cat";
  secret.env["TOKEN"] = "it's a $ecret";
  secret.input = "line\n";
  EXPECT_EQ(await(docker.run(secret)).out, "it's a $ecret\nline\n");
  Command sentence;
  sentence.argv = {"printf", "%s|", "a b", "$HOME", "'"};
  EXPECT_EQ(await(docker.run(sentence)).out, "a b|$HOME|'|");
  Command login;
  login.login = true;
  login.script = "echo ${BASH_VERSION:+bash}";
  EXPECT_EQ(await(docker.run(login)).out, "bash\n");

  const CommandResult failed = command(docker, "echo why >&2; exit 7");
  EXPECT_EQ(failed.exit_code, 7);
  EXPECT_EQ(failed.last_lines, std::vector<std::string>{"why"});

  // Files: there, changed, and back.
  folder.write("src/a.txt", "one");
  folder.write("src/deep/b.txt", "two");
  SyncOptions options;
  finish_call(docker.upload(folder / "src", "~/work", options));
  EXPECT_EQ(command(docker, "cat ~/work/a.txt /root/work/deep/b.txt").out, "onetwo");
  std::filesystem::remove(folder / "src/a.txt");
  finish_call(docker.upload(folder / "src", "~/work", options));
  EXPECT_EQ(command(docker, "ls ~/work").out, "deep\n");
  // More names than one run of busybox's tar gets.
  command(docker,
          "cd ~/work/deep; echo three > c.txt; for i in $(seq 1000); do echo $i > some-quite-long-name-$i; done");
  finish_call(docker.download("~/work", folder / "back", options));
  EXPECT_EQ(os::read_text(folder / "back/deep/c.txt"), "three\n");
  for (const char* number : {"1", "500", "1000"}) {
    EXPECT_EQ(os::read_text(folder / "back/deep/some-quite-long-name-" + number), std::string(number) + "\n");
  }

  finish_call(docker.remove(60s));
  EXPECT_FALSE(await(docker.is_up()));
  finish_call(docker.remove(60s));  // nothing there: nothing happens
  EXPECT_EQ(here("docker ps -aq"), "");
}

TEST_F(DockerOnThisMachine, KeepsAContainerThatFitsAndReplacesOneThatDoesNot) {
  ContainerSpec spec = some_container();
  DockerRunner docker = runner(spec);
  bring_up(docker);
  const std::string first = here("docker inspect -f '{{.Id}}' box");
  bring_up(docker);
  EXPECT_EQ(here("docker inspect -f '{{.Id}}' box"), first);
  // A third of the memory, as Ray does; the machine's network.
  const std::string shm = here("docker inspect -f '{{.HostConfig.ShmSize}} {{.HostConfig.NetworkMode}}' box");
  EXPECT_TRUE(shm.ends_with(" host")) << shm;
  EXPECT_GT(std::stoll(shm), 64 << 20) << shm;

  spec.container.run_options = {"--shm-size=123m", "--ulimit nofile=4096:4096"};
  DockerRunner changed = runner(spec);
  EXPECT_FALSE(await(changed.is_up()));
  bring_up(changed);
  EXPECT_NE(here("docker inspect -f '{{.Id}}' box"), first);
  EXPECT_EQ(here("docker inspect -f '{{.HostConfig.ShmSize}}' box"), std::to_string(123 << 20));
  EXPECT_EQ(command(changed, "ulimit -n").out, "4096\n");

  // One that somebody stopped comes back.
  here("docker kill box");
  EXPECT_TRUE(os::eventually([&] { return here("docker ps -aq").empty(); }));
  EXPECT_FALSE(await(changed.is_up()));
  bring_up(changed);
  EXPECT_TRUE(await(changed.is_up()));
}

TEST_F(DockerOnThisMachine, SaysWhatIsWrongAndHowToFixIt) {
  ContainerSpec missing = some_container();
  missing.container.image = "rubato-nowhere";
  DockerRunner no_image = runner(missing);
  std::optional<Error> error = error_of(no_image.bring_up(60s, {}));
  ASSERT_TRUE(error);
  EXPECT_TRUE(has(error->message, "the container box cannot be started on this machine")) << error->message;
  EXPECT_TRUE(has(error->message, "rubato-nowhere")) << error->message;

  ContainerSpec wrong = some_container();
  wrong.container.run_options = {"--no-such-option"};
  DockerRunner no_option = runner(wrong);
  error = error_of(no_option.bring_up(60s, {}));
  ASSERT_TRUE(error);
  EXPECT_TRUE(has(error->message, "unknown flag: --no-such-option")) << error->message;

  // A registry that cannot be reached, as here: the image that is there will do.
  ContainerSpec pulled = some_container();
  pulled.container.pull_before_run = true;
  DockerRunner pulls = runner(pulled);
  std::string sentence;
  const auto on_line = [&sentence](std::string_view line) { sentence += std::string(line) + "\n"; };
  finish_call(pulls.bring_up(60s, on_line));
  EXPECT_TRUE(has(sentence, "the image cannot be pulled; the one that is there is used")) << sentence;

  RunnerSettings nobody = docker_settings;
  nobody.env.push_back("DOCKER_HOST=unix:///nowhere.sock");
  std::erase(nobody.env, "DOCKER_HOST=" + socket);
  LocalRunner without_service(world, nobody);
  DockerRunner no_service(world, nobody, without_service, some_container());
  error = error_of(no_service.bring_up(60s, {}));
  ASSERT_TRUE(error);
  EXPECT_TRUE(has(error->hint, "is its service running")) << error->hint;

  ContainerSpec absent = some_container();
  absent.container.name = "nobox";
  DockerRunner nothing = runner(absent);
  const CommandResult gone = command(nothing, "true");
  EXPECT_FALSE(gone.ok());
  EXPECT_TRUE(has(last_output(gone), "nobox")) << last_output(gone);
}

}  // namespace
}  // namespace rubato::provider
