#include "cli/run_flags.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "cli/commands.h"
#include "cli/testing.h"
#include "core/text.h"

namespace rubato::cli {
namespace {

const MachineFacts kMachine{.hostname = "vm", .machine_id = "id", .cpus = 6, .gpus = 2};

LaunchSpec parse(std::string_view line, const Environment& env = {}, const MachineFacts& machine = kMachine) {
  std::vector<std::string> arguments;
  for (const std::string_view word : split(line, ' ')) {
    if (!word.empty()) arguments.emplace_back(word);
  }
  return parse_run(arguments, env, machine);
}

Error error_of(std::string_view line, const Environment& env = {}, const MachineFacts& machine = kMachine) {
  return usage_error([&] { parse(line, env, machine); });
}

// One row for every flag: a value, and whether a spec shows it.
struct FlagCase {
  std::string name;
  std::string value;   // empty for a switch
  std::string before;  // other flags that it needs
  std::function<bool(const LaunchSpec&)> shows;
};

bool notes(const LaunchSpec& spec, std::string_view arguments) {
  return std::any_of(spec.notes.begin(), spec.notes.end(),
                     [&](const std::string& note) { return note.find(arguments) != std::string::npos; });
}

std::vector<FlagCase> flag_cases() {
  using S = const LaunchSpec&;
  return {
      {"nnodes", "2:4", "--rdzv-endpoint a:1 ", [](S s) { return s.min_nodes == 2 && s.max_nodes == 4; }},
      {"nproc-per-node", "auto", "", [](S s) { return s.nproc == 2; }},
      {"standalone", "", "", [](S s) { return s.standalone && s.run_id.empty(); }},
      {"node-rank", "1", "--nnodes 2 --master-addr a ", [](S s) { return s.node_rank == 1; }},
      {"role", "critic", "", [](S s) { return s.role == "critic"; }},
      {"virtual-local-rank", "", "", [](S s) { return s.virtual_local_rank; }},
      {"module", "", "", [](S s) { return s.kind == ProgramKind::kModule; }},
      {"no-python", "", "", [](S s) { return s.kind == ProgramKind::kBinary; }},
      {"run-path", "", "", [](S s) { return s.kind == ProgramKind::kRunPath; }},
      {"python", "/opt/python", "", [](S s) { return s.python == "/opt/python"; }},
      {"prewarm", "torch,numpy", "",
       [](S s) {
         return s.prewarm == std::vector<std::string>{"torch", "numpy"};
       }},
      {"rdzv-endpoint", "node0:29400", "", [](S s) { return s.endpoint == "node0:29400" && !s.standalone; }},
      {"rdzv-backend", "etcd", "--rdzv-endpoint a:2379 ", [](S s) { return s.backend == Backend::kEtcd; }},
      {"shutdown-timeout", "90", "", [](S s) { return s.grace == 90s; }},
      {"numa-binding", "core-complex", "", [](S s) { return s.numa_binding == NumaBinding::kCoreComplex; }},
      {"rdzv-id", "job7", "", [](S s) { return s.run_id == "job7"; }},
      {"rdzv-conf", "join_timeout=7", "", [](S s) { return s.join_timeout == 7s; }},
      {"rdzv-key-file", "/key", "", [](S s) { return s.key_file == "/key"; }},
      {"master-addr", "node0", "--nnodes 2 ", [](S s) { return s.master_addr == "node0"; }},
      {"master-port", "1234", "", [](S s) { return s.master_port == 1234; }},
      {"local-addr", "10.0.0.2", "", [](S s) { return s.local_addr == "10.0.0.2"; }},
      {"max-restarts", "3", "", [](S s) { return s.max_restarts == 3; }},
      {"spares", "2", "", [](S s) { return s.spares == 2; }},
      {"always-restart", "", "", [](S s) { return !s.in_place; }},
      {"adaptdl", "rubato", "", [](S s) { return s.our_adaptdl; }},
      {"grace", "2m", "", [](S s) { return s.grace == 120s; }},
      {"notice", "/run/notice", "", [](S s) { return s.notice_file == "/run/notice"; }},
      {"heartbeat", "500ms", "", [](S s) { return s.heartbeat == 500ms; }},
      {"signals-to-handle", "SIGTERM,SIGUSR1", "",
       [](S s) {
         return s.signals == std::vector<int>{SIGTERM, SIGUSR1};
       }},
      {"log-dir", "/logs", "", [](S s) { return s.log_dir == "/logs"; }},
      {"redirects", "3", "", [](S s) { return s.redirects.of(5) == 3; }},
      {"tee", "0:1,1:2", "", [](S s) { return s.tee.of(0) == 1 && s.tee.of(1) == 2 && s.tee.of(2) == 0; }},
      {"local-ranks-filter", "0,1", "",
       [](S s) {
         return s.local_ranks_filter == std::vector<int>{0, 1};
       }},
      {"duplicate-stdout-filters", "apple,a,,b,pear", "",
       [](S s) {
         return s.stdout_filters == std::vector<std::string>{"apple", "a,b", "pear"};
       }},
      {"duplicate-stderr-filters", "NCCL", "--tee 3 ",
       [](S s) {
         return s.stderr_filters == std::vector<std::string>{"NCCL"} && s.notes.empty();
       }},
      {"events", "-", "", [](S s) { return s.events_file == "-"; }},
      {"quiet", "", "", [](S s) { return s.quiet; }},
      {"monitor-interval", "0.1", "", [](S s) { return notes(s, "a worker's end is seen at once"); }},
      {"start-method", "fork", "", [](S s) { return notes(s, "a program of its own"); }},
      {"event-log-handler", "console", "", [](S s) { return notes(s, "--events"); }},
      {"exit-barrier-timeout", "5.5", "", [](S s) { return notes(s, "until all workers have ended"); }},
      {"use-env", "", "", [](S s) { return notes(s, "always in the environment"); }},
      {"logs-specs", "default", "", [](S s) { return s.notes.empty(); }},
  };
}

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string variable_of(const std::string& name) {
  std::string out = "PET_" + underscored(name);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::toupper(c); });
  return out;
}

