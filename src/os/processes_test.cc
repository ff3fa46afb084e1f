#include "os/processes.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "os/cpu_set.h"
#include "os/exec.h"
#include "os/files.h"
#include "os/proc_scan.h"
#include "os/process_fixture.h"

namespace rubato::os {
namespace {

using RealProcessesTest = ProcessFixture;

size_t open_fds() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST_F(RealProcessesTest, TellsTheExitCode) {
  EXPECT_EQ(run(shell("exit 0")).status, ExitStatus{});
  EXPECT_EQ(run(shell("exit 3")).status, ExitStatus{.code = 3});
  EXPECT_EQ(run(shell("exit 255")).status, ExitStatus{.code = 255});
}

TEST_F(RealProcessesTest, TellsTheSignal) {
  EXPECT_EQ(run(shell("kill -SEGV $$")).status, ExitStatus{.signal = SIGSEGV});
  EXPECT_EQ(run(shell("kill -KILL $$")).status, ExitStatus{.signal = SIGKILL});
}

TEST_F(RealProcessesTest, HasTheLimitOfOpenFilesThatWeWereStartedWith) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 512;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  allow_many_open_files();
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
  EXPECT_EQ(run(shell("ulimit -n")).out, "512\n");
}

TEST_F(RealProcessesTest, RunsOnTheProcessorsThatItIsBoundTo) {
  SpawnSpec spec = shell("grep Cpus_allowed_list /proc/self/status");
  const int last = allowed_cpus().back();
  spec.cpus = {last};
  EXPECT_EQ(run(spec).out, fmt::format("Cpus_allowed_list:\t{}\n", last));
  spec.cpus = {kCpusMax - 1};
  try {
    run(spec);
    ADD_FAILURE() << "it ran on a processor that is not there";
  } catch (const Error& error) {
    EXPECT_NE(error.message.find("cannot bind"), std::string::npos) << error.message;
  }
}

TEST_F(RealProcessesTest, BringsBothStreamsThroughPipes) {
  const Finished finished = run(shell("echo one; echo two >&2; echo three"));
  EXPECT_EQ(finished.out, "one\nthree\n");
  EXPECT_EQ(finished.err, "two\n");
}

TEST_F(RealProcessesTest, ClosesTheOutputOfAProcessWithoutPipes) {
  SpawnSpec spec = shell("exit 4");
  spec.out.kind = spec.err.kind = OutputTarget::Kind::kNull;
  EXPECT_EQ(run(spec).status.code, 4);
}

TEST_F(RealProcessesTest, LosesNothingOfALargeOutput) {
  const Finished finished = run(shell("head -c 5000000 /dev/zero | tr '\\0' x; echo end"));
  EXPECT_EQ(finished.out.size(), 5000004u);
  EXPECT_TRUE(finished.out.ends_with("xend\n"));
}

TEST_F(RealProcessesTest, KeepsWhatComesInAFileUntilItIsGivenBack) {
  RealFiles files;
  SpawnSpec spec = shell("head -c 3000000 /dev/zero | tr '\\0' x; echo end; echo err >&2");
  spec.out.path = folder / "kept/out";
  spec.err.path = folder / "kept/err";
  std::unique_ptr<Process> process = processes.spawn(spec);
  EXPECT_TRUE(files.in_use(spec.out.path));
  std::string out;
  const auto take = [&] {
    while (std::optional<OutputChunk> chunk = process->output().try_pop()) {
      if (chunk->is_stderr) continue;
      out += chunk->bytes;
      EXPECT_EQ(chunk->end, out.size());
      EXPECT_GE(std::filesystem::file_size(spec.out.path), chunk->end);
    }
    return process->status().has_value() && process->output().size() == 0;
  };
  ASSERT_TRUE(turn_until(take));
  EXPECT_EQ(out.size(), 3000004u);
  EXPECT_TRUE(out == read_text(spec.out.path));
  EXPECT_EQ(read_text(spec.err.path), "err\n");
  EXPECT_TRUE(eventually([&] { return !files.in_use(spec.out.path); }));
  files.give_back(spec.out.path, 2'000'000);
  EXPECT_EQ(files.read_range(spec.out.path, 2'999'998, 100), "xxend\n");
}

// `echo words > /dev/stderr` empties a file that it finds there: a pipe it must be.
TEST_F(RealProcessesTest, AWorkerMayOpenItsOutputAgain) {
  SpawnSpec spec = shell("echo one; echo two > /dev/stdout; echo three");
  spec.out.path = folder / "kept";
  EXPECT_EQ(run(spec).out, "one\ntwo\nthree\n");
  EXPECT_EQ(read_text(folder / "kept"), "one\ntwo\nthree\n");
}

TEST_F(RealProcessesTest, StopsReadingWhenNobodyTakesTheOutput) {
  std::unique_ptr<Process> process = processes.spawn(shell("head -c 9000000 /dev/zero; echo end >&2"));
  // Once we stop reading, the pipe fills and what has come stays the same.
  size_t before = 0;
  int same = 0;
  const auto settled = [&] {
    const size_t now = process->output().size();
    same = now > 0 && now == before ? same + 1 : 0;
    before = now;
    return same >= 20;
  };
  ASSERT_TRUE(turn_until(settled));
  size_t waited = 0;
  while (std::optional<OutputChunk> chunk = process->output().try_pop()) waited += chunk->bytes.size();
  EXPECT_LE(waited, (1u << 20) + 2 * (64u << 10));
  const Finished finished = finish(*process);
  EXPECT_EQ(waited + finished.out.size(), 9000000u);
  EXPECT_EQ(finished.err, "end\n");
}

TEST_F(RealProcessesTest, AppendsToFilesAndMakesTheirFolders) {
  SpawnSpec spec = shell("echo out; echo err >&2");
  spec.out = {OutputTarget::Kind::kFile, folder / "a/b/out.log"};
  spec.err = {OutputTarget::Kind::kFile, folder / "a/c/err.log"};
  run(spec);
  run(spec);
  EXPECT_EQ(read_text(folder / "a/b/out.log"), "out\nout\n");
  EXPECT_EQ(read_text(folder / "a/c/err.log"), "err\nerr\n");
}

TEST_F(RealProcessesTest, NamesALogFileThatCannotBeWritten) {
  SpawnSpec spec = shell("exit 0");
  spec.out = {OutputTarget::Kind::kFile, folder.write("file", "") + "/under/it.log"};
  try {
    processes.spawn(spec);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where, spec.out.path);
  }
}

