#include "os/guard.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "os/files.h"
#include "os/proc_scan.h"
#include "os/process_fixture.h"

namespace rubato::os {
namespace {

// Writes its pid to the file when it runs, atomically.
std::string says_pid(const std::string& file) {
  return fmt::format("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", file);
}

class GuardTest : public ::testing::Test {
 protected:
  // An agent in a process of its own: starts the commands and then turns its loop until it is killed.
  pid_t start_agent(std::vector<std::string> commands) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    Runtime runtime;
    RealProcesses processes(runtime);
    std::vector<std::unique_ptr<Process>> workers;
    for (const std::string& command : commands) {
      SpawnSpec spec;
      spec.argv = {"/bin/sh", "-c", command};
      spec.env = own_environment();
      workers.push_back(processes.spawn(spec));
    }
    std::ofstream(folder / "guard.new") << processes.family().guard_pid() << std::flush;
    std::filesystem::rename(folder / "guard.new", folder / "guard");
    Task<int> task = keep_file_current(runtime, processes, folder / "guard");
    runtime.run(std::move(task));
    ::_exit(0);
  }

  // The same with one worker whose output is kept in "kept". One that does not listen reads nothing of it.
  pid_t start_keeping_agent(const std::string& command, bool listens) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    Runtime runtime;
    RealProcesses processes(runtime);
    SpawnSpec spec;
    spec.argv = {"/bin/sh", "-c", command};
    spec.env = own_environment();
    spec.out = {OutputTarget::Kind::kPipe, folder / "kept"};
    const std::unique_ptr<Process> worker = processes.spawn(spec);
    while (!listens) ::pause();
    Task<int> task = read_for_ever(*worker);
    runtime.run(std::move(task));
    ::_exit(0);
  }

  // The same with two workers. The first one's time was put off; the second one's comes. Then the agent stands still.
  // Their times begin when all of these files are there.
  pid_t start_leased_agent(const std::string& renewed, const std::string& overdue,
                           const std::vector<std::string>& begun) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    Runtime runtime;
    RealProcesses processes(runtime);
    std::vector<std::unique_ptr<Process>> workers;
    for (const std::string& command : {renewed, overdue}) {
      SpawnSpec spec;
      spec.argv = {"/bin/sh", "-c", command};
      spec.env = own_environment();
      workers.push_back(processes.spawn(spec));
    }
    for (const std::string& name : begun) {
      if (!eventually([&] { return std::filesystem::exists(folder / name); })) ::_exit(1);
    }
    const Instant now = runtime.now();
    workers[0]->end_by(now + 2s);
    workers[1]->end_by(now + 2500ms);
    workers[0]->end_by(now + 1h);
    ::raise(SIGSTOP);
    while (true) ::pause();
  }

  static Task<int> read_for_ever(Process& process) {
    while (true) {
      const std::optional<OutputChunk> chunk = co_await process.output().pop();
      if (!chunk) co_return 0;
    }
  }

  // The same with one worker that is forked from a prewarmed interpreter.
  pid_t start_warm_agent(const PythonMain& main) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    Runtime runtime;
    RealProcesses processes(runtime);
    PrewarmSpec prewarm{
        .interpreter = {"/usr/bin/python3", "-u"}, .modules = {"json"}, .env = own_environment(), .main = main};
    processes.prewarm(prewarm, nullptr);
    std::unique_ptr<Process> worker;
    Task<int> task = spawn_when_ready(runtime, processes, main, worker, folder / "zygote");
    runtime.run(std::move(task));
    ::_exit(0);
  }

  static Task<int> spawn_when_ready(Runtime& runtime, RealProcesses& processes, PythonMain main,
                                    std::unique_ptr<Process>& worker, std::string zygote_file) {
    while (!processes.zygote()->ready()) co_await Sleep(runtime, runtime.now() + 1ms);
    SpawnSpec spec;
    spec.argv = {"/usr/bin/python3", "-u", main.target};
    spec.env = own_environment();
    spec.warm = std::move(main);
    worker = processes.spawn(spec);
    if (worker->warm()) std::ofstream(zygote_file) << processes.zygote()->pid() << std::flush;
    while (true) co_await Sleep(runtime, runtime.now() + 1s);
  }

  static Task<int> keep_file_current(Runtime& runtime, RealProcesses& processes, std::string file) {
    while (true) {
      co_await Sleep(runtime, runtime.now() + 1ms);
      std::ofstream(file + ".new") << processes.family().guard_pid() << std::flush;
      std::filesystem::rename(file + ".new", file);
    }
  }

  pid_t pid_in(const std::string& name) {
    EXPECT_TRUE(eventually([&] { return !read_text(folder / name).empty(); })) << name;
    return std::stoi(read_text(folder / name));
  }

  void kill_agent(pid_t agent) {
    ::kill(agent, SIGKILL);
    ::waitpid(agent, nullptr, 0);
  }

  TempFolder folder;
  RealFiles files;
};

