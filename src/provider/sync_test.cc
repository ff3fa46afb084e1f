// Folders over a real sshd, with rsync, and without it on either side: the result is the same.
#include "provider/sync.h"

#include "core/text.h"
#include "provider/local_runner.h"
#include "provider/ssh_testing.h"
#include "provider/sync_tree.h"

namespace rubato::provider {
namespace {

enum class Way { kRsync, kNoneThere, kNoneHere, kThisMachine };

class SyncTest : public SshTest, public testing::WithParamInterface<Way> {
 protected:
  void SetUp() override {
    SshTest::SetUp();
    if (IsSkipped()) return;
    if (GetParam() == Way::kRsync && run(shell("command -v rsync")).out.empty()) {
      GTEST_SKIP() << "rsync is not installed: tools/install-packages.sh test";
    }
    if (GetParam() == Way::kNoneThere) start_sshd(path_without({"rsync"}));
    const RunnerSettings mine = GetParam() == Way::kNoneHere ? settings_without({"rsync"}) : settings();
    if (GetParam() == Way::kThisMachine) {
      runner_ = std::make_unique<LocalRunner>(world, settings());
    } else {
      runner_ = std::make_unique<SshRunner>(world, mine, target());
    }
    folder.write("src/a.txt", "a");
    folder.write("src/sub/run.sh", "#!/bin/sh\n");
    folder.write("src/sub/deep/x y 'z'\n.txt", "odd name");
    folder.write("src/secret", "s");
    std::filesystem::create_directories(folder / "src/empty");
    std::filesystem::create_symlink("sub/run.sh", folder / "src/link");
    std::filesystem::create_symlink("/nowhere", folder / "src/broken");
    ::chmod((folder / "src/sub/run.sh").c_str(), 0755);
    ::chmod((folder / "src/secret").c_str(), 0600);
  }
  void TearDown() override {
    runner_.reset();
    SshTest::TearDown();
  }

  // Every entry with its mode and contents, in order.
  static std::string picture(const std::filesystem::path& root) {
    std::vector<std::string> lines;
    if (!std::filesystem::exists(root)) return "absent";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string name = std::filesystem::relative(entry.path().parent_path(), root) / entry.path().filename();
      if (entry.is_symlink()) {
        lines.push_back(fmt::format("{} -> {}", name, std::filesystem::read_symlink(entry.path()).string()));
        continue;
      }
      struct stat facts {};
      ::stat(entry.path().c_str(), &facts);
      const std::string text = entry.is_directory() ? "/" : " " + os::read_text(entry.path());
      lines.push_back(fmt::format("{} {:o} {}{}", name, facts.st_mode & 0777u,
                                  entry.is_directory() ? 0 : facts.st_mtim.tv_sec, text));
    }
    std::ranges::sort(lines);
    return join(lines, "\n");
  }
  void up(const std::string& local, const std::string& remote, const SyncOptions& options = {}) {
    finish_call(runner_->upload(local, remote, options));
  }

  std::unique_ptr<CommandRunner> runner_;
};

TEST_P(SyncTest, AFolderIsMirrored) {
  const std::string there = folder / "there/mount point";
  up(folder / "src", there);
  EXPECT_EQ(picture(there), picture(folder / "src"));
  folder.write("src/a.txt", "another");
  std::filesystem::remove(folder / "src/link");
  std::filesystem::remove_all(folder / "src/sub/deep");
  folder.write("src/link/now/a/folder", "x");
  folder.write("there/mount point/only there/x", "x");
  up(folder / "src", there);
  EXPECT_EQ(picture(there), picture(folder / "src"));
}

TEST_P(SyncTest, AFolderMayBecomeAFile) {
  const std::string there = folder / "there";
  up(folder / "src", there);
  std::filesystem::remove_all(folder / "src/sub");
  folder.write("src/sub", "a file");
  up(folder / "src", there + "/");
  EXPECT_EQ(picture(there), picture(folder / "src"));
}

TEST_P(SyncTest, WhatIsLeftOutIsNeitherSentNorRemoved) {
  SyncOptions options;
  options.exclude = {"/data", "*.log"};
  options.ignore_files = {".gitignore"};
  folder.write("src/.gitignore", "cache/\n");
  folder.write("src/sub/.gitignore", "!keep.log\n*.tmp\n");
  folder.write("src/data/big", "x");
  folder.write("src/cache/c", "x");
  folder.write("src/sub/a.tmp", "x");
  folder.write("src/sub/a.log", "x");
  folder.write("there/data/mine", "stays");
  folder.write("there/sub/old.log", "stays");
  folder.write("there/gone", "goes");
  const std::string there = folder / "there";
  up(folder / "src", there, options);
  for (const char* kept : {"a.txt", "data/mine", "sub/old.log", ".gitignore", "sub/run.sh"}) {
    EXPECT_TRUE(std::filesystem::exists(there + "/" + kept)) << kept;
  }
  for (const char* absent : {"gone", "data/big", "cache", "sub/a.tmp", "sub/a.log"}) {
    EXPECT_FALSE(std::filesystem::exists(there + "/" + absent)) << absent;
  }
}

TEST_P(SyncTest, OthersStayWhenAsked) {
  SyncOptions options;
  options.remove_others = false;
  folder.write("there/mine", "stays");
  up(folder / "src", folder / "there", options);
  EXPECT_EQ(os::read_text(folder / "there/mine"), "stays");
  EXPECT_EQ(os::read_text(folder / "there/a.txt"), "a");
}

TEST_P(SyncTest, AFileIsAFile) {
  up(folder / "src/secret", folder / "there/deep/renamed");
  EXPECT_EQ(os::read_text(folder / "there/deep/renamed"), "s");
  struct stat facts {};
  ::stat((folder / "there/deep/renamed").c_str(), &facts);
  EXPECT_EQ(facts.st_mode & 0777u, 0600u);
  up(folder / "src/link", folder / "there/deep/");
  EXPECT_EQ(os::read_text(folder / "there/deep/link"), "#!/bin/sh\n");
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "there/deep/link"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "there/deep"), {}), 2) << "no drafts left";
}