TEST_F(RealProcessesTest, GivesExactlyTheEnvironmentAndItsTokens) {
  SpawnSpec spec = spec_of({"env"});
  spec.env = {"PATH=/usr/bin:/bin", "A=1 2", "RUBATO_AGENT_TOKEN=of-another-agent"};
  const std::string out = run(spec).out;
  EXPECT_TRUE(out.starts_with("PATH=/usr/bin:/bin\nA=1 2\nRUBATO_AGENT_TOKEN=" + processes.family().token() + "\n"));
  EXPECT_EQ(out.find("of-another-agent"), std::string::npos);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 4);
}

TEST_F(RealProcessesTest, StartsInTheGivenFolder) {
  SpawnSpec spec = spec_of({"/bin/pwd"});
  spec.cwd = folder.path();
  EXPECT_EQ(run(spec).out, folder.path().string() + "\n");
}

TEST_F(RealProcessesTest, SearchesThePathOfTheNewEnvironment) {
  folder.write("bin/tool", "#!/bin/sh\necho found\n");
  std::filesystem::permissions(folder / "bin/tool", std::filesystem::perms::owner_all);
  SpawnSpec spec = spec_of({"tool"});
  spec.env = {"PATH=/nowhere:" + (folder / "bin")};
  EXPECT_EQ(run(spec).out, "found\n");
}

TEST_F(RealProcessesTest, SaysWhyAProgramCannotRun) {
  const auto message = [this](std::vector<std::string> argv, std::string cwd) {
    SpawnSpec spec = spec_of(std::move(argv));
    spec.cwd = std::move(cwd);
    try {
      processes.spawn(spec);
      return std::string("it ran");
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kUsage);
      return error.message + " | " + error.hint;
    }
  };
  EXPECT_EQ(message({"no-such-program"}, ""),
            "cannot run 'no-such-program': No such file or directory | check the program's name and PATH");
  const std::string plain = folder.write("plain.txt", "x");
  EXPECT_EQ(message({plain}, ""),
            fmt::format("cannot run '{0}': Permission denied | make it executable: chmod +x {0}", plain));
  std::filesystem::permissions(plain, std::filesystem::perms::owner_all);
  EXPECT_TRUE(message({plain}, "").starts_with(fmt::format("cannot run '{}': Exec format error | begin it", plain)));
  EXPECT_TRUE(message({"/bin/true"}, "/no/such").starts_with("cannot enter the folder '/no/such': No such file"));
}

