#include "os/daemons.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/error.h"
#include "os/fd.h"

namespace rubato::os {
namespace {

namespace fs = std::filesystem;

class DaemonsTest : public testing::Test {
 protected:
  DaemonsTest() {
    char name[] = "/tmp/rubato_daemons_XXXXXX";
    base = ::mkdtemp(name);
    spec.folder = base + "/node";
    spec.argv = {"/bin/sh", "-c", "echo out; echo err >&2; exec sleep 1000"};
    spec.env = {"PATH=/bin:/usr/bin"};
  }
  ~DaemonsTest() override {
    daemons.signal(spec.folder, SIGKILL);
    wait_for([&] { return !daemons.running(spec.folder); });
    fs::remove_all(base);
  }
  // Real processes: their time is theirs, so the bound is generous.
  static bool wait_for(const std::function<bool()>& condition) {
    for (int i = 0; i < 120'000; ++i) {
      if (condition()) return true;
      ::usleep(500);
    }
    return false;
  }
  std::string text(const std::string& name) const {
    std::ifstream file(spec.folder + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::string base;
  DaemonSpec spec;
  RealDaemons daemons;
};

TEST_F(DaemonsTest, RunsApartFromUsInItsFolder) {
  EXPECT_EQ(daemons.running(spec.folder), std::nullopt);
  daemons.start(spec);
  const std::optional<int> pid = daemons.running(spec.folder);
  ASSERT_TRUE(pid);
  EXPECT_NE(::getsid(*pid), ::getsid(0));
  EXPECT_NE(::getpgid(*pid), ::getpgid(0));
  EXPECT_EQ(fs::read_symlink("/proc/" + std::to_string(*pid) + "/cwd"), fs::canonical(spec.folder));
  EXPECT_EQ(fs::read_symlink("/proc/" + std::to_string(*pid) + "/fd/0"), "/dev/null");
  EXPECT_TRUE(wait_for([&] { return text("daemon.log") == "out\nerr\n"; }));
  EXPECT_EQ(text("daemon.pid"), std::to_string(*pid));
  struct stat facts {};
  ASSERT_EQ(::stat(spec.folder.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
  // The streams and the lock. The shell and the loader hold another one for moments; a leak stays.
  const auto descriptors = [&] {
    const fs::directory_iterator open("/proc/" + std::to_string(*pid) + "/fd");
    return std::distance(fs::begin(open), fs::end(open));
  };
  EXPECT_TRUE(wait_for([&] { return descriptors() == 4; })) << descriptors();
}

TEST_F(DaemonsTest, ASecondStartChangesNothing) {
  daemons.start(spec);
  const auto pid = daemons.running(spec.folder);
  daemons.start(spec);
  RealDaemons others;
  others.start(spec);
  EXPECT_EQ(others.running(spec.folder), pid);
}

TEST_F(DaemonsTest, IsSignalledAndStartedAgain) {
  daemons.start(spec);
  const auto first = daemons.running(spec.folder);
  daemons.signal(spec.folder, SIGTERM);
  ASSERT_TRUE(wait_for([&] { return !daemons.running(spec.folder); }));
  daemons.signal(spec.folder, SIGTERM);  // nobody there: nothing happens
  daemons.start(spec);
  const auto second = daemons.running(spec.folder);
  ASSERT_TRUE(second);
  EXPECT_NE(second, first);
}

// Its number was written anew into an emptied file, whose room the one who fills the disk had taken meanwhile.
TEST_F(DaemonsTest, IsFoundAgainOnAFullDisk) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small disk";
  const pid_t tester = ::fork();
  if (tester == 0) {
    const auto die = [](int code) { ::_exit(code); };
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) die(77);
    if (::mount("tmpfs", base.c_str(), "tmpfs", 0, "size=64k") != 0) die(77);
    const auto start = [&] {
      try {
        daemons.start(spec);
      } catch (const Error& error) {  // this process may not go on as a second runner of tests
        std::fprintf(stderr, "%s\n", error.message.c_str());
        die(78);
      }
    };
    start();
    const pid_t filler = ::fork();
    if (filler == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int fd = ::open((base + "/fill").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      while (::getppid() != 1) (void)!::write(fd, "x", 1);
      die(0);
    }
    int wrong = 0;
    for (int round = 0; round < 5; ++round) {
      daemons.signal(spec.folder, SIGKILL);
      wait_for([&] { return !daemons.running(spec.folder); });
      start();
      wrong += daemons.running(spec.folder) ? 0 : 1;
    }
    daemons.signal(spec.folder, SIGKILL);
    ::kill(filler, SIGKILL);
    die(wrong);
  }
  int status = 0;
  ::waitpid(tester, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no disk can be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "so often it was not found";
}

TEST_F(DaemonsTest, AnotherProcessIsNotMistakenForIt) {
  daemons.start(spec);
  const auto pid = daemons.running(spec.folder);
  ASSERT_TRUE(pid);
  ASSERT_EQ(::kill(*pid, SIGKILL), 0);
  ASSERT_TRUE(wait_for([&] { return !daemons.running(spec.folder); }));
  // The number that it had is ours now, as if it had been given out again.
  std::ofstream(spec.folder + "/daemon.pid") << ::getpid();
  EXPECT_EQ(daemons.running(spec.folder), std::nullopt);
  daemons.signal(spec.folder, SIGKILL);  // would end this test
}

TEST_F(DaemonsTest, WhatItStartsDoesNotKeepTheLockAlive) {
  // As the daemons of rubato do: their children get descriptor 3 closed.
  spec.argv[2] = "sleep 1000 3>&- & echo $! > child; exec sleep 1000";
  daemons.start(spec);
  ASSERT_TRUE(wait_for([&] { return !text("child").empty(); }));
  daemons.signal(spec.folder, SIGKILL);
  EXPECT_TRUE(wait_for([&] { return !daemons.running(spec.folder); }));
  ::kill(std::stoi(text("child")), SIGKILL);
}

TEST_F(DaemonsTest, AProgramThatIsNotThereIsAnError) {
  spec.argv = {"/no/such/program"};
  try {
    daemons.start(spec);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message.find("/no/such/program"), std::string::npos);
  }
  EXPECT_EQ(daemons.running(spec.folder), std::nullopt);
}

TEST_F(DaemonsTest, DoesNotCarryTheTokensOfWhoStartedIt) {
  spec.argv[2] = "env; exec sleep 1000";
  spec.env = {"PATH=/bin:/usr/bin", "A=b", "RUBATO_AGENT_TOKEN=x", "RUBATO_PROCESS_TOKEN=y"};
  daemons.start(spec);
  ASSERT_TRUE(wait_for([&] { return text("daemon.log").find("A=b") != std::string::npos; }));
  EXPECT_EQ(text("daemon.log").find("TOKEN"), std::string::npos);
}

TEST_F(DaemonsTest, MayUseOnlyItsCpus) {
  cpu_set_t ours;
  ASSERT_EQ(::sched_getaffinity(0, sizeof ours, &ours), 0);
  spec.cpus = 1;
  daemons.start(spec);
  cpu_set_t its;
  ASSERT_EQ(::sched_getaffinity(*daemons.running(spec.folder), sizeof its, &its), 0);
  EXPECT_EQ(CPU_COUNT(&its), 1);
}

TEST_F(DaemonsTest, HasAMemoryGroupOrSaysThatItHasNone) {
  spec.memory_bytes = int64_t{64} << 20;
  daemons.start(spec);
  const auto pid = daemons.running(spec.folder);
  ASSERT_TRUE(pid);
  std::ifstream file("/proc/" + std::to_string(*pid) + "/cgroup");
  const std::string groups(std::istreambuf_iterator<char>(file), {});
  const bool limited = groups.find("/rubato-") != std::string::npos;
  const bool said = text("daemon.log").find("is not enforced") != std::string::npos;
  EXPECT_NE(limited, said) << groups << text("daemon.log");
  const std::string group = text("daemon.cgroup");
  EXPECT_EQ(limited, !group.empty());
  daemons.signal(spec.folder, SIGKILL);
  EXPECT_TRUE(wait_for([&] { return !daemons.running(spec.folder); }));
  EXPECT_TRUE(!limited || wait_for([&] { return !daemons.running(spec.folder) && !fs::exists(group); }));
}

}  // namespace
}  // namespace rubato::os
