#include "agent/loopback.h"

#include <gtest/gtest.h>

#include "core/loop_testing.h"

namespace rubato::agent {
namespace {

class Loopback : public testing::Test {
 protected:
  static Task<void> read(Connection& connection, Trace& trace) {
    while (true) {
      const std::optional<std::string> message = co_await connection.receive();
      trace.push_back(message.value_or("(end)"));
      if (!message) co_return;
    }
  }

  static Task<void> finish(Task<std::optional<std::string>> receiving, Trace& trace) {
    const std::optional<std::string> message = co_await std::move(receiving);
    trace.push_back(message.value_or("(end)"));
  }

  ManualLoop loop;
  std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> ends = make_loopback(loop, "127.0.0.1");
  Trace trace;
  Scope scope{loop};  // its frames use all of the above
};

TEST_F(Loopback, CarriesMessagesInOrderBothWays) {
  Trace other;
  scope.spawn(read(*ends.first, other));
  scope.spawn(read(*ends.second, trace));
  ends.first->send("one");
  ends.first->send("");
  ends.second->send("back");
  loop.advance(0s);
  EXPECT_EQ(trace, (Trace{"one", ""}));
  EXPECT_EQ(other, (Trace{"back"}));
  scope.cancel();
}

TEST_F(Loopback, ClosingOneEndEndsTheOtherAfterWhatIsUnderWay) {
  ends.first->send("last words");
  EXPECT_EQ(ends.second->ended(), Connection::End::kOpen);
  ends.first.reset();
  EXPECT_NE(ends.second->ended(), Connection::End::kOpen);
  scope.spawn(read(*ends.second, trace));
  loop.advance(0s);
  EXPECT_EQ(trace, (Trace{"last words", "(end)"}));
}

TEST_F(Loopback, AnEndMayGoWhileItsReceiveIsUnderWay) {
  Task<std::optional<std::string>> receiving = ends.second->receive();
  ends.second.reset();
  scope.spawn(finish(std::move(receiving), trace));
  loop.advance(0s);
  EXPECT_EQ(trace, (Trace{"(end)"}));
}

TEST_F(Loopback, SendingAfterTheEndHasNoEffect) {
  ends.first.reset();
  ends.second->send("to nobody");
  loop.advance(0s);
  EXPECT_NE(ends.second->ended(), Connection::End::kOpen);
}

TEST_F(Loopback, BothEndsHaveTheAddress) {
  EXPECT_EQ(ends.first->local_address(), "127.0.0.1");
  EXPECT_EQ(ends.second->peer_address(), "127.0.0.1");
}

}  // namespace
}  // namespace rubato::agent
