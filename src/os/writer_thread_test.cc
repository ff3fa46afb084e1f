#include "os/writer_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/process_fixture.h"

namespace rubato::os {
namespace {

Task<int> write_lines(Outlet& outlet, Loop& loop) {
  for (int i = 0; i < 1000; ++i) outlet.write("line\n");
  const bool all = co_await outlet.drained(0, loop.now() + 60s);
  co_return all&& outlet.failure().empty() ? 0 : 1;
}

TEST(WriterThread, WritesFilesInOrderAndKeepsWhatWasThere) {
  const TempFolder folder;
  Runtime runtime;
  LoopOutlets outlets(runtime);
  for (int round = 1; round <= 2; ++round) {
    const std::unique_ptr<Outlet> outlet = outlets.open(folder / "log");
    EXPECT_EQ(runtime.run(write_lines(*outlet, runtime)), 0);
    EXPECT_EQ(read_text(folder / "log").size(), 5000u * static_cast<size_t>(round));
  }
}

TEST(WriterThread, TheEndOfAFilesOutletWaitsForItsBytes) {
  const TempFolder folder;
  Runtime runtime;
  LoopOutlets outlets(runtime);
  outlets.open(folder / "log")->write("the last words");
  EXPECT_EQ(read_text(folder / "log"), "the last words");
}

// Nobody reads the pipe: the write returns, the deadline passes, and files go on.
Task<int> write_much(Outlet& stalled, Outlet& file, Loop& loop) {
  stalled.write(std::string(1 << 20, 'x'));
  const bool taken = co_await stalled.drained(0, loop.now() + 50ms);
  file.write("goes on");
  const bool written = co_await file.drained(0, loop.now() + 60s);
  co_return !taken && written && stalled.pending() > 0 ? 0 : 1;
}

Task<int> drain(Outlet& outlet, Loop& loop) { co_return co_await outlet.drained(0, loop.now() + 60s) ? 0 : 1; }

TEST(WriterThread, AReaderThatStallsStallsNobody) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  Runtime runtime;
  LoopOutlets outlets(runtime);
  const std::unique_ptr<Outlet> pipe = outlets.open(folder / "pipe");  // nobody reads it yet
  const std::unique_ptr<Outlet> file = outlets.open(folder / "file");
  EXPECT_EQ(runtime.run(write_much(*pipe, *file, runtime)), 0);
  EXPECT_EQ(read_text(folder / "file"), "goes on");
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  size_t got = 0;
  while (got < size_t{1} << 20) {
    char block[65536];
    const ssize_t n = ::read(reader, block, sizeof block);
    if (n > 0) got += static_cast<size_t>(n);
    if (n <= 0) ::usleep(1000);
  }
  EXPECT_EQ(runtime.run(drain(*pipe, runtime)), 0);
  ::close(reader);
}

TEST(WriterThread, SaysWhyNothingIsTakenAnyMore) {
  Runtime runtime;
  LoopOutlets outlets(runtime);
  const std::unique_ptr<Outlet> full = outlets.open("/dev/full");
  EXPECT_EQ(full->failure(), "");
  full->write("something");
  EXPECT_EQ(runtime.run(drain(*full, runtime)), 0);
  EXPECT_EQ(full->failure(), "cannot write '/dev/full': No space left on device");
  EXPECT_EQ(full->pending(), 0u);
  full->write("more");
  EXPECT_EQ(full->pending(), 0u);
  EXPECT_THROW(outlets.open("/no/such/folder/log"), Error);
}

}  // namespace
}  // namespace rubato::os
