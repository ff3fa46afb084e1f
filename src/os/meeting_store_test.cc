#include "os/meeting_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>
#include <vector>

#include "os/fd.h"
#include "os/neighbour_for_test.h"
#include "os/turn_watch.h"

namespace rubato::os {
namespace {

constexpr const char* kHello = "{\"op\": \"hello\", \"token\": \"secret\"}\n";

// Serves on a thread of its own until it goes.
class StoreForTest {
 public:
  StoreForTest() {
    std::atomic<bool> up{false};
    thread_ = std::thread([this, &up] {
      Runtime runtime;
      TurnWatch watch(TurnWatchSettings{});
      watch.report = [this](const LongTurn& turn) { long_turns_.push_back(format_duration(turn.cpu)); };
      watch.start();
      runtime.run(serve(runtime, up));
    });
    while (!up) std::this_thread::yield();
  }
  ~StoreForTest() { end(); }
  uint16_t port() const { return port_; }

  // Ends it: the turns of its loop that were over the limit.
  std::vector<std::string> end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return long_turns_;
  }

 private:
  Task<int> serve(Runtime& runtime, std::atomic<bool>& up) {
    const RealMeetingStore store(runtime, "secret", true);
    port_ = store.port();
    up = true;
    while (!stop_) co_await Sleep(runtime, runtime.now() + 2ms);
    co_return 0;
  }

  std::vector<std::string> long_turns_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<uint16_t> port_{0};
};

class ClientForTest {
 public:
  explicit ClientForTest(const StoreForTest& store) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{60, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(store.port());
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  // How many bytes were taken before the store closed.
  size_t send(std::string_view bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t now = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) break;
      sent += static_cast<size_t>(now);
    }
    return sent;
  }
  // The next line; "": the store has closed.
  std::string read_line() {
    while (true) {
      const size_t end = unread_.find('\n', searched_);
      if (end != std::string::npos) {
        std::string line = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        searched_ = 0;
        return line;
      }
      searched_ = unread_.size();
      char block[65536];
      const ssize_t got = ::recv(fd_.get(), block, sizeof block, 0);
      if (got <= 0) return "";
      unread_.append(block, static_cast<size_t>(got));
    }
  }
  std::string ask(std::string_view request) {
    send(request);
    return read_line();
  }

 private:
  Fd fd_;
  std::string unread_;
  size_t searched_ = 0;  // of it
};

TEST(MeetingStore, KeepsWhatItIsGivenForWhoHasTheToken) {
  const StoreForTest store;
  ClientForTest client(store);
  EXPECT_EQ(client.ask(kHello), "{}");
  EXPECT_EQ(client.ask("{\"op\": \"set\", \"key\": \"k\", \"value\": \"dg==\"}\n"), "{}");
  EXPECT_EQ(client.ask("{\"op\": \"get\", \"keys\": [\"k\"]}\n"), "{\"values\":[\"dg==\"]}");
  const std::string big(size_t{3} << 20, 'A');
  EXPECT_EQ(client.ask("{\"op\": \"set\", \"key\": \"b\", \"value\": \"" + big + "\"}\n"), "{}");
}

// The reply to this request, which has been sent already; asked again where this machine was too slow.
std::string read_values(ClientForTest& client, const std::string& request) {
  std::string reply = client.read_line();
  while (reply.starts_with("{\"missing\"")) reply = client.ask(request);
  return reply;
}

std::string keys_text(int count, const std::string& prefix = "k") {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i > 0 ? ",\"" : "\"") + prefix + std::to_string(i) + "\"";
  return text + "]";
}