TEST_P(SyncTest, TheHomeFolderIsThatOfTheOtherSide) {
  if (GetParam() == Way::kThisMachine) GTEST_SKIP() << "it would be that of who runs the tests";
  up(folder / "src", "~/code");
  EXPECT_EQ(picture(home + "/code"), picture(folder / "src"));
  up(folder / "src/a.txt", "~/b.txt");
  EXPECT_EQ(os::read_text(home + "/b.txt"), "a");
}

TEST_P(SyncTest, DownIsUpTurnedRound) {
  folder.write("back/old", "goes");
  folder.write("back/a.log", "stays");
  folder.write("src/b.log", "not sent");
  SyncOptions options;
  options.exclude = {"*.log"};
  finish_call(runner_->download(folder / "src", folder / "back", options));
  EXPECT_FALSE(std::filesystem::exists(folder / "back/old"));
  EXPECT_FALSE(std::filesystem::exists(folder / "back/b.log"));
  std::filesystem::remove(folder / "back/a.log");
  std::filesystem::remove(folder / "src/b.log");
  EXPECT_EQ(picture(folder / "back"), picture(folder / "src"));
  finish_call(runner_->download(folder / "src/secret", folder / "into/", options));
  EXPECT_EQ(os::read_text(folder / "into/secret"), "s");
}

TEST_P(SyncTest, WhatIsNotThereIsSaid) {
  EXPECT_EQ(error_of(runner_->upload(folder / "nothing", "/tmp/x", SyncOptions{}))->code, ErrorCode::kNotFound);
  EXPECT_EQ(error_of(runner_->download(folder / "nothing", folder / "x", SyncOptions{}))->code, ErrorCode::kNotFound);
  folder.write("file", "x");
  const std::optional<Error> error = error_of(runner_->upload(folder / "src", folder / "file", SyncOptions{}));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kFailed);
  EXPECT_NE(error->message.find("File exists"), std::string::npos) << error->message;
}

std::string name_of_way(const testing::TestParamInfo<Way>& info) {
  static const char* const names[] = {"Rsync", "NoneThere", "NoneHere", "ThisMachine"};
  return names[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Ways, SyncTest,
                         testing::Values(Way::kRsync, Way::kNoneThere, Way::kNoneHere, Way::kThisMachine), name_of_way);

class TreeHashTest : public RealWorldTest {
 protected:
  std::string hash(const SyncOptions& options = {}) { return await(tree_hash(world, folder / "t", options)); }
};

TEST_F(TreeHashTest, FollowsNamesContentsModesAndLinks) {
  EXPECT_EQ(hash(), "absent");
  folder.write("t/a", "1");
  folder.write("t/sub/b", "2");
  std::vector<std::string> seen = {hash()};
  EXPECT_EQ(hash(), seen.back());
  const auto changed = [&](const char* why) {
    const std::string now = hash();
    EXPECT_EQ(std::ranges::count(seen, now), 0) << why;
    seen.push_back(now);
  };
  folder.write("t/a", "3");
  changed("contents");
  ::chmod((folder / "t/a").c_str(), 0755);
  changed("exec bit");
  std::filesystem::create_symlink("a", folder / "t/l");
  changed("new link");
  std::filesystem::remove(folder / "t/l");
  std::filesystem::create_symlink("sub", folder / "t/l");
  changed("link's target");
  std::filesystem::create_directory(folder / "t/e");
  changed("empty folder");
  std::filesystem::rename(folder / "t/sub", folder / "t/bus");
  changed("name");
}

TEST_F(TreeHashTest, DoesNotSeeWhatIsLeftOut) {
  folder.write("t/a", "1");
  SyncOptions options;
  options.exclude = {"*.log"};
  const std::string before = hash(options);
  folder.write("t/x.log", "1");
  EXPECT_EQ(hash(options), before);
  EXPECT_NE(hash(), before);
}

TEST_F(TreeHashTest, OfOneFile) {
  folder.write("t", "1");
  const std::string before = hash();
  ::chmod((folder / "t").c_str(), 0755);
  EXPECT_NE(hash(), before);
}

}  // namespace
}  // namespace rubato::provider
