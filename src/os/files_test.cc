#include "os/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "world/files_testing.h"

namespace rubato {
namespace {

class RealDisk : public ::testing::Test {
 protected:
  RealDisk() : root_(files_.make_temporary_folder("rubato-files-test-")) {}
  ~RealDisk() override { files_.remove_tree(root_); }
  Files& files() { return files_; }
  const std::string& root() const { return root_; }

 private:
  os::RealFiles files_;
  std::string root_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(RealFiles, FilesContract, RealDisk);

TEST_F(RealDisk, APipeIsListedAsOtherAndIsNotOpened) {
  const std::string pipe = root() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(files().list(root()).size(), 1u);
  EXPECT_EQ(files().list(root())[0].kind, Files::Entry::Kind::kOther);
  EXPECT_THROW(files().open_read(pipe), Error);
}

TEST_F(RealDisk, ATemporaryFolderIsWhereOneCanBeWritten) {
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", "/proc", 1);  // nobody makes a folder there, root neither
  const std::string elsewhere = files().make_temporary_folder("rubato-files-test-");
  ::setenv("TMPDIR", root().c_str(), 1);
  const std::string here = files().make_temporary_folder("rubato-files-test-");
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
  EXPECT_TRUE(here.starts_with(root() + "/rubato-files-test-")) << here;
  EXPECT_TRUE(files().list(here).empty()) << "of what it was tried with";
  EXPECT_FALSE(elsewhere.starts_with("/proc")) << elsewhere;
  files().remove_tree(elsewhere);
}

// An ssh that ends takes its socket away while a purge removes the folder.
TEST_F(RealDisk, ATreeIsRemovedThoughOthersRemoveFromItToo) {
  for (int round = 0; round < 20; ++round) {
    const std::string tree = root() + "/tree";
    files().make_folders(tree);
    std::vector<std::string> paths;
    for (int i = 0; i < 200; ++i) paths.push_back(tree + "/" + std::to_string(i));
    for (const std::string& path : paths) files().write_atomically(path, "");
    std::thread other([&] {
      for (const std::string& path : paths) ::unlink(path.c_str());
    });
    files().remove_tree(tree);
    other.join();
    ASSERT_FALSE(files().exists(tree));
  }
}

}  // namespace
}  // namespace rubato