// The store lives in an agent, whose beats go through the same loop.
TEST(MeetingStore, NoRequestHoldsTheLoop) {
  StoreForTest store;
  {
    ClientForTest client(store);
    EXPECT_EQ(client.ask(kHello), "{}");
    const std::string big(size_t{4'190'000}, 'A');
    for (int i = 0; i < 4; ++i) {
      const std::string key = "k" + std::to_string(i);
      EXPECT_EQ(client.ask(R"({"op": "set", "key": ")" + key + R"(", "value": ")" + big + "\"}\n"), "{}");
    }
    EXPECT_EQ(client.ask(R"({"op": "get", "keys": )" + keys_text(4) + "}\n").size(), 4 * big.size() + 24);
    // One value, ten thousand times: 30 GB.
    std::string again = R"({"op": "get", "keys": ["k0")";
    for (int i = 1; i < 10'000; ++i) again += R"(,"k0")";
    EXPECT_NE(client.ask(again + "]}\n").find("ask for less at once"), std::string::npos);
    EXPECT_NE(client.ask(std::string(4'000'000, '[') + "\n").find("error"), std::string::npos);
    EXPECT_NE(client.ask(R"({"op": "get", "keys": )" + keys_text(10'001) + "}\n").find("error"), std::string::npos);
  }
  EXPECT_EQ(store.end(), std::vector<std::string>());
}

TEST(MeetingStore, AKeyWakesWhoWaitsForIt) {
  constexpr int kKeys = 2000;
  StoreForTest store;
  {
    const std::string wanted = R"({"op": "get", "wait_ms": 10000, "keys": )" + keys_text(kKeys) + "}\n";
    std::vector<std::unique_ptr<ClientForTest>> waiting;
    for (int i = 0; i < 200; ++i) {
      waiting.push_back(std::make_unique<ClientForTest>(store));
      EXPECT_EQ(waiting.back()->ask(kHello), "{}");
      waiting.back()->send(wanted);
    }
    ClientForTest client(store);
    EXPECT_EQ(client.ask(kHello), "{}");
    for (int i = 0; i < kKeys; ++i) {
      const std::string key = "k" + std::to_string(i);
      ASSERT_EQ(client.ask(R"({"op": "set", "key": ")" + key + R"(", "value": "dg=="})" + "\n"), "{}");
    }
    for (const auto& one : waiting) {
      EXPECT_EQ(read_values(*one, wanted).size(), std::string("{\"values\":[]}").size() + 7 * kKeys - 1);
    }
    // What was there and is deleted is waited for again.
    const std::string both = R"({"op": "get", "wait_ms": 10000, "keys": ["k0", "late"]})"
                             "\n";
    client.send(both);
    ClientForTest other(store);
    EXPECT_EQ(other.ask(kHello), "{}");
    EXPECT_EQ(other.ask(R"({"op": "delete", "prefix": "k0"})"
                        "\n"),
              "{\"deleted\":1}");
    EXPECT_EQ(other.ask(R"({"op": "add", "key": "late", "amount": 1})"
                        "\n"),
              "{\"sum\":1}");
    EXPECT_EQ(other.ask(R"({"op": "set", "key": "k0", "value": "dg=="})"
                        "\n"),
              "{}");
    EXPECT_EQ(read_values(client, both), R"({"values":["dg==","MQ=="]})");
  }
  EXPECT_EQ(store.end(), std::vector<std::string>());
}

TEST(MeetingStore, AStrangerMaySendOneShortLine) {
  const StoreForTest store;
  ClientForTest wrong(store);
  EXPECT_EQ(wrong.ask("{\"op\": \"hello\", \"token\": \"guess\"}\n"), "");
  // The right one, too late: it is over the bound before its end is there.
  ClientForTest endless(store);
  const std::string filling(RealMeetingStore::kHelloBytesMax, ' ');
  endless.send(filling + kHello);
  EXPECT_EQ(endless.read_line(), "");
  // A line that never ends is not kept: the store closes long before 4 MiB.
  ClientForTest silent(store);
  silent.send(std::string(2 * RealMeetingStore::kHelloBytesMax, ' '));
  EXPECT_EQ(silent.read_line(), "");
}

TEST(MeetingStore, ACrowdOfAnotherUserCostsNobodyAPlace) {
  if (!NeighbourForTest::possible()) GTEST_SKIP() << "needs root";
  const StoreForTest store;
  ClientForTest before(store);
  EXPECT_EQ(before.ask(kHello), "{}");
  // As many as one store serves. Most of them are turned away at once.
  const NeighbourForTest idle(store.port(), 2100, "");
  const NeighbourForTest half(store.port(), 2100, "{\"op\": ");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ClientForTest(store).ask(kHello), "{}");
  EXPECT_EQ(before.ask("{\"op\": \"add\", \"key\": \"n\", \"amount\": 1}\n"), "{\"sum\":1}");
}

}  // namespace
}  // namespace rubato::os
