#include "os/byte_streams.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "os/etcd_for_test.h"
#include "os/fd.h"

namespace rubato::os {
namespace {

std::string scratch(const std::string& name) {
  return fmt::format("{}/byte-streams-{}-{}", testing::TempDir(), ::getpid(), name);
}

Task<void> carry(ByteStream& from, ByteStream& to, std::string& seen) {
  while (true) {
    std::string bytes = co_await from.read();
    if (bytes.empty()) break;
    seen += bytes;
    const bool taken = co_await to.write(std::move(bytes));
    if (!taken) break;
  }
  to.end_write();
}

// One side of a socket sends `sent` and its end, the other echoes it.
Task<int> echo(Runtime& runtime, StreamListener& listener, Endpoint endpoint, std::string sent, std::string& got) {
  const Instant deadline = runtime.now() + 30s;
  const std::unique_ptr<ByteStream> client = co_await connect_stream(runtime, std::move(endpoint), deadline);
  const std::unique_ptr<ByteStream> server = co_await listener.accept(runtime);
  std::string seen;
  Scope scope(runtime);
  scope.spawn(carry(*server, *server, seen));
  Task<bool> writing = client->write(std::move(sent));
  std::optional<bool> written;
  // Reading and writing go on beside each other: neither side has room for all of it.
  const auto write_all = [](Task<bool> task, ByteStream& stream, std::optional<bool>& done) -> Task<void> {
    done = co_await std::move(task);
    stream.end_write();
  };
  Task<void> sending = write_all(std::move(writing), *client, written);
  scope.spawn(std::move(sending));
  while (true) {
    const std::string bytes = co_await client->read();
    if (bytes.empty()) break;
    got += bytes;
  }
  co_return written.value_or(false) ? 0 : 1;
}

uint16_t free_port() { return free_ports_for_test(1)[0]; }

TEST(ByteStreams, CarryMoreThanBuffersHoldBothWays) {
  Runtime runtime;
  const Endpoint endpoint{"127.0.0.1", free_port()};
  StreamListener listener(endpoint);
  std::string sent(5'000'000, 'x'), got;
  for (size_t i = 0; i < sent.size(); i += 7) sent[i] = static_cast<char>(i);
  EXPECT_EQ(runtime.run(echo(runtime, listener, endpoint, sent, got)), 0);
  EXPECT_EQ(got, sent);
}

TEST(ByteStreams, AListenerKnowsWhetherItsFileIsItsOwn) {
  const std::string path = scratch("way.sock");
  StreamListener listener(Endpoint{path, 0});
  struct stat found {};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
  EXPECT_TRUE(listener.is_in_place());
  const StreamListener next(Endpoint{path, 0});
  EXPECT_FALSE(listener.is_in_place());
  EXPECT_TRUE(next.is_in_place());
  ::unlink(path.c_str());
  EXPECT_FALSE(next.is_in_place());
}

TEST(ByteStreams, ATakenPortIsAConflict) {
  const Endpoint endpoint{"127.0.0.1", free_port()};
  const StreamListener listener(endpoint);
  try {
    const StreamListener second(endpoint);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kConflict);
  }
}

Task<int> carry_all(Runtime& runtime, int from, int to, std::string& seen) {
  DescriptorStream in(runtime, from), out(runtime, to);
  co_await carry(in, out, seen);
  co_return 0;
}

TEST(ByteStreams, PipesAreWaitedForAndKeepTheirFlags) {
  Runtime runtime;
  int in[2], out[2];
  ASSERT_EQ(::pipe(in), 0);
  ASSERT_EQ(::pipe(out), 0);
  const std::string sent(1'000'000, 'y');
  std::thread writer([&] {
    for (size_t at = 0; at < sent.size();) {
      const ssize_t put = ::write(in[1], sent.data() + at, sent.size() - at);
      if (put <= 0) break;
      at += static_cast<size_t>(put);
    }
    ::close(in[1]);
  });
  size_t got = 0;
  std::thread reader([&] {
    char buffer[4096];
    while (got < sent.size()) {
      const ssize_t part = ::read(out[0], buffer, sizeof buffer);
      if (part <= 0) break;
      got += static_cast<size_t>(part);
    }
  });
  std::string seen;
  runtime.run(carry_all(runtime, in[0], out[1], seen));
  writer.join();
  reader.join();
  EXPECT_EQ(seen, sent);
  EXPECT_EQ(got, sent.size());
  EXPECT_EQ(::fcntl(in[0], F_GETFL) & O_NONBLOCK, 0);
  for (const int fd : {in[0], out[0], out[1]}) ::close(fd);
}

TEST(ByteStreams, FilesAreReadAndWrittenAtOnce) {
  Runtime runtime;
  const std::string from = scratch("from"), to = scratch("to");
  std::ofstream(from) << "some bytes";
  const Fd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC)), out(::open(to.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600));
  std::string seen;
  runtime.run(carry_all(runtime, in.get(), out.get(), seen));
  EXPECT_EQ(seen, "some bytes");
  EXPECT_EQ(::lseek(out.get(), 0, SEEK_END), 10);
}

}  // namespace
}  // namespace rubato::os
