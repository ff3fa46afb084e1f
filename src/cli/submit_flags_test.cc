#include "cli/submit_flags.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/commands.h"
#include "cli/testing.h"

namespace rubato::cli {
namespace {

using Kind = SubmitSource::Kind;

// A disk of names.
struct Disk {
  std::set<std::string> files{"/w/train.py", "/w/sub/other.py", "/p/pyproject.toml", "/p/tools/fit.py",
                              "/p/run.sh",   "/w/pack.tar.gz",  "/h/train.py"};
  std::set<std::string> folders{"/w", "/w/sub", "/p", "/p/tools", "/h"};
  std::map<std::string, std::string> texts;
  std::string folder = "/w";
  JobDefaults defaults;
};

SubmitPlan plan(const std::vector<std::string>& arguments, const Disk& disk = {}) {
  SubmitView view;
  view.env = {{"HOME", "/h"}, {"USER", "me"}, {"TOKEN", "s3cret"}};
  view.folder = disk.folder;
  view.defaults = disk.defaults;
  view.kind_of = [&](const std::string& path) {
    return disk.files.contains(path)     ? PathKind::kFile
           : disk.folders.contains(path) ? PathKind::kFolder
                                         : PathKind::kMissing;
  };
  view.read = [&](const std::string& path) -> std::optional<std::string> {
    const auto found = disk.texts.find(path);
    return found == disk.texts.end() ? std::nullopt : std::optional(found->second);
  };
  return plan_submit(parse_command(submit_table(), arguments, view.env), view);
}

TEST(SubmitFlags, AScriptComesWithItsFolderIfThatIsSmall) {
  const SubmitPlan made = plan({"sub/other.py", "--x", "1"});
  EXPECT_EQ(made.source.kind, Kind::kPerhaps);
  EXPECT_EQ(made.source.path, "/w/sub");
  EXPECT_EQ(made.source.alone, "other.py");
  EXPECT_EQ(made.spec.program, "other.py");
  EXPECT_EQ(made.spec.name, "other");
  EXPECT_EQ(made.spec.args, (std::vector<std::string>{"--x", "1"}));
  EXPECT_EQ(describe(made.spec.per_worker), "1 CPU");
  EXPECT_EQ(made.spec.owner, "me");
}

TEST(SubmitFlags, TheOwnerIsKnownWithoutAVariable) {
  SubmitView view;
  view.folder = "/w";
  view.user = "ann";
  view.kind_of = [](const std::string&) { return PathKind::kMissing; };
  const auto owner = [&](const Environment& env) {
    view.env = env;
    const std::vector<std::string> arguments{"--no-python", "true"};
    return plan_submit(parse_command(submit_table(), arguments, env), view).spec.owner;
  };
  EXPECT_EQ(owner({}), "ann");
  EXPECT_EQ(owner({{"LOGNAME", "bob"}}), "bob");
  EXPECT_EQ(owner({{"LOGNAME", "bob"}, {"USER", "cid"}}), "cid");
}

TEST(SubmitFlags, AScriptOfTheProjectThatWeAreInComesWithTheProject) {
  Disk disk;
  disk.folder = "/p";
  const SubmitPlan made = plan({"tools/fit.py"}, disk);
  EXPECT_EQ(made.source.kind, Kind::kFolder);
  EXPECT_EQ(made.source.path, "/p");
  EXPECT_EQ(made.spec.program, "tools/fit.py");
}

TEST(SubmitFlags, ADirectoryAndAScriptInIt) {
  const SubmitPlan made = plan({"--name", "big", "/p", "tools/fit.py", "--", "--epochs", "3"});
  EXPECT_EQ(made.source.kind, Kind::kFolder);
  EXPECT_EQ(made.source.path, "/p");
  EXPECT_EQ(made.spec.name, "big");
  EXPECT_EQ(made.spec.args, (std::vector<std::string>{"--epochs", "3"}));
  EXPECT_NE(usage_error([] { plan({"/p"}); }).message.find("which script in /p?"), std::string::npos);
  EXPECT_NE(usage_error([] {
              plan({"/p", "nope.py"});
            }).message.find("there is no 'nope.py' in /p"),
            std::string::npos);
}

TEST(SubmitFlags, APackageThatThePersonMade) {
  const SubmitPlan made = plan({"pack.tar.gz", "src/train.py", "-v"});
  EXPECT_EQ(made.source.kind, Kind::kArchive);
  EXPECT_EQ(made.source.path, "/w/pack.tar.gz");
  EXPECT_EQ(made.spec.program, "src/train.py");
  EXPECT_EQ(made.spec.args, std::vector<std::string>{"-v"});
}

TEST(SubmitFlags, AdaptDlsFlagsMeanTheSame) {
  const SubmitPlan made = plan({"-f", "fit.py", "-d", "/p/tools", "-m", "4", "-u", "ray://x:1", "--gpus", "1",
                                "--checkpoint-timeout", "120", "--cluster-rescale-timeout", "60", "--", "--lr", "1"});
  EXPECT_EQ(made.source.path, "/p/tools");
  EXPECT_EQ(made.spec.program, "fit.py");
  EXPECT_EQ(made.spec.workers_min, 1);
  EXPECT_EQ(made.spec.workers_max, 4);
  EXPECT_EQ(made.spec.args, (std::vector<std::string>{"--lr", "1"}));
  EXPECT_EQ(made.notes.size(), 1u);
  usage_error([] { plan({"-m", "4", "--workers", "2", "train.py"}); });
}

TEST(SubmitFlags, ModulesAndProgramsOfTheNode) {
  const SubmitPlan module = plan({"--module", "pkg.train", "a"});
  EXPECT_EQ(module.spec.kind, ProgramKind::kModule);
  EXPECT_EQ(module.spec.name, "pkg.train");
  EXPECT_EQ(module.source.path, "/w");
  const SubmitPlan binary = plan({"--no-python", "nvidia-smi"});
  EXPECT_EQ(binary.spec.kind, ProgramKind::kBinary);
  EXPECT_EQ(binary.spec.program, "nvidia-smi");
  EXPECT_EQ(binary.source.kind, Kind::kNothing);
  Disk disk;
  disk.folder = "/p";
  EXPECT_EQ(plan({"--no-python", "./run.sh"}, disk).spec.program, "./run.sh");
}

TEST(SubmitFlags, SizesPerWorker) {
  const JobSpec spec =
      plan({"--workers", "2:8", "--cpus", "0.5", "--gpus", "2", "--memory", "4GiB", "--resource", "tpu=1", "train.py"})
          .spec;
  EXPECT_EQ(spec.workers_min, 2);
  EXPECT_EQ(spec.workers_max, 8);
  EXPECT_EQ(describe(spec.per_worker), "0.5 CPU, 2 GPU, 4 GiB memory, 1 tpu");
  EXPECT_EQ(plan({"--workers", "8:32:8", "train.py"}).spec.workers_step, 8);
  for (const char* bad : {"0", "4:2", "a", "1:2:3", "-1"}) {
    usage_error([&] { plan({"--workers=" + std::string(bad), "train.py"}); });
  }
  EXPECT_NE(usage_error([] {
              plan({"--memory", "much", "train.py"});
            }).message.find("--memory much"),
            std::string::npos);
}

TEST(SubmitFlags, TheClustersFileSaysWhatHoldsWithoutFlags) {
  Disk disk;
  disk.defaults.workers = WorkerSizes{2, 4, 1};
  disk.defaults.resources.amounts.set(kGpu, 1000);
  disk.defaults.env = {{"A", "file"}, {"B", "file"}};
  disk.defaults.python = "/opt/python";
  disk.defaults.priority = 7;
  disk.defaults.max_restarts = 9;
  disk.defaults.timeout = 1h;
  const JobSpec plain = plan({"train.py"}, disk).spec;
  EXPECT_EQ(plain.workers_min, 2);
  EXPECT_EQ(plain.workers_max, 4);
  EXPECT_EQ(describe(plain.per_worker), "1 CPU, 1 GPU");
  EXPECT_EQ(plain.python, "/opt/python");
  EXPECT_EQ(plain.priority, 7);
  EXPECT_EQ(plain.max_restarts, 9);
  EXPECT_EQ(plain.timeout, Duration(1h));
  const JobSpec given =
      plan({"--workers", "1", "--gpus", "0", "--env", "A=flag", "--priority", "1", "train.py"}, disk).spec;
  EXPECT_EQ(given.workers_max, 1);
  EXPECT_EQ(describe(given.per_worker), "1 CPU");
  EXPECT_EQ(given.env, (std::map<std::string, std::string>{{"A", "flag"}, {"B", "file"}}));
  EXPECT_EQ(given.priority, 1);
  EXPECT_EQ(plan({"--max-cluster-size", "1", "train.py"}, disk).spec.workers_min, 1);
}

TEST(SubmitFlags, WeightsAndDeadlinesAreOfTheJob) {
  Disk disk;
  const JobSpec spec = plan({"--weight", "2.5", "--deadline", "6h", "train.py"}, disk).spec;
  EXPECT_EQ(spec.weight, 2.5);
  EXPECT_EQ(spec.deadline, Duration(6h));
  EXPECT_EQ(job_spec_from_json(to_json(spec)), spec);
  EXPECT_THROW(plan({"--weight", "0", "train.py"}, disk), Error);
  EXPECT_THROW(plan({"--weight", "heavy", "train.py"}, disk), Error);
  EXPECT_THROW(plan({"--deadline", "soon", "train.py"}, disk), Error);
}

TEST(SubmitFlags, VariablesAreGivenCopiedOrReadFromAFile) {
  Disk disk;
  disk.texts["/w/vars"] = "# words\nA=1\nexport B=\"two words\"\n\nTOKEN\nC=from file\n";
  const JobSpec spec = plan({"--env-file", "vars", "-e", "C=x=y", "train.py"}, disk).spec;
  EXPECT_EQ(spec.env,
            (std::map<std::string, std::string>{{"A", "1"}, {"B", "two words"}, {"C", "x=y"}, {"TOKEN", "s3cret"}}));
  EXPECT_NE(usage_error([] {
              plan({"--env", "NOPE", "train.py"});
            }).message.find("no such variable"),
            std::string::npos);
  // A value may be a secret: an error shows the name only.
  EXPECT_EQ(plan({"--adaptdl=rubato", "train.py"}).spec.env.at("RUBATO_ADAPTDL"), "rubato");
  EXPECT_FALSE(plan({"--adaptdl=auto", "train.py"}).spec.env.contains("RUBATO_ADAPTDL"));
  const Error wrong = usage_error([] { plan({"--adaptdl=mine", "train.py"}); });
  EXPECT_NE(wrong.message.find("auto or rubato"), std::string::npos) << wrong.message;
  const Error error = usage_error([] { plan({"--env", "1A=s3cret", "train.py"}); });
  EXPECT_EQ(error.message.find("s3cret"), std::string::npos);
}

TEST(SubmitFlags, MistakesSayWhatToWrite) {
  EXPECT_NE(usage_error([] { plan({}); }).hint.find("rubato submit [flags] train.py"), std::string::npos);
  EXPECT_NE(usage_error([] { plan({"nope.py"}); }).message.find("there is no script 'nope.py'"), std::string::npos);
  EXPECT_NE(usage_error([] {
              plan({"-d", "/p", "train.py"});
            }).message.find("there is no 'train.py' in /p; the one here is not in that folder"),
            std::string::npos);
  EXPECT_NE(usage_error([] {
              plan({"--name", "Bad Name", "train.py"});
            }).message.find("not a name for a job"),
            std::string::npos);
}

TEST(SubmitFlags, NobodyMeansToSendTheirWholeHome) {
  Disk disk;
  disk.folder = "/h";
  disk.files.insert("/h/.git");
  const SubmitPlan made = plan({"train.py"}, disk);
  EXPECT_EQ(made.source.kind, Kind::kPerhaps);
  EXPECT_EQ(made.source.alone, "train.py");
}

}  // namespace
}  // namespace rubato::cli
