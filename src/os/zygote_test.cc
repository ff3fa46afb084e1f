#include "os/zygote.h"

#include <fmt/format.h>

#include "os/proc_scan.h"
#include "os/process_fixture.h"

namespace rubato::os {
namespace {

using Kind = PythonMain::Kind;

class ZygoteTest : public ProcessFixture {
 protected:
  static std::vector<std::string> python() {
    const char* chosen = ::getenv("RUBATO_TEST_PYTHON");
    return {chosen ? chosen : "/usr/bin/python3", "-u"};
  }

  // What the agent would start cold, with the same main for a warm start.
  static SpawnSpec worker(const PythonMain& main) {
    std::vector<std::string> argv = python();
    if (main.kind == Kind::kModule) argv.push_back("-m");
    argv.push_back(main.target);
    argv.insert(argv.end(), main.args.begin(), main.args.end());
    SpawnSpec spec = spec_of(std::move(argv));
    spec.warm = main;
    return spec;
  }

  PythonMain script(const std::string& text, std::vector<std::string> args = {}) {
    return {Kind::kScript, folder.write("main.py", text), std::move(args)};
  }

  void start_prewarm(const PythonMain& main, std::vector<std::string> modules = {"json"}) {
    PrewarmSpec prewarm{.interpreter = python(), .modules = std::move(modules), .env = own_environment(), .main = main};
    processes.prewarm(prewarm, [this](std::string why) {
      if (!why.empty()) reasons.push_back(std::move(why));
    });
  }
  bool prewarm(const PythonMain& main, std::vector<std::string> modules = {"json"}) {
    start_prewarm(main, std::move(modules));
    return turn_until([this] { return processes.zygote()->ready() || !reasons.empty(); }) && reasons.empty();
  }
  std::string refusal(const PythonMain& main, std::vector<std::string> modules = {"json"}) {
    EXPECT_FALSE(prewarm(main, std::move(modules)));
    EXPECT_FALSE(run(worker(main)).warm);
    return reasons.empty() ? "" : reasons.front();
  }

  // The program's two ends must be told apart by nothing.
  void expect_same_as_cold(const PythonMain& main, std::vector<std::string> modules = {"json"}) {
    SpawnSpec spec = worker(main);
    spec.warm.reset();
    const Finished cold = run(spec);
    spec.warm = main;
    ASSERT_TRUE(prewarm(main, std::move(modules))) << (reasons.empty() ? "" : reasons.front());
    const Finished warm = run(spec);
    EXPECT_FALSE(cold.warm);
    EXPECT_TRUE(warm.warm);
    EXPECT_EQ(cold.status, warm.status);
    EXPECT_EQ(cold.out, warm.out);
    EXPECT_EQ(cold.err, warm.err);
  }
  Finished run_warm(const PythonMain& main, std::vector<std::string> modules = {"json"}) {
    EXPECT_TRUE(prewarm(main, std::move(modules))) << (reasons.empty() ? "" : reasons.front());
    const Finished finished = run(worker(main));
    EXPECT_TRUE(finished.warm);
    return finished;
  }

  std::vector<std::string> reasons;
};

TEST_F(ZygoteTest, RunsTheScriptAsMain) {
  expect_same_as_cold(script(R"(
import sys, os, json, threading, signal
m = sys.modules['__main__']
print(__name__, __file__, __spec__, __package__, type(__loader__).__name__, m.__dict__ is globals(), __cached__)
print(sorted(globals()))
print(sys.argv, sys.path, sys.flags, getattr(sys, 'orig_argv', 0), os.getcwd())
print(threading.current_thread() is threading.main_thread(), os.getpid() == os.getpgid(0))
print([signal.getsignal(s) for s in (1, 3, 13, 15, 17)], signal.getsignal(2) is signal.default_int_handler)
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
print(sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.encoding, sys.stderr.errors, sys.stdin.isatty())
print(sorted(os.listdir('/proc/self/fd'))[:-1])
)",
                             {"--a", "b c", "\xc3\xa9"}));
}

TEST_F(ZygoteTest, EndsAsAColdStartEnds) {
  for (const char* end :
       {"pass", "import sys; sys.exit(3)", "import sys; sys.exit('in words')", "raise SystemExit",
        "import os; os._exit(9)", "import os; os.abort()", "raise KeyboardInterrupt",
        "import atexit; atexit.register(print, 'at exit')",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('last'))).start()",
        "import sys; sys.excepthook = lambda *a: print('hook', a[0], a[2].tb_lineno)\n1/0"}) {
    SCOPED_TRACE(end);
    expect_same_as_cold(script(end));
  }
}