TEST(RunFlags, EveryFlagOfTheTableHasACase) {
  for (const Flag& flag : run_table().flags) {
    const auto cases = flag_cases();
    const bool covered = std::any_of(cases.begin(), cases.end(), [&](const auto& c) { return c.name == flag.name; });
    EXPECT_TRUE(covered) << flag.name;
    EXPECT_EQ(flag.env, variable_of(std::string(flag.name)));
    EXPECT_LE(flag.help.size(), 90u) << flag.name;
  }
}

TEST(RunFlags, EveryFlagWorksByNameByUnderscoresAndByVariable) {
  for (const FlagCase& c : flag_cases()) {
    SCOPED_TRACE(c.name);
    const std::string value = c.value.empty() ? "" : " " + c.value;
    EXPECT_TRUE(c.shows(parse(fmt::format("{}--{}{} train.py", c.before, c.name, value))));
    EXPECT_TRUE(c.shows(parse(fmt::format("{}--{}{} train.py", c.before, underscored(c.name), value))));
    EXPECT_TRUE(c.shows(parse(c.before + "train.py", {{variable_of(c.name), c.value.empty() ? "1" : c.value}})));
    if (!c.value.empty()) {
      EXPECT_TRUE(c.shows(parse(fmt::format("{}--{}={} train.py", c.before, c.name, c.value))));
    }
    if (c.before.empty() && c.name != "logs-specs") {  // it changes nothing here
      EXPECT_FALSE(c.shows(parse("train.py")));
    }
  }
}

TEST(RunFlags, TorchrunsAbbreviationsAreNotHiddenByOurFlags) {
  EXPECT_EQ(parse("--nproc 4 t.py").nproc, 4);
  EXPECT_TRUE(notes(parse("--e console t.py"), "--event-log-handler"));
  EXPECT_TRUE(parse("--stand t.py").standalone);
}

TEST(RunFlags, WhatWeDoNotDoIsRefusedInsteadOfIgnored) {
  EXPECT_FALSE(error_of("--logs-specs mine t.py").hint.empty());
}

