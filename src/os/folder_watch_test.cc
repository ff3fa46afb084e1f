#include "os/folder_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace rubato::os {
namespace {

using Kind = FolderWatch::Kind;

struct FolderWatchTest : testing::Test {
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/watch-XXXXXX";
    folder = mkdtemp(pattern.data());
    watch = watch_folder(folder.string());
    ASSERT_TRUE(watch);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  void write(const std::string& name) { std::ofstream(folder / name) << "bytes"; }
  // The last thing that is known of each name.
  std::optional<Kind> last_of(const std::string& name) {
    for (const FolderWatch::Change& change : watch->take()) seen.push_back(change);
    std::optional<Kind> kind;
    for (const FolderWatch::Change& change : seen) {
      if (change.name == name) kind = change.kind;
    }
    return kind;
  }

  std::filesystem::path folder;
  std::unique_ptr<FolderWatch> watch;
  std::vector<FolderWatch::Change> seen;
};

TEST_F(FolderWatchTest, KnowsWhatWasRenamedIntoPlace) {
  write("model.pt.tmp");
  std::filesystem::rename(folder / "model.pt.tmp", folder / "model.pt");
  std::filesystem::create_directory(folder / ".draft");
  std::filesystem::rename(folder / ".draft", folder / "step-1");
  EXPECT_EQ(last_of("model.pt"), Kind::kPlaced);
  EXPECT_EQ(last_of("step-1"), Kind::kPlaced);
  EXPECT_EQ(last_of("model.pt.tmp"), Kind::kGone);
}

TEST_F(FolderWatchTest, KnowsWhatIsWrittenInPlace) {
  write("model.pt");
  std::filesystem::create_directory(folder / "step-1");
  EXPECT_EQ(last_of("model.pt"), Kind::kWritten);
  EXPECT_EQ(last_of("step-1"), Kind::kWritten);
}

TEST_F(FolderWatchTest, NoticesThatAPlacedFileIsOpenedAgain) {
  write("x.tmp");
  std::filesystem::rename(folder / "x.tmp", folder / "x");
  EXPECT_EQ(last_of("x"), Kind::kPlaced);
  std::ofstream(folder / "x", std::ios::app) << "more" << std::flush;
  EXPECT_EQ(last_of("x"), Kind::kWritten);
}

TEST_F(FolderWatchTest, TakesALinkForWhole) {
  std::filesystem::create_symlink("epoch-3.pt", folder / "latest");
  EXPECT_EQ(last_of("latest"), Kind::kPlaced);
}

TEST(FolderWatch, IsNoneForWhatIsNoFolder) { EXPECT_FALSE(watch_folder("/proc/self/nothing/here")); }

}  // namespace
}  // namespace rubato::os