TEST_F(ZygoteTest, ShowsTheTracebackOfAColdStart) {
  expect_same_as_cold(
      script("def f(x):\n  return 1 / x\ntry:\n  f(0)\nexcept ZeroDivisionError as e:\n  raise KeyError(3) from e\n"));
  expect_same_as_cold(script("import json\njson.loads('{')\n"));
  expect_same_as_cold(script("exec('1/0')\n"));
}

TEST_F(ZygoteTest, ShowsASyntaxErrorAsAColdStart) { expect_same_as_cold(script("x = (1,\ndef\n")); }

TEST_F(ZygoteTest, PicklesClassesOfMain) {
  expect_same_as_cold(script("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)\n"));
}

TEST_F(ZygoteTest, StartsMultiprocessingChildrenInEveryWay) {
  expect_same_as_cold(script(R"(
import multiprocessing
class Box:
    def __init__(self, x): self.x = x
def double(box): return Box(box.x * 2)
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, [b.x for b in pool.map(double, [Box(1), Box(2)])])
)"),
                      {"multiprocessing.pool"});
}

TEST_F(ZygoteTest, RunsAModule) {
  folder.write("pack/__init__.py", "");
  folder.write("pack/__main__.py",
               "import sys\nprint(__name__, __package__, __spec__.name, sys.argv, sys.path[0])\n1/0\n");
  folder.write("pack/sub.py", "import sys\nfrom . import __name__ as p\nprint(p, __name__, __file__, sys.argv[1:])\n");
  for (const char* name : {"pack", "pack.sub", "no_such_module"}) {
    SCOPED_TRACE(name);
    PythonMain main{Kind::kModule, name, {"x"}};
    SpawnSpec spec = worker(main);
    spec.cwd = folder.path();
    spec.warm.reset();
    const Finished cold = run(spec);
    spec.warm = main;
    ASSERT_TRUE(prewarm(main));
    const Finished warm = run(spec);
    EXPECT_TRUE(warm.warm);
    EXPECT_EQ(cold.status, warm.status);
    EXPECT_EQ(cold.out, warm.out);
    EXPECT_EQ(cold.err, warm.err);
  }
}

TEST_F(ZygoteTest, RunsAPath) {
  PythonMain main =
      script("import sys\nprint(__name__, __file__ == sys.argv[0], sys.argv[1:], repr(sys.path[0]))\nsys.exit(4)");
  main.kind = Kind::kRunPath;
  main.args = {"x"};
  const Finished finished = run_warm(main);
  EXPECT_EQ(finished.out, "__main__ True ['x'] ''\n");
  EXPECT_EQ(finished.status.code, 4);
}

TEST_F(ZygoteTest, GivesEnvironmentFolderAndStdin) {
  const PythonMain main = script(
      "import os, sys\nprint(os.environ.get('HOME'), os.environb[b'ODD'], os.getenv('RANK'), os.getcwd(), "
      "repr(sys.stdin.read()))\nsys.stdout.flush()\nos.system('echo $RANK')\n");
  ASSERT_TRUE(prewarm(main));
  SpawnSpec spec = worker(main);
  std::erase_if(spec.env, [](const std::string& entry) { return entry.starts_with("HOME="); });
  spec.env.push_back("ODD=\xff=\xfe");
  spec.env.push_back("RANK=5");
  spec.cwd = folder.path();
  const Fd saved(::dup(0));
  const Fd file(::open(folder.write("input", "typed").c_str(), O_RDONLY | O_CLOEXEC));
  ::dup2(file.get(), 0);
  const Finished finished = run(spec);
  ::dup2(saved.get(), 0);
  EXPECT_TRUE(finished.warm);
  EXPECT_EQ(finished.out, fmt::format("None b'\\xff=\\xfe' 5 {} 'typed'\n5\n", folder.path().string()));
}

