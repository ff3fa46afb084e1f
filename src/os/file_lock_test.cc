#include "os/file_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "core/error.h"

namespace rubato::os {
namespace {

TEST(FileLock, OneAtATimeAndAgainAfterwards) {
  const std::string path = ::testing::TempDir() + "/rubato_file_lock" + std::to_string(::getpid());
  {
    const auto first = FileLock::try_take(path);
    ASSERT_TRUE(first);
    EXPECT_FALSE(FileLock::try_take(path));
  }
  EXPECT_TRUE(FileLock::try_take(path));
  ::unlink(path.c_str());
}

TEST(FileLock, AFolderThatIsNotThereIsAnError) { EXPECT_THROW(FileLock::try_take("/no/such/folder/lock"), Error); }

}  // namespace
}  // namespace rubato::os