TEST_F(GuardTest, NothingOutlivesAKilledAgent) {
  const std::string in_group = fmt::format("sh -c '{}' & ", says_pid(folder / "member"));
  const std::string in_session = fmt::format("setsid sh -c '{}' & ", says_pid(folder / "daemon"));
  const std::string deeper = fmt::format("setsid sh -c \"setsid sh -c '{}' & wait\" & ", says_pid(folder / "deeper"));
  const pid_t agent = start_agent({in_group + in_session + deeper + says_pid(folder / "worker")});
  std::vector<pid_t> pids;
  for (const char* name : {"worker", "member", "daemon", "deeper", "guard"}) pids.push_back(pid_in(name));
  for (const pid_t pid : pids) EXPECT_TRUE(is_running(pid));
  kill_agent(agent);
  for (const pid_t pid : pids) EXPECT_TRUE(eventually([&] { return !is_running(pid); }));
}

TEST_F(GuardTest, NoWarmWorkerOutlivesAKilledAgent) {
  const std::string text = fmt::format(
      "import os, time\n"
      "def say(name):\n"
      "    open('{0}/' + name + '.new', 'w').write(str(os.getpid()))\n"
      "    os.rename('{0}/' + name + '.new', '{0}/' + name)\n"
      "if os.fork() == 0:\n"
      "    os.setsid()\n"
      "    say('daemon')\n"
      "else:\n"
      "    say('worker')\n"
      "time.sleep(1000)\n",
      folder.path().string());
  const pid_t agent = start_warm_agent({PythonMain::Kind::kScript, folder.write("main.py", text), {}});
  const std::vector<pid_t> pids = {pid_in("worker"), pid_in("daemon"), pid_in("zygote")};
  for (const pid_t pid : pids) EXPECT_TRUE(is_running(pid));
  kill_agent(agent);
  for (const pid_t pid : pids) EXPECT_TRUE(eventually([&] { return !is_running(pid); }));
}

TEST_F(GuardTest, SavesWhatAKilledAgentHadNotRead) {
  const pid_t agent = start_keeping_agent("echo one; echo two; printf rest; " + says_pid(folder / "worker"), false);
  (void)pid_in("worker");
  EXPECT_TRUE(files.in_use(folder / "kept"));
  EXPECT_EQ(read_text(folder / "kept"), "") << "this agent should have read nothing";
  kill_agent(agent);
  ASSERT_TRUE(eventually([&] { return !files.in_use(folder / "kept"); }));
  EXPECT_EQ(read_text(folder / "kept"), "one\ntwo\nrest");
}

// Some of it was read, some was not, and one line may have been on its way.
TEST_F(GuardTest, NoLineIsLostOrTwiceWhereverTheAgentIsKilled) {
  const std::string counts =
      fmt::format("i=0; while :; do i=$((i+1)); echo $i; echo $i > {0}.new; mv {0}.new {0}; done", folder / "written");
  for (int round = 0; round < 20; ++round) {
    std::filesystem::remove(folder / "written");
    const pid_t agent = start_keeping_agent(counts, true);
    const int enough = 3 + 7 * round;
    const auto written = [&] { return std::atoi(read_text(folder / "written").c_str()); };
    ASSERT_TRUE(eventually([&] { return written() >= enough; }));
    kill_agent(agent);
    ASSERT_TRUE(eventually([&] { return !files.in_use(folder / "kept"); }));
    std::istringstream lines(read_text(folder / "kept"));
    int last = 0;
    for (std::string line; std::getline(lines, line);) {
      ASSERT_EQ(line, std::to_string(last + 1)) << "round " << round;
      ++last;
    }
    EXPECT_GE(last, written()) << "round " << round;
  }
}