Task<int> feed(Process& process, std::vector<std::string> parts, Finished& finished, std::string& problem) {
  try {
    for (const std::string& part : parts) co_await process.write(part);
    process.close_input();
  } catch (const Error& error) {
    problem = error.message;
  }
  while (std::optional<OutputChunk> chunk = co_await process.output().pop()) finished.out += chunk->bytes;
  finished.status = co_await process.wait();
  co_return 0;
}

Task<int> try_to_write(Process& process, std::string& problem) {
  try {
    co_await process.write("x");
  } catch (const Error& error) {
    problem = error.message;
  }
  co_return 0;
}

TEST_F(RealProcessesTest, GivesAProcessWhatIsWrittenAndThenTheEnd) {
  SpawnSpec spec = spec_of({"sha256sum"});
  spec.in = InputSource::kPipe;
  Finished finished;
  std::string problem;
  std::unique_ptr<Process> process = processes.spawn(spec);
  // More than a pipe holds: the writer waits for room.
  runtime.run(feed(*process, {std::string(3'000'000, 'a'), std::string(1, 'b')}, finished, problem));
  const Finished expected = run(shell("{ head -c 3000000 /dev/zero | tr '\\0' a; printf b; } | sha256sum"));
  EXPECT_EQ(finished.out, expected.out);
  EXPECT_TRUE(finished.status.ok());
  EXPECT_EQ(problem, "");
}

TEST_F(RealProcessesTest, SaysThatAProcessDoesNotReadAnyMore) {
  SpawnSpec deaf = shell("exec 0<&-; echo deaf; sleep 600");
  deaf.in = InputSource::kPipe;
  std::unique_ptr<Process> process = processes.spawn(deaf);
  ASSERT_TRUE(turn_until([&] { return process->output().size() > 0; }));
  std::string problem;
  const auto attempt = [&](Process& to) {
    problem.clear();
    runtime.run(try_to_write(to, problem));
  };
  attempt(*process);
  EXPECT_EQ(problem, "the process has closed its input");

  SpawnSpec brief = shell("exit 0");
  brief.in = InputSource::kPipe;
  process = processes.spawn(brief);
  finish(*process);
  attempt(*process);
  EXPECT_EQ(problem, "the process has ended");
}

TEST_F(RealProcessesTest, GivesNoInputWhenNoneIsWanted) {
  SpawnSpec spec = shell("cat; echo end");
  spec.in = InputSource::kNull;
  EXPECT_EQ(run(spec).out, "end\n");
}

TEST_F(RealProcessesTest, LeadsItsOwnGroupWithDefaultSignals) {
  ::signal(SIGPIPE, SIG_IGN);
  const auto hangup_before = ::signal(SIGHUP, SIG_DFL);  // under nohup it is ignored
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
  const Finished finished = run(spec_of({"grep", "-E", "^(Pid|SigBlk|SigIgn|SigCgt|NSpgid)", "/proc/self/status"}));
  ::sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGHUP, hangup_before);
  std::istringstream lines(finished.out);
  std::map<std::string, std::string> fields;
  for (std::string name, value; lines >> name >> value;) fields[name] = value;
  EXPECT_EQ(fields["NSpgid:"], fields["Pid:"]);
  EXPECT_EQ(fields["SigBlk:"], "0000000000000000");
  // 32 and 33 belong to glibc, which lets nobody change them: whoever started the tests may have them ignored.
  EXPECT_EQ(std::stoull(fields["SigIgn:"], nullptr, 16) & ~0x180000000ULL, 0u) << fields["SigIgn:"];
}

TEST_F(RealProcessesTest, LeavesAHangupIgnoredThatIsIgnoredHere) {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  const Finished finished = run(spec_of({"sh", "-c", "kill -HUP $$; echo lives"}));
  ::signal(SIGHUP, before);
  EXPECT_EQ(finished.out, "lives\n");
}