TEST(RunFlags, FiltersAreForTeedLines) {
  EXPECT_TRUE(notes(parse("--duplicate-stdout-filters x t.py"), "without --tee"));
  EXPECT_TRUE(parse("--duplicate-stdout-filters= t.py").stdout_filters.empty());
  EXPECT_TRUE(parse("--tee 1 --duplicate-stdout-filters=, t.py").stdout_filters.empty());
}

TEST(RunFlags, EachWorkerNeedsADeviceOfItsOwnForAVirtualRank) {
  const Environment two{{"CUDA_VISIBLE_DEVICES", "4,5"}};
  EXPECT_TRUE(parse("--virtual-local-rank --nproc-per-node 2 t.py", two).virtual_local_rank);
  EXPECT_EQ(error_of("--virtual-local-rank --nproc-per-node 3 t.py", two).message,
            "--virtual-local-rank: 3 workers, but CUDA_VISIBLE_DEVICES=4,5 has 2");
}

TEST(RunFlags, LaunchHandsTheLocalRankToTheScript) {
  const auto launch = [](const std::vector<std::string>& arguments) {
    return launch_spec(parse_command(launch_table(), arguments, {}), {}, kMachine, RunVerb::kLaunch);
  };
  EXPECT_EQ(launch({"t.py", "--x"}).local_rank_flag, "--local-rank");
  EXPECT_EQ(launch({"--use_env", "t.py"}).local_rank_flag, "");
  EXPECT_TRUE(launch({"--use-env", "t.py"}).notes.empty());
  EXPECT_EQ(launch({"--use-env", "--no-python", "t"}).kind, ProgramKind::kBinary);
  EXPECT_EQ(usage_error([&] { launch({"--no-python", "t"}); }).message, "--no-python needs --use-env here");
  EXPECT_EQ(parse("t.py").local_rank_flag, "");
}

TEST(RunFlags, DefaultsAreOneWorkerAlone) {
  const LaunchSpec spec = parse("train.py --lr 0.1");
  EXPECT_EQ(spec.program, "train.py");
  EXPECT_EQ(spec.args, (std::vector<std::string>{"--lr", "0.1"}));
  EXPECT_TRUE(spec.standalone);
  EXPECT_EQ(spec.run_id, "none");  // as torchrun
  EXPECT_EQ(spec.nproc, 1);
  EXPECT_EQ(spec.master_port, 0);
  EXPECT_EQ(spec.signals, (std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT}));
  EXPECT_TRUE(spec.notes.empty());
}

TEST(RunFlags, NodesAreANumberOrARange) {
  EXPECT_EQ(parse("--nnodes 3 --rdzv-endpoint a t").min_nodes, 3);
  EXPECT_EQ(error_of("--nnodes 0 t").message, "--nnodes 0: at least one node is needed");
  EXPECT_EQ(error_of("--nnodes 0:2 t").message, "--nnodes 0:2: at least one node is needed");
  EXPECT_EQ(error_of("--nnodes 4:2 t").message, "--nnodes 4:2: the maximum 2 is below the minimum 4");
  EXPECT_EQ(error_of("--nnodes two t").message, "--nnodes two: 'two' is not a number of nodes");
  EXPECT_EQ(error_of("--nnodes 1: t").message, "--nnodes 1:: '' is not a number of nodes");
  EXPECT_EQ(error_of("--nnodes 1:2:3:4 t").message, "--nnodes 1:2:3:4: expected N, MIN:MAX or MIN:MAX:STEP");
  EXPECT_EQ(parse("--nnodes 2:8 --rdzv-endpoint a t").nodes_step, 1);
  const LaunchSpec steps = parse("--nnodes 2:8:2 --rdzv-endpoint a t");
  EXPECT_EQ(steps.max_nodes, 8);
  EXPECT_EQ(steps.nodes_step, 2);
  EXPECT_TRUE(steps.notes.empty());
  EXPECT_EQ(parse("--nnodes 2:8:2 --spares 1 --rdzv-endpoint a t").notes.size(), 1u);
  EXPECT_EQ(error_of("--nnodes 1:2:3 t").message, "--nnodes 1:2:3: 1 is not a multiple of the step 3");
  EXPECT_EQ(error_of("--nnodes 2:5:2 t").message, "--nnodes 2:5:2: 5 is not a multiple of the step 2");
  EXPECT_EQ(error_of("--nnodes 2:x:2 t").message, "--nnodes 2:x:2: 'x' is not a number of nodes");
  EXPECT_EQ(error_of("--nnodes 2:4:0 t").message, "--nnodes 2:4:0: '0' is no step");
  EXPECT_EQ(error_of("--nnodes 2:4: t").message, "--nnodes 2:4:: '' is no step");
  EXPECT_EQ(error_of("t", {{"PET_NNODES", "0"}}).message, "PET_NNODES=0: at least one node is needed");
}