TEST_F(ZygoteTest, WritesToFiles) {
  const PythonMain main = script("import sys\nprint('o')\nprint('e', file=sys.stderr)\n");
  ASSERT_TRUE(prewarm(main));
  SpawnSpec spec = worker(main);
  spec.out = {OutputTarget::Kind::kFile, folder / "logs/out"};
  spec.err = {OutputTarget::Kind::kFile, folder / "logs/err"};
  EXPECT_TRUE(run(spec).warm);
  EXPECT_TRUE(run(spec).warm);
  EXPECT_EQ(read_text(folder / "logs/out"), "o\no\n");
  EXPECT_EQ(read_text(folder / "logs/err"), "e\ne\n");
}

TEST_F(ZygoteTest, SignalsEndAWorker) {
  const PythonMain main = script("import time\nprint('up')\ntime.sleep(1000)\n");
  ASSERT_TRUE(prewarm(main));
  for (const int signal : {SIGTERM, SIGINT, SIGKILL}) {
    std::unique_ptr<Process> process = processes.spawn(worker(main));
    ASSERT_TRUE(turn_until([&] { return process->output().size() > 0; }));
    process->signal_group(signal);
    EXPECT_EQ(finish(*process).status.signal, signal);
  }
}

TEST_F(ZygoteTest, AWorkerKilledAtBirthIsReaped) {
  const PythonMain main = script("import time\ntime.sleep(1000)\n");
  ASSERT_TRUE(prewarm(main));
  std::vector<pid_t> pids;
  for (int i = 0; i < 5; ++i) {
    std::unique_ptr<Process> process = processes.spawn(worker(main));
    EXPECT_TRUE(process->warm());
    pids.push_back(process->pid());
    process->signal_group(SIGKILL);
    EXPECT_EQ(finish(*process).status.signal, SIGKILL);
    pids.push_back(processes.spawn(worker(main))->pid());  // destroyed at once
  }
  for (const pid_t pid : pids) EXPECT_TRUE(turn_until([pid] { return ::kill(pid, 0) != 0; }));
}

TEST_F(ZygoteTest, EachWorkerHasRandomNumbersOfItsOwn) {
  const PythonMain main = script("import random, numpy\nprint(random.random(), numpy.random.random())\n");
  ASSERT_TRUE(prewarm(main, {"random", "numpy"}));
  const std::string first = run(worker(main)).out;
  const std::string second = run(worker(main)).out;
  EXPECT_NE(first.substr(0, first.find(' ')), second.substr(0, second.find(' ')));
  EXPECT_NE(first.substr(first.find(' ')), second.substr(second.find(' ')));
}

TEST_F(ZygoteTest, EachWorkerHasATorchSeedOfItsOwn) {
  const PythonMain main = script("import torch\nprint(torch.initial_seed(), torch.rand(1).item())\n");
  ASSERT_TRUE(prewarm(main, {"torch"}));
  EXPECT_NE(run(worker(main)).out, run(worker(main)).out);
}

TEST_F(ZygoteTest, WarmWorkersRunTorch) {
  const PythonMain main = script("import torch\nprint(torch.ones(3, 3).mm(torch.ones(3, 3)).sum().item())\n");
  expect_same_as_cold(main, {"torch"});
}

TEST_F(ZygoteTest, StartsColdUntilReady) {
  const PythonMain main = script("print('ran')\n");
  start_prewarm(main);
  const Finished finished = run(worker(main));
  EXPECT_EQ(finished.out, "ran\n");
  EXPECT_TRUE(reasons.empty());
}

TEST_F(ZygoteTest, RefusesAModuleThatCannotBeImported) {
  EXPECT_EQ(refusal(script("pass"), {"json", "no_such_thing"}),
            "cannot import no_such_thing: ModuleNotFoundError: No module named 'no_such_thing'");
}