TEST_F(RealProcessesTest, GivesNoDescriptorButTheStandardStreams) {
  const Fd leaky(::open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  const Finished finished = run(spec_of({"ls", "/proc/self/fd"}));
  EXPECT_EQ(finished.out, "0\n1\n2\n3\n");  // 3 is the folder that it lists
}

TEST_F(RealProcessesTest, KeepsNoDescriptorAndNoZombie) {
  run(shell("exit 0"));
  const size_t before = open_fds();
  for (int i = 0; i < 20; ++i) {
    run(shell("echo x"));
    EXPECT_THROW(processes.spawn(spec_of({"no-such-program"})), Error);
    processes.spawn(shell("sleep 1000"));  // destroyed at once
  }
  EXPECT_TRUE(turn_until([&] { return own_children().size() == 1; }));  // the guard
  EXPECT_EQ(open_fds(), before);
}

TEST_F(RealProcessesTest, SignalsTheWholeGroup) {
  std::unique_ptr<Process> process = processes.spawn(
      shell("trap 'echo leader; wait; exit 7' TERM; (trap 'echo member; exit 0' TERM; echo up; while :; do "
            "sleep 0.01; done) & wait"));
  std::string seen;
  const auto up = [&] {
    while (std::optional<OutputChunk> chunk = process->output().try_pop()) seen += chunk->bytes;
    return seen.find("up\n") != std::string::npos;
  };
  ASSERT_TRUE(turn_until(up));
  process->signal_group(SIGTERM);
  const Finished finished = finish(*process);
  EXPECT_EQ(finished.status.code, 7);
  EXPECT_NE(finished.out.find("leader\n"), std::string::npos);
  EXPECT_NE(finished.out.find("member\n"), std::string::npos);
}

// As the children of a DataLoader: a fork, with another answer to the signal.
TEST_F(RealProcessesTest, APythonScriptThatHandlesTheSignalIsAskedAlone) {
  const std::string script =
      "import os, signal, sys, time\n"
      "child = os.fork()\n"
      "if child == 0:\n"
      "    signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'child\\n'), os._exit(0)))\n"
      "    os.write(1, b'up\\n')\n"
      "    while True: time.sleep(0.01)\n"
      "def save(*_):\n"
      "    time.sleep(0.3)\n"
      "    os.write(1, b'saved\\n')\n"
      "    os._exit(143 if os.waitpid(child, os.WNOHANG)[0] == 0 else 1)\n"
      "signal.signal(signal.SIGTERM, save)\n"
      "os.write(1, b'handles\\n')\n"
      "while True: time.sleep(0.01)\n";
  std::unique_ptr<Process> process = processes.spawn(spec_of({"/usr/bin/python3", "-c", script}));
  std::string seen;
  const auto up = [&] {
    while (std::optional<OutputChunk> chunk = process->output().try_pop()) seen += chunk->bytes;
    return seen.find("up\n") != std::string::npos && seen.find("handles\n") != std::string::npos;
  };
  ASSERT_TRUE(turn_until(up));
  process->signal_group(SIGTERM);
  const Finished finished = finish(*process);
  EXPECT_EQ(finished.status.code, 143) << "1: its child has died of the signal";
  EXPECT_EQ(finished.out, "saved\n");
}

TEST_F(RealProcessesTest, KillsTheRestOfTheGroupWhenTheMainProcessEnds) {
  const Finished finished = run(shell("sleep 1000 & echo $!; exit 5"));
  EXPECT_EQ(finished.status.code, 5);
  const pid_t left = std::stoi(finished.out);
  EXPECT_TRUE(turn_until([&] { return ::kill(left, 0) != 0; }));  // reaped, too
}

TEST_F(RealProcessesTest, KillsADaemonOfAnEndedWorkerButNotThatOfALiveOne) {
  const std::string daemon = "setsid sh -c 'echo $$; exec sleep 1000' & ";
  std::unique_ptr<Process> live = processes.spawn(shell(daemon + "wait"));
  std::string seen;
  const auto started = [&] {
    while (std::optional<OutputChunk> chunk = live->output().try_pop()) seen += chunk->bytes;
    return seen.ends_with("\n");
  };
  ASSERT_TRUE(turn_until(started));
  const pid_t kept = std::stoi(seen);
  const std::string file = folder / "pid";
  run(shell("setsid sh -c 'echo $$ > " + file + ".new; mv " + file + ".new " + file +
            "; exec sleep 1000' & while [ ! -f " + file + " ]; do sleep 0.01; done"));
  const pid_t left = std::stoi(read_text(file));
  EXPECT_TRUE(turn_until([&] { return ::kill(left, 0) != 0; }));
  EXPECT_TRUE(is_running(kept));
  live.reset();
  EXPECT_TRUE(turn_until([&] { return ::kill(kept, 0) != 0; }));
}

TEST_F(RealProcessesTest, ClosesTheOutputWhenAnEscapedDescendantHoldsThePipe) {
  const std::string file = folder / "pid";
  // In its own session and without our token: nothing of ours finds it.
  const Finished finished =
      run(shell("env -i setsid sh -c 'echo $$ > " + file + ".new; mv " + file + ".new " + file +
                "; exec sleep 1000' & while [ ! -f " + file + " ]; do sleep 0.01; done; echo all"));
  EXPECT_EQ(finished.out, "all\n");
  ::kill(std::stoi(read_text(file)), SIGKILL);
}

TEST_F(RealProcessesTest, DestructionKillsTheGroup) {
  std::unique_ptr<Process> process = processes.spawn(shell("trap '' TERM; sleep 1000 & echo $!; wait"));
  std::string seen;
  const auto started = [&] {
    while (std::optional<OutputChunk> chunk = process->output().try_pop()) seen += chunk->bytes;
    return seen.ends_with("\n");
  };
  ASSERT_TRUE(turn_until(started));
  const pid_t leader = process->pid();
  process.reset();
  EXPECT_NE(::kill(leader, 0), 0);
  EXPECT_TRUE(turn_until([&] { return ::kill(std::stoi(seen), 0) != 0; }));
}

TEST_F(RealProcessesTest, InheritsAStdinThatIsNoTerminal) {
  const Fd saved(::dup(0));
  const Fd file(::open(folder.write("input", "from stdin\n").c_str(), O_RDONLY | O_CLOEXEC));
  ::dup2(file.get(), 0);
  const Finished finished = run(spec_of({"cat"}));
  ::dup2(saved.get(), 0);
  EXPECT_EQ(finished.out, "from stdin\n");
}

TEST_F(RealProcessesTest, ManyAtOnceAllEnd) {
  std::vector<std::unique_ptr<Process>> all;
  for (int i = 0; i < 50; ++i) all.push_back(processes.spawn(shell(fmt::format("exit {}", i))));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(finish(*all[static_cast<size_t>(i)]).status.code, i);
}

// A helper in a session of its own, and one in the worker's group.
constexpr const char* kTwoDaemons = "setsid sleep 600 >&- 2>&- & echo $!; sleep 600 >&- 2>&- & echo $!; exit ";

std::vector<pid_t> pids_of(const Finished& finished) {
  std::istringstream text(finished.out);
  std::vector<pid_t> pids;
  for (pid_t pid = 0; text >> pid;) pids.push_back(pid);
  return pids;
}

TEST_F(RealProcessesTest, LeavesDaemonsOfASuccessWhenToldSo) {
  std::vector<pid_t> left;
  {
    Runtime loop;
    RealProcesses leaving(loop);
    leaving.leave_daemons();
    const std::unique_ptr<Process> worker = leaving.spawn(shell(std::string(kTwoDaemons) + "0"));
    Finished finished;
    Task<int> task = collect(*worker, finished);
    loop.run(std::move(task));
    left = pids_of(finished);
  }
  ASSERT_EQ(left.size(), 2u);
  for (const pid_t pid : left) {
    EXPECT_TRUE(is_running(pid));
    ::kill(pid, SIGKILL);
  }
}

TEST_F(RealProcessesTest, TellsOfAFailureAfterASuccessThatMayLeaveDaemons) {
  processes.leave_daemons();
  const TempFolder signs;
  const std::unique_ptr<Process> failing =
      processes.spawn(shell(fmt::format("until [ -e {} ]; do sleep 0.01; done; exit 3", signs / "go")));
  const std::unique_ptr<Process> well = processes.spawn(shell("exit 0"));
  EXPECT_EQ(finish(*well).status, ExitStatus{});
  signs.write("go", "");
  EXPECT_EQ(finish(*failing).status, ExitStatus{.code = 3});
}

TEST_F(RealProcessesTest, LeavesNoDaemonsOfAFailureNorOfWhatIsStartedAgain) {
  processes.leave_daemons();
  for (const pid_t pid : pids_of(run(shell(std::string(kTwoDaemons) + "3")))) {
    EXPECT_TRUE(turn_until([pid] { return !is_running(pid); }));
  }
  const std::vector<pid_t> before = pids_of(run(shell(std::string(kTwoDaemons) + "0")));
  ASSERT_EQ(before.size(), 2u);
  EXPECT_TRUE(is_running(before[0]));
  run(shell("true"));
  for (const pid_t pid : before) EXPECT_TRUE(turn_until([pid] { return !is_running(pid); }));
}

}  // namespace
}  // namespace rubato::os