TEST(RunFlags, WorkersAreCountedFromTheMachine) {
  const MachineFacts no_gpu{.cpus = 6, .gpus = 0};
  EXPECT_EQ(parse("--nproc-per-node gpu t").nproc, 2);
  EXPECT_EQ(parse("--nproc-per-node cpu t").nproc, 6);
  EXPECT_EQ(parse("--nproc-per-node auto t").nproc, 2);
  EXPECT_EQ(parse("--nproc-per-node auto t", {}, no_gpu).nproc, 6);
  const Error error = error_of("--nproc-per-node gpu t", {}, no_gpu);
  EXPECT_EQ(error.message, "--nproc-per-node gpu: this machine shows no GPU");
  EXPECT_NE(error.hint.find("/dev/nvidia"), std::string::npos);
  EXPECT_NE(error.hint.find("rubato doctor"), std::string::npos);
  EXPECT_NE(error_of("--nproc-per-node xpu t").hint.find("--nproc-per-node N"), std::string::npos);
  EXPECT_EQ(error_of("--nproc-per-node 0 t").message, "--nproc-per-node 0: at least one worker is needed");
  EXPECT_EQ(error_of("--nproc-per-node t.py").message, "--nproc-per-node t.py: expected a number, auto, gpu or cpu");
}

TEST(RunFlags, StreamsComeInTorchrunsForms) {
  EXPECT_EQ(parse("-r3 t").redirects.of(0), 3);
  EXPECT_EQ(parse("-t 1 t").tee.of(9), 1);
  EXPECT_NE(error_of("-r 4 t").message.find("'4' is none of"), std::string::npos);
  EXPECT_NE(error_of("-r 0:1,2 t").message.find("'2' is not RANK:DIGIT"), std::string::npos);
  EXPECT_NE(error_of("-r -1 t").message.find("'-1' is none of"), std::string::npos);
}

TEST(RunFlags, NumbersTimesAndSignalsAreChecked) {
  EXPECT_EQ(error_of("--max-restarts -1 t").message, "--max-restarts -1: must be at least 0");
  EXPECT_EQ(error_of("--max-restarts 1.5 t").message, "--max-restarts 1.5: expected a whole number");
  EXPECT_EQ(error_of("--grace soon t").message, "--grace soon: expected a time");
  EXPECT_EQ(error_of("--heartbeat 0 t").message, "--heartbeat 0: must be at least 100ms");
  EXPECT_EQ(error_of("--master-port 70000 t").message, "--master-port 70000: must be at most 65535");
  EXPECT_EQ(error_of("--start-method thread t").message, "--start-method thread: expected spawn, fork or forkserver");
  EXPECT_EQ(error_of("--signals-to-handle SIGKILL t").message, "--signals-to-handle SIGKILL: SIGKILL cannot be caught");
  const LaunchSpec unknown = parse("--signals-to-handle SIGINT,SIGTERN t");  // as torchrun: a warning
  EXPECT_EQ(unknown.signals, std::vector<int>{SIGINT});
  EXPECT_TRUE(notes(unknown, "there is no signal 'SIGTERN'; did you mean SIGTERM?"));
  EXPECT_EQ(error_of("--local-ranks-filter 0,x t").message, "--local-ranks-filter 0,x: 'x' is not a local rank");
}

TEST(RunFlags, ProgramKindsExcludeEachOther) {
  EXPECT_EQ(error_of("--no-python -m t").message, "--no-python and --module exclude each other");
  EXPECT_EQ(parse("--run-path --no-python t").kind, ProgramKind::kRunPath);  // as torchrun
  EXPECT_EQ(error_of("--no-python --prewarm torch t").message, "--prewarm needs Python, but --no-python is given");
  EXPECT_EQ(error_of("").message, "no program to run was given");
  EXPECT_EQ(error_of("--nnodes 1 --").message, "no program to run was given");
}