TEST_F(ZygoteTest, RefusesAnInterpreterThatIsNotThere) {
  PrewarmSpec spec{.interpreter = {"/no/python"}, .modules = {"json"}, .env = own_environment(), .main = script("")};
  processes.prewarm(spec, [this](std::string why) {
    if (!why.empty()) reasons.push_back(std::move(why));
  });
  EXPECT_TRUE(turn_until([this] { return !reasons.empty(); }));
  EXPECT_EQ(reasons.front(), "cannot run '/no/python': No such file or directory");
}

TEST_F(ZygoteTest, RefusesAProgramThatIsNotPython) {
  PrewarmSpec spec{.interpreter = python(), .modules = {"json"}, .env = own_environment(), .main = std::nullopt};
  processes.prewarm(spec, [this](std::string why) {
    if (!why.empty()) reasons.push_back(std::move(why));
  });
  EXPECT_TRUE(turn_until([this] { return !reasons.empty(); }));
  EXPECT_EQ(reasons.front(), "the program is not Python");
}

TEST_F(ZygoteTest, RefusesWhenAFileBesideTheScriptShadowsAModule) {
  const std::string path = folder.write("json.py", "");
  EXPECT_EQ(refusal(script("pass")), path + " shadows the prewarmed module json");
}

TEST_F(ZygoteTest, RefusesAPackageBesideTheScriptButNotAPlainFolder) {
  folder.write("json/data.txt", "");
  EXPECT_TRUE(prewarm(script("pass")));
  const std::string path = folder.write("decimal/__init__.py", "");
  EXPECT_EQ(refusal(script("pass"), {"decimal"}), (folder / "decimal") + " shadows the prewarmed module decimal");
}

TEST_F(ZygoteTest, RefusesAScriptThatChangesThePath) {
  const std::string reason = folder / "main.py:2 changes sys.path, so that other modules may be meant";
  for (const char* line :
       {"sys.path.insert(0, 'x')", "sys.path = ['x'] + sys.path", "sys.path[0:0] = ['x']", "sys.path[0] = 'x'",
        "del sys.path[0]", "from sys import path as p; p.insert(0, 'x')", "import sys as s; s.path.insert(0, 'x')",
        "import site; site.addsitedir('.')", "(sys.path, a) = ([], 1)", "def f(): sys.path.pop()"}) {
    SCOPED_TRACE(line);
    reasons.clear();
    EXPECT_EQ(refusal(script(std::string("import sys\n") + line + "\n")), reason);
  }
}

TEST_F(ZygoteTest, AppendingToThePathIsHarmless) {
  EXPECT_TRUE(
      prewarm(script("import sys\nsys.path.append('x')\nsys.path.extend(['y'])\nsys.path += ['z']\nx = sys.path[0]\n"
                     "path = 3\n[].insert(0, 1)\n")));
}

TEST_F(ZygoteTest, RefusesWhenAnImportStartedAThread) {
  folder.write("lib/threaded.py",
               "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True, "
               "name='ticker').start()\n");
  PrewarmSpec spec{.interpreter = python(), .modules = {"threaded"}, .env = own_environment(), .main = script("")};
  spec.env.push_back("PYTHONPATH=" + (folder / "lib"));
  processes.prewarm(spec, [this](std::string why) {
    if (!why.empty()) reasons.push_back(std::move(why));
  });
  EXPECT_TRUE(turn_until([this] { return !reasons.empty(); }));
  EXPECT_EQ(reasons.front(), "the imports started a thread (ticker), which a fork would lose");
}

TEST_F(ZygoteTest, WarmWorkersUseTheGpu) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no NVIDIA GPU";
  const PythonMain main = script("import torch\nprint(torch.ones(3, device='cuda').sum().item())\n");
  const Finished finished = run_warm(main, {"torch"});
  EXPECT_EQ(finished.out, "3.0\n") << finished.err;
}

