#include "os/supervisor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>
#include <vector>

#include "os/daemons.h"

namespace rubato::os {
namespace {

namespace fs = std::filesystem;

TEST(RestartDelay, IsNoneAfterAFirstEndAndThenDoubles) {
  RestartDelay delay;
  EXPECT_EQ(delay.next(5s), 0s);
  EXPECT_EQ(delay.next(1s), 200ms);
  EXPECT_EQ(delay.next(1s), 400ms);
  EXPECT_EQ(delay.next(1s), 800ms);
  for (int i = 0; i < 100; ++i) delay.next(0s);
  EXPECT_EQ(delay.next(59s), 10s);
  EXPECT_EQ(delay.next(60s), 0s) << "that one was healthy";
  EXPECT_EQ(delay.next(0s), 200ms);
}

// The supervisor is a process of its own: it takes signals and children as a whole process.
class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    char name[] = "/tmp/rubato_supervisor_XXXXXX";
    base = ::mkdtemp(name);
    folder = base + "/head";
    touch("wanted");
  }
  ~SupervisorTest() override {
    fs::remove(base + "/wanted");
    if (supervisor > 0) {
      ::kill(supervisor, SIGKILL);
      ::waitpid(supervisor, nullptr, 0);
    }
    daemons.signal(folder, SIGKILL);
    EXPECT_TRUE(wait_for([&] { return !daemons.running(folder); }));
    fs::remove_all(base);
  }
  static bool wait_for(const std::function<bool()>& condition) {
    for (int i = 0; i < 120'000; ++i) {
      if (condition()) return true;
      ::usleep(500);
    }
    return false;
  }
  void touch(const std::string& name) const { std::ofstream(base + "/" + name) << "x"; }
  std::string text(const std::string& name) const {
    std::ifstream file(base + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  DaemonSpec spec(const std::string& after) const {
    DaemonSpec out;
    out.folder = folder;
    // One line for each start: how the one before has ended.
    out.argv = {"/bin/sh", "-c", "echo \"after:$0\" >>../starts; " + program, after};
    out.env = {"PATH=/bin:/usr/bin"};
    return out;
  }
  void start() {
    supervisor = ::fork();
    if (supervisor != 0) return;
    SupervisorSettings settings;
    settings.folder = folder;
    settings.spec = [this](const std::string& after) { return spec(after); };
    settings.is_wanted = [this] { return fs::exists(base + "/wanted"); };
    settings.has_ended_for_good = [this] { return fs::exists(base + "/for-good"); };
    settings.note = [this](const Supervision& seen) {
      std::ofstream(base + "/draft") << seen.restarts << " " << seen.last_end;
      fs::rename(base + "/draft", base + "/seen");
    };
    if (has_stand_in) {
      settings.replace = [this] {
        if (fs::exists(base + "/wanted")) touch("replaced");
      };
    }
    supervise(settings, Log());
    ::_exit(0);
  }
  void kill_supervisor() {
    ::kill(supervisor, SIGKILL);
    ::waitpid(std::exchange(supervisor, 0), nullptr, 0);
  }
  // The supervisor's children, less the daemon.
  std::vector<pid_t> stand_ins() const {
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", supervisor));
    std::vector<pid_t> out;
    for (pid_t pid = 0; file >> pid;) {
      if (pid != RealDaemons().running(folder).value_or(0)) out.push_back(pid);
    }
    return out;
  }
  static bool is_zombie(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return text.empty() || text.substr(text.rfind(')')).starts_with(") Z");
  }
  int wait_for_daemon(int before = 0) {
    EXPECT_TRUE(wait_for([&] { return daemons.running(folder).value_or(before) != before; }));
    return daemons.running(folder).value_or(0);
  }
  bool ended_well() {
    int status = 0;
    const pid_t ended = ::waitpid(supervisor, &status, 0);
    supervisor = 0;
    return ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::string base, folder;
  std::string program = "exec sleep 1000";
  bool has_stand_in = false;
  pid_t supervisor = 0;
  RealDaemons daemons;
};

TEST_F(SupervisorTest, StartsItAgainAndSaysWhy) {
  start();
  const int first = wait_for_daemon();
  EXPECT_TRUE(wait_for([&] { return text("starts") == "after:\n"; })) << text("starts");
  ::kill(first, SIGKILL);
  const int second = wait_for_daemon(first);
  EXPECT_TRUE(wait_for([&] { return text("starts") == "after:\nafter:signal 9\n"; })) << text("starts");
  EXPECT_EQ(text("seen"), "1 signal 9");
  ::kill(second, SIGTERM);
  wait_for_daemon(second);
  EXPECT_TRUE(wait_for([&] { return text("seen") == "2 signal 15"; })) << text("seen");
}

TEST_F(SupervisorTest, GoesOnWithOneThatEndsAtOnce) {
  program = "exit 7";
  start();
  const std::string expected = "after:\nafter:exit code 7\nafter:exit code 7\nafter:exit code 7\n";
  EXPECT_TRUE(wait_for([&] { return text("starts").starts_with(expected); })) << text("starts");
}

TEST_F(SupervisorTest, GoesOnWhenItCannotBeStarted) {
  program = "exec sleep 1000";
  fs::create_directories(base);
  std::ofstream(folder) << "a file where the folder should be";
  start();
  EXPECT_TRUE(wait_for([&] { return text("seen").find(" cannot make") != std::string::npos; })) << text("seen");
  fs::remove(folder);
  wait_for_daemon();
}

TEST_F(SupervisorTest, WatchesOneThatRunsAlready) {
  daemons.start(spec(""));
  const int first = wait_for_daemon();
  start();
  EXPECT_TRUE(wait_for([&] { return text("seen") == "0 "; }));
  EXPECT_EQ(daemons.running(folder), first);
  ::kill(first, SIGKILL);
  wait_for_daemon(first);
  EXPECT_TRUE(wait_for([&] { return text("starts").ends_with("after:its end\n"); })) << text("starts");
}

TEST_F(SupervisorTest, DoesNotStartWhatIsNotWanted) {
  start();
  const int first = wait_for_daemon();
  EXPECT_TRUE(wait_for([&] { return text("starts") == "after:\n"; }));
  fs::remove(base + "/wanted");
  ::kill(first, SIGKILL);
  EXPECT_TRUE(ended_well());
  EXPECT_EQ(text("starts"), "after:\n");
}

TEST_F(SupervisorTest, DoesNotStartWhatHasEndedForGood) {
  start();
  const int first = wait_for_daemon();
  EXPECT_TRUE(wait_for([&] { return text("starts") == "after:\n"; }));
  touch("for-good");
  ::kill(first, SIGTERM);
  EXPECT_TRUE(ended_well());
  EXPECT_EQ(text("starts"), "after:\n");
}

TEST_F(SupervisorTest, EndsTheDaemonWhenItIsToldToEnd) {
  start();
  wait_for_daemon();
  ::kill(supervisor, SIGTERM);
  EXPECT_TRUE(ended_well());
  EXPECT_FALSE(daemons.running(folder));
}

TEST_F(SupervisorTest, TheDaemonGoesOnWithoutIt) {
  start();
  const int first = wait_for_daemon();
  kill_supervisor();
  EXPECT_EQ(daemons.running(folder), first);
}

TEST_F(SupervisorTest, IsReplacedByItsStandInWhileTheDaemonStandsStill) {
  has_stand_in = true;
  start();
  const int first = wait_for_daemon();
  ::kill(first, SIGSTOP);
  kill_supervisor();
  EXPECT_TRUE(wait_for([&] { return fs::exists(base + "/replaced"); }));
  EXPECT_EQ(daemons.running(folder), first);
}

TEST_F(SupervisorTest, HasAnotherStandInAfterTheFirst) {
  has_stand_in = true;
  start();
  wait_for_daemon();
  std::vector<pid_t> first;
  EXPECT_TRUE(wait_for([&] { return (first = stand_ins()).size() == 1; }));
  ::kill(first.at(0), SIGKILL);
  EXPECT_TRUE(wait_for([&] {
    const std::vector<pid_t> second = stand_ins();  // once: the first may be reaped between two looks
    return second.size() == 1 && second != first;
  }));
  kill_supervisor();
  EXPECT_TRUE(wait_for([&] { return fs::exists(base + "/replaced"); }));
}

TEST_F(SupervisorTest, IsNotReplacedWhenItEndsInOrder) {
  has_stand_in = true;
  start();
  wait_for_daemon();
  std::vector<pid_t> first;
  EXPECT_TRUE(wait_for([&] { return (first = stand_ins()).size() == 1; }));
  ::kill(supervisor, SIGTERM);
  EXPECT_TRUE(ended_well());
  EXPECT_EQ(::kill(first.at(0), 0), -1) << "its stand-in lives";
  EXPECT_FALSE(fs::exists(base + "/replaced"));
}

TEST_F(SupervisorTest, IsNotReplacedWhenNobodyIsWantedAnyMore) {
  has_stand_in = true;
  start();
  wait_for_daemon();
  std::vector<pid_t> first;
  EXPECT_TRUE(wait_for([&] { return (first = stand_ins()).size() == 1; }));
  fs::remove(base + "/wanted");
  kill_supervisor();
  EXPECT_TRUE(wait_for([&] { return ::kill(first.at(0), 0) != 0 || is_zombie(first.at(0)); }));
  EXPECT_FALSE(fs::exists(base + "/replaced"));
}

}  // namespace
}  // namespace rubato::os
