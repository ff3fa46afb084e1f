#include "kubernetes/exec.h"

#include <gtest/gtest.h>

#include "rest/rest_testing.h"

namespace rubato::kubernetes {
namespace {

// What both sides of a connection have done; the server takes nothing while it is held up.
struct Wire {
  explicit Wire(Loop& loop) : came(loop), freed(loop) {}
  Channel<std::string> came;
  std::vector<std::string> taken;
  bool held_up = false;
  Event freed;
};

class WireStream final : public ByteStream {
 public:
  explicit WireStream(Wire& wire) : wire_(wire) {}
  Task<std::string> read() override {
    const std::optional<std::string> bytes = co_await wire_.came.pop();
    co_return bytes.value_or("");
  }
  Task<bool> write(std::string bytes) override {
    while (wire_.held_up) co_await wire_.freed.wait();
    wire_.taken.push_back(std::move(bytes));
    co_return true;
  }
  void end_write() override {}

 private:
  Wire& wire_;
};

constexpr char kPongByte = '\x8a';  // a whole pong begins so

Task<void> answer_while_sending(World& world) {
  Wire wire(world.clock.loop());
  ExecSession session(world, std::make_unique<WireStream>(wire), false);
  Scope scope(world.clock.loop());
  wire.held_up = true;
  scope.spawn(session.write("input"));
  wire.came.push(std::string("\x89\x02hi") + "\x82\x03\x01ok");
  const std::optional<ExecOutput> out = co_await session.read();
  EXPECT_TRUE(out && out->bytes == "ok");
  EXPECT_TRUE(wire.taken.empty());
  wire.held_up = false;
  wire.freed.notify();
  co_await Sleep(world.clock.loop(), world.clock.now() + 1s);
  EXPECT_EQ(wire.taken.size(), 2u);
  EXPECT_TRUE(wire.taken.size() == 2 && wire.taken[1].front() == kPongByte);
  // With nothing on its way it goes at once, and does not hold up the output either.
  wire.held_up = true;
  wire.came.push(std::string("\x89\x02hi") + "\x82\x03\x01ok");
  const std::optional<ExecOutput> more = co_await session.read();
  EXPECT_TRUE(more && more->bytes == "ok");
}

TEST(ExecSession, APingIsAnsweredWithoutWaitingInRead) {
  rest::ScriptedWorld scripted;
  scripted.run([](World& world) { return answer_while_sending(world); });
}

Task<void> read_on(ExecSession& session) {
  while (true) {
    const std::optional<ExecOutput> out = co_await session.read();
    if (!out) break;
  }
}

Task<void> fall_silent(World& world) {
  Wire wire(world.clock.loop());
  ExecSession session(world, std::make_unique<WireStream>(wire), false);
  Scope scope(world.clock.loop());
  scope.spawn(read_on(session));
  co_await session.ping();
  co_await Sleep(world.clock.loop(), world.clock.now() + 61s);
  EXPECT_FALSE(session.is_silent(60s));  // perhaps one that answers no pings
  wire.came.push(
      "\x8a\x01"
      "0");
  co_await Sleep(world.clock.loop(), world.clock.now() + 59s);
  EXPECT_FALSE(session.is_silent(60s));
  co_await Sleep(world.clock.loop(), world.clock.now() + 2s);
  EXPECT_TRUE(session.is_silent(60s));
  // The command may not read it, and the server not us because of that.
  std::string much(100 << 10, 'x');
  co_await session.write(std::move(much));
  EXPECT_FALSE(session.is_silent(60s));
}

TEST(ExecSession, IsSilentWhenAServerThatAnsweredDoesNotAnyMore) {
  rest::ScriptedWorld scripted;
  scripted.run([](World& world) { return fall_silent(world); });
}

}  // namespace
}  // namespace rubato::kubernetes
