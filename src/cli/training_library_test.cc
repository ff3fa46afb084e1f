#include "cli/training_library.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "os/files.h"

namespace rubato::cli {
namespace {

class TrainingLibrary : public testing::Test {
 protected:
  TrainingLibrary() : folder(files.make_temporary_folder("rubato-library-")) {}
  ~TrainingLibrary() override { std::filesystem::remove_all(folder); }
  agent::Environment add(const std::string& below) {
    agent::Environment workers;
    const Log log([this](LogLevel, std::string_view line) { said.emplace_back(line); }, [] { return WallTime{}; });
    add_training_library(files, below, "/no/such/python", workers, log);
    return workers;
  }
  os::RealFiles files;
  const std::string folder;
  std::vector<std::string> said;
};

TEST_F(TrainingLibrary, IsUnpackedAndOnThePathOfWorkers) {
  const agent::Environment workers = add(folder);
  ASSERT_TRUE(workers.contains("PYTHONPATH"));
  EXPECT_TRUE(files.exists(folder + "/python-" + embedded::kLibraryHash + "/rubato"));
  EXPECT_EQ(add(folder), workers);
  EXPECT_TRUE(said.empty());
}

TEST_F(TrainingLibrary, WorkersGoWithoutItWhereItCannotBeUnpackedAndTheLogSaysWhy) {
  files.open_append(folder + "/file")->append("no folder");
  EXPECT_FALSE(add(folder + "/file/node").contains("PYTHONPATH"));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("the training library cannot be unpacked"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find(folder + "/file/node"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("error="), std::string::npos) << said[0];
}

}  // namespace
}  // namespace rubato::cli
