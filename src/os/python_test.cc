#include "os/python.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "os/probe.h"

namespace rubato::os {
namespace {

namespace fs = std::filesystem;

class PythonTest : public ::testing::Test {
 protected:
  PythonTest() {
    std::string name = ::testing::TempDir() + "/pythonXXXXXX";
    root_ = fs::canonical(mkdtemp(name.data()));
  }
  ~PythonTest() override { fs::remove_all(root_); }

  std::string file(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
    return root_ + path;
  }
  std::string program(const std::string& path, const std::string& text = "#!/bin/sh\n") {
    file(path, text);
    fs::permissions(root_ + path, fs::perms::owner_all);
    return root_ + path;
  }
  void torch(const std::string& packages, const std::string& version) {
    file(packages + "/torch/version.py",
         "from typing import Optional\n__version__ = '" + version + "'\ndebug = False\n");
  }
  std::string link(const std::string& from, const std::string& to) {
    fs::create_directories(fs::path(root_ + from).parent_path());
    fs::create_symlink(to, root_ + from);
    return root_ + from;
  }

  std::string root_;
};

TEST_F(PythonTest, TheInterpreterIsSearchedInThisOrder) {
  const std::string python = program("/bin/python");
  EnvironmentMap env{{"PATH", "/no/such:" + root_ + "/bin"}};
  EXPECT_EQ(find_python("", env), python);
  const std::string python3 = program("/bin/python3");
  EXPECT_EQ(find_python("", env), python3);
  const std::string other = program("/opt/py");
  env["PYTHON_EXEC"] = other;
  EXPECT_EQ(find_python("", env), other);
  EXPECT_EQ(find_python("python", env), python);
}

TEST_F(PythonTest, AMissingInterpreterIsAUsageError) {
  const EnvironmentMap env{{"PATH", root_}};
  const auto message = [](const std::string& wanted, const EnvironmentMap& e) {
    try {
      return find_python(wanted, e);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kUsage);
      EXPECT_FALSE(error.hint.empty());
      return error.message;
    }
  };
  EXPECT_EQ(message("", env), "there is no python3 or python in PATH");
  EXPECT_EQ(message("/no/python", env), "--python '/no/python' is not an interpreter that can be run");
  EXPECT_EQ(message("", {{"PYTHON_EXEC", file("/plain", "")}}),
            "PYTHON_EXEC '" + root_ + "/plain' is not an interpreter that can be run");
}

TEST_F(PythonTest, TorchOfAPrefixIsFoundThroughLinks) {
  program("/opt/conda/bin/python3.11");
  const std::string python = link("/opt/conda/bin/python3", "python3.11");
  torch("/opt/conda/lib/python3.10/site-packages", "1.0.0");
  EXPECT_EQ(installed_torch(python, {}, root_), std::nullopt);  // of another version of Python
  torch("/opt/conda/lib/python3.11/site-packages", "2.4.1+cu121");
  EXPECT_EQ(installed_torch(python, {}, root_), "2.4.1+cu121");
  EXPECT_EQ(installed_torch(link("/usr/local/bin/py", root_ + "/opt/conda/bin/python3"), {}, root_), "2.4.1+cu121");
}

TEST_F(PythonTest, DebiansFoldersAreKnown) {
  const std::string python = program("/usr/bin/python3.11");
  torch("/usr/lib/python3/dist-packages", "1.13.0a0");
  EXPECT_EQ(installed_torch(python, {}, root_), "1.13.0a0");
  torch("/usr/local/lib/python3.11/dist-packages", "2.0.0");
  EXPECT_EQ(installed_torch(python, {}, root_), "2.0.0");
  torch("/home/me/.local/lib/python3.11/site-packages", "2.1.0");
  EXPECT_EQ(installed_torch(python, {{"HOME", "/home/me"}}, root_), "2.1.0");
  torch("/mine", "2.2.0");
  EXPECT_EQ(installed_torch(python, {{"HOME", "/home/me"}, {"PYTHONPATH", "/a:/mine"}}, root_), "2.2.0");
}

TEST_F(PythonTest, AVirtualEnvironmentHidesTheSystemUnlessItSaysSo) {
  program("/usr/bin/python3.11");
  torch("/usr/lib/python3/dist-packages", "1.13.0");
  const std::string python = link("/venv/bin/python", root_ + "/usr/bin/python3.11");
  file("/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n");
  EXPECT_EQ(installed_torch(python, {}, root_), std::nullopt);
  file("/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\n");
  EXPECT_EQ(installed_torch(python, {}, root_), "1.13.0");
  torch("/venv/lib/python3.11/site-packages", "2.3.0");
  EXPECT_EQ(installed_torch(python, {}, root_), "2.3.0");
}

TEST_F(PythonTest, ATornVersionFileIsNoVersion) {
  const std::string python = program("/usr/bin/python3");
  file("/usr/lib/python3/dist-packages/torch/version.py", "__version__ = '1.1");
  EXPECT_EQ(installed_torch(python, {}, root_), std::nullopt);
}

TEST_F(PythonTest, ScriptsAreFilesOrRunnableFolders) {
  EXPECT_EQ(script_kind(root_ + "/train.py"), ScriptKind::kMissing);
  EXPECT_EQ(script_kind(file("/train.py", "")), ScriptKind::kFile);
  EXPECT_EQ(script_kind(root_), ScriptKind::kFolder);
  file("/__main__.py", "");
  EXPECT_EQ(script_kind(root_), ScriptKind::kRunnableFolder);
}

TEST_F(PythonTest, ProbingReadsAnswersAmongOtherOutput) {
  const std::string python =
      program("/bin/python3",
              "#!/bin/sh\necho hello\necho rubato version=3.11.2\necho rubato torch=2.4.1\necho rubato gloo=1\n");
  const PythonProbe probe = probe_python(python, {}, 10s);
  EXPECT_EQ(probe.version, "3.11.2");
  EXPECT_EQ(probe.torch, "2.4.1");
  EXPECT_TRUE(probe.gloo);
  EXPECT_FALSE(probe.nccl);
  EXPECT_EQ(probe.error, "");
}

TEST_F(PythonTest, ProbingIsBoundedAndTellsWhatWentWrong) {
  const std::string slow = program("/bin/slow", "#!/bin/sh\necho rubato version=3.11.2\nsleep 100\n");
  const PythonProbe late = probe_python(slow, {{"PATH", "/usr/bin:/bin"}}, 3s);
  EXPECT_TRUE(late.timed_out);
  EXPECT_EQ(late.version, "3.11.2");
  const std::string broken = program("/bin/broken", "#!/bin/sh\nexit 3\n");
  EXPECT_EQ(probe_python(broken, {}, 10s).error, "it does not run Python code: exit code 3");
  const std::string crash = program("/bin/crash", "#!/bin/sh\necho rubato version=3.11.2\nkill -9 $$\n");
  EXPECT_NE(probe_python(crash, {}, 10s).torch_error.find("Killed"), std::string::npos);
  EXPECT_EQ(probe_python("/no/such", {}, 10s).path, "");
}

}  // namespace
}  // namespace rubato::os