TEST_F(ZygoteTest, RefusesWhenAnImportInitialisedCuda) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no NVIDIA GPU";
  for (const char* text : {"import torch; torch.cuda.init()", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"}) {
    reasons.clear();
    folder.write("lib/eager.py", text);
    PrewarmSpec spec{.interpreter = python(), .modules = {"eager"}, .env = own_environment(), .main = script("")};
    spec.env.push_back("PYTHONPATH=" + (folder / "lib"));
    processes.prewarm(spec, [this](std::string why) {
      if (!why.empty()) reasons.push_back(std::move(why));
    });
    EXPECT_TRUE(turn_until([this] { return !reasons.empty(); }));
    EXPECT_NE(reasons.front().find("does not survive a fork"), std::string::npos) << reasons.front();
  }
}

TEST_F(ZygoteTest, RefusesAnEnvironmentThatTheImportsReadDifferently) {
  const PythonMain main = script("import os\nprint(os.environ['OMP_NUM_THREADS'])\n");
  ASSERT_TRUE(prewarm(main));
  SpawnSpec spec = worker(main);
  spec.env.push_back("OMP_NUM_THREADS=17");
  const Finished finished = run(spec);
  EXPECT_FALSE(finished.warm);
  EXPECT_EQ(finished.out, "17\n");
  EXPECT_TRUE(turn_until([this] { return !reasons.empty(); }));
  EXPECT_EQ(reasons.front(), "OMP_NUM_THREADS is not the same for the workers as at the import of the modules");
}

TEST_F(ZygoteTest, RefusesAScriptThatWasChangedMeanwhile) {
  PythonMain main = script("print(1)\n");
  ASSERT_TRUE(prewarm(main));
  EXPECT_TRUE(run(worker(main)).warm);
  script("import sys\nsys.path.insert(0, 'x')\nprint(2)\n");
  const Finished finished = run(worker(main));
  EXPECT_FALSE(finished.warm);
  EXPECT_EQ(finished.out, "2\n");
}

TEST_F(ZygoteTest, AKilledZygoteMeansAColdStartAndANewZygote) {
  const PythonMain main = script("print('ran')\n");
  ASSERT_TRUE(prewarm(main));
  const pid_t first = processes.zygote()->pid();
  ::kill(first, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_running(first); }));
  const Finished cold = run(worker(main));
  EXPECT_FALSE(cold.warm);
  EXPECT_EQ(cold.out, "ran\n");
  EXPECT_TRUE(turn_until([&] { return processes.zygote()->ready() && processes.zygote()->pid() != first; }));
  EXPECT_TRUE(run(worker(main)).warm);
  EXPECT_TRUE(reasons.empty());
}

TEST_F(ZygoteTest, GivesUpAZygoteThatDiesAgainAndAgain) {
  const PythonMain main = script("print('ran')\n");
  ASSERT_TRUE(prewarm(main));
  for (pid_t last = -1; reasons.empty();) {
    const auto changed = [&] {
      return !reasons.empty() || (processes.zygote()->pid() > 0 && processes.zygote()->pid() != last);
    };
    ASSERT_TRUE(turn_until(changed));
    last = processes.zygote()->pid();
    if (reasons.empty()) ::kill(last, SIGKILL);
  }
  EXPECT_EQ(reasons, std::vector<std::string>{
                         "the prewarmed interpreter died again and again (last: killed by SIGKILL (signal 9))"});
  EXPECT_FALSE(run(worker(main)).warm);
}

TEST_F(ZygoteTest, AStoppedLeaderTakesItsHelpersAlong) {
  const PythonMain main = script(
      "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    print(os.getpid())\n    "
      "time.sleep(1000)\n"
      "  os._exit(0)\nos.wait()\ntime.sleep(1000)\n");
  ASSERT_TRUE(prewarm(main));
  std::unique_ptr<Process> process = processes.spawn(worker(main));
  ASSERT_TRUE(turn_until([&] { return process->output().size() > 0; }));
  const pid_t helper = std::stoi(process->output().try_pop()->bytes);
  process.reset();
  EXPECT_TRUE(turn_until([&] { return ::kill(helper, 0) != 0; }));
}

}  // namespace
}  // namespace rubato::os
