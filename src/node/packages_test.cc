#include "node/packages.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>

#include "os/files.h"
#include "os/network.h"
#include "os/process_fixture.h"
#include "world/trees.h"

namespace rubato::node {
namespace {

constexpr int kFiles = 500;

// What came in right after the work had begun: how much of the work was done when it was heard?
struct Heard {
  int at = -1;
};

int files_in(const std::filesystem::path& folder) {
  int count = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, none))
    count += entry.is_regular_file();
  return count;
}

Task<int> work(os::Runtime& runtime, Task<void> task, std::filesystem::path watched, Heard& heard) {
  boost::asio::post(runtime.io(), [&heard, watched] { heard.at = files_in(watched); });
  co_await std::move(task);
  co_return 0;
}

class Folders : public testing::Test {
 protected:
  Folders() {
    for (int i = 0; i < kFiles; ++i) folder.write("from/" + std::to_string(i % 5) + "/" + std::to_string(i), "x");
  }
  void run(Task<void> task, const std::string& watched) {
    Task<int> all = work(runtime, std::move(task), folder / watched, heard);
    runtime.run(std::move(all));
  }

  os::TempFolder folder;
  os::Runtime runtime;
  os::RealNetwork network{runtime};
  os::RealProcesses processes{runtime};
  os::RealFiles files;
  os::RealConsole console;
  Random random{1};
  const MachineFacts machine;
  World world{runtime, network, processes, files, console, random, machine};
  Heard heard;
};

// On the real clock: a simulated one stands still during a turn, and hid that these did not pause at all.
TEST_F(Folders, OthersAreHeardWhileOneIsCopied) {
  run(copy_tree(world, folder / "from", folder / "to"), "to");
  EXPECT_EQ(files_in(folder / "to"), kFiles);
  EXPECT_GE(heard.at, 0);
  EXPECT_LT(heard.at, kFiles / 2);
}

TEST_F(Folders, OthersAreHeardWhileOneIsRemoved) {
  run(remove_in_turns(world, folder / "from"), "from");
  EXPECT_EQ(files_in(folder / "from"), 0);
  EXPECT_GT(heard.at, kFiles / 2);
}

}  // namespace
}  // namespace rubato::node