TEST_F(GuardTest, EndsAGroupAtItsTimeThoughTheAgentStandsStill) {
  const std::string member = fmt::format("sh -c '{}' & ", says_pid(folder / "member"));
  const pid_t agent = start_leased_agent(says_pid(folder / "renewed"), member + says_pid(folder / "overdue"),
                                         {"renewed", "overdue", "member"});
  const pid_t renewed = pid_in("renewed"), overdue = pid_in("overdue");
  EXPECT_TRUE(eventually([&] { return !is_running(overdue) && !is_running(pid_in("member")); }));
  EXPECT_TRUE(is_running(renewed)) << "its time was put off before it came";
  kill_agent(agent);
  EXPECT_TRUE(eventually([&] { return !is_running(renewed); }));
}

TEST_F(GuardTest, KillsAWorkerThatIgnoresEverything) {
  const pid_t agent = start_agent({"trap '' TERM INT HUP QUIT; " + says_pid(folder / "worker")});
  const pid_t worker = pid_in("worker");
  kill_agent(agent);
  EXPECT_TRUE(eventually([&] { return !is_running(worker); }));
}

TEST_F(GuardTest, ANewGuardIsStartedWhenOneIsKilled) {
  const std::string daemon = fmt::format("setsid sh -c '{}' & ", says_pid(folder / "daemon"));
  const pid_t agent = start_agent({daemon + says_pid(folder / "worker")});
  const pid_t first = pid_in("guard");
  const pid_t worker = pid_in("worker");
  const pid_t escaped = pid_in("daemon");
  ::kill(first, SIGKILL);
  EXPECT_TRUE(eventually([&] { return pid_in("guard") != first; }));
  const pid_t second = pid_in("guard");
  kill_agent(agent);
  for (const pid_t pid : {worker, escaped, second}) EXPECT_TRUE(eventually([&] { return !is_running(pid); }));
}

TEST_F(GuardTest, LeavesProcessesWithALongerTokenAlone) {
  Runtime runtime;
  pid_t other = -1;
  {
    Guard guard(runtime, "abc");
    other = ::fork();
    if (other == 0) {
      const char* argv[] = {"sleep", "1000", nullptr};
      const char* env[] = {"RUBATO_AGENT_TOKEN=abcd", "X=RUBATO_AGENT_TOKEN=abc", "XRUBATO_AGENT_TOKEN=abc", nullptr};
      ::execve("/bin/sleep", const_cast<char**>(argv), const_cast<char**>(env));
      ::_exit(1);
    }
    EXPECT_TRUE(eventually([&] { return environ_has(other, "RUBATO_AGENT_TOKEN=abcd"); }));
  }
  EXPECT_TRUE(is_running(other));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST_F(GuardTest, KillsByTokenAndIsGoneWhenTheAgentEndsInOrder) {
  Runtime runtime;
  pid_t guard_pid = -1;
  pid_t child = -1;
  {
    Guard guard(runtime, "abc");
    guard_pid = guard.pid();
    child = ::fork();
    if (child == 0) {
      const char* argv[] = {"sleep", "1000", nullptr};
      const char* env[] = {"A=1", "RUBATO_AGENT_TOKEN=abc", nullptr};
      ::execve("/bin/sleep", const_cast<char**>(argv), const_cast<char**>(env));
      ::_exit(1);
    }
    EXPECT_TRUE(eventually([&] { return environ_has(child, "RUBATO_AGENT_TOKEN=abc"); }));
  }
  EXPECT_NE(::kill(guard_pid, 0), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(GuardTest, HoldsNothingOfTheAgent) {
  Runtime runtime;
  Guard guard(runtime, "abc");
  const std::string fds = fmt::format("/proc/{}/fd", guard.pid());
  const auto only_the_socket = [&] {
    size_t count = 0;
    bool socket = false;
    for (const auto& entry : std::filesystem::directory_iterator(fds)) {
      std::error_code ignored;
      socket = std::filesystem::read_symlink(entry.path(), ignored).string().starts_with("socket:");
      ++count;
    }
    return count == 1 && socket;
  };
  EXPECT_TRUE(eventually(only_the_socket));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) ::kill(guard.pid(), signal);
  EXPECT_EQ(::getpgid(guard.pid()), guard.pid());
  EXPECT_TRUE(is_running(guard.pid()));
}

}  // namespace
}  // namespace rubato::os
