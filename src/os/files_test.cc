#include "os/files.h"

#include <sys/stat.h>

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

}  // namespace
}  // namespace rubato