TEST(RunFlags, AScriptMustBeThere) {
  const LaunchSpec spec = parse("train.py");
  check_script(spec, os::ScriptKind::kFile);
  check_script(spec, os::ScriptKind::kRunnableFolder);
  EXPECT_EQ(usage_error([&] { check_script(spec, os::ScriptKind::kMissing); }).message,
            "there is no script 'train.py'");
  EXPECT_NE(usage_error([&] { check_script(spec, os::ScriptKind::kFolder); }).message.find("is a folder"),
            std::string::npos);
  check_script(parse("-m train"), os::ScriptKind::kMissing);
  check_script(parse("--no-python train"), os::ScriptKind::kMissing);
}

TEST(RunFlags, TheTimeToEndIsOursThenTorchrunsFlagThenItsVariable) {
  const Environment variable{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "600"}};
  EXPECT_EQ(parse("t.py").grace, 30s);
  EXPECT_EQ(parse("t.py", variable).grace, 600s);
  EXPECT_EQ(parse("--shutdown_timeout=120 t.py", variable).grace, 120s);
  EXPECT_EQ(parse("--grace 2s --shutdown-timeout 120 t.py", variable).grace, 2s);
  EXPECT_EQ(error_of("--shutdown-timeout -1 t").message, "--shutdown-timeout -1: must be at least 0");
}

TEST(RunFlags, AValueBehindAnEqualsSignMayHaveSpaces) {
  const LaunchSpec spec =
      parse_run({"--role=the one", "--log-dir=/my logs/here", "my script.py", "--x=a b"}, {}, kMachine);
  EXPECT_EQ(spec.role, "the one");
  EXPECT_EQ(spec.log_dir, "/my logs/here");
  EXPECT_EQ(spec.program, "my script.py");
  EXPECT_EQ(spec.args, std::vector<std::string>{"--x=a b"});
  // Of `wc -l`, on some systems. Python's int() does not mind either.
  EXPECT_EQ(parse_run({"--nproc-per-node=   4", "--max-restarts= 2 ", "t"}, {}, kMachine).nproc, 4);
  EXPECT_FALSE(is_refused_by_argparse(parse_command(run_table(), {"--max-restarts= 2 ", "t"}, {})));
  // As argparse: a word with a space that is no flag is the program.
  EXPECT_EQ(parse_run({"-weird name.py"}, {}, kMachine).program, "-weird name.py");
}

TEST(RunFlags, KnowsWhatTorchrunsParserRefusesItself) {
  const auto refused = [](const std::vector<std::string>& arguments) {
    return is_refused_by_argparse(parse_command(run_table(), arguments, {}));
  };
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"--max-restarts", "x", "t"},
                                             {"--node-rank", "1.5", "t"},
                                             {"--master-port=", "t"},
                                             {"--start-method", "thread", "t"},
                                             {"--numa-binding", "near", "t"},
                                             {"--exit-barrier-timeout", "late", "t"},
                                             {"--monitor-interval", "often", "t"}}) {
    EXPECT_TRUE(refused(arguments)) << join(arguments, " ");
  }
  for (const char* line : {"--nproc-per-node unknown t", "--nnodes 1:2:3 t", "--no-python --module t", "-r 9 t",
                           "--rdzv-backend x t", "--max-restarts -1 t", "--local-ranks-filter a t", "t"}) {
    std::vector<std::string> arguments;
    for (const std::string_view word : split(line, ' ')) arguments.emplace_back(word);
    EXPECT_FALSE(refused(arguments)) << line;
  }
}

TEST(RunFlags, ADashIsAScriptFromStandardInput) {
  const LaunchSpec spec = parse("--nproc-per-node 1 - --epochs 3");
  EXPECT_EQ(spec.program, "-");
  EXPECT_EQ(spec.args, (std::vector<std::string>{"--epochs", "3"}));
  check_script(spec, os::ScriptKind::kMissing);
}

}  // namespace
}  // namespace rubato::cli
