#include "kubernetes/leader.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/scope.h"
#include "rest/rest_testing.h"

namespace rubato::kubernetes {
namespace {

using nlohmann::json;

const Instant kNow = Instant{} + 100s;

LeaseSeen seen_of(std::string holder, Duration ago) {
  LeaseSeen seen;
  seen.holder = std::move(holder);
  seen.changed = kNow - ago;
  return seen;
}

TEST(LeaseRule, WaitsForAHolderThatMayLive) {
  EXPECT_EQ(decide_lease(std::nullopt, "a", kNow), LeaseMove::kCreate);
  EXPECT_EQ(decide_lease(seen_of("b", 1s), "a", kNow), LeaseMove::kWait);
  EXPECT_EQ(decide_lease(seen_of("b", 15s), "a", kNow), LeaseMove::kTake);
  EXPECT_EQ(decide_lease(seen_of("", 1s), "a", kNow), LeaseMove::kTake);
  EXPECT_EQ(decide_lease(seen_of("a", 1s), "a", kNow), LeaseMove::kRenew);
}

// One Lease with the API server's rule for writes: the version must be the one that was read.
class LeaseServer {
 public:
  HttpResponse answer(const rest::SentRequest& sent) {
    if (down) throw Error(ErrorCode::kUnavailable, "no route");
    if (sent.request.method == "GET") {
      return lease.is_null() ? rest::http_answer(404, R"({"reason":"NotFound"})")
                             : rest::http_answer(200, lease.dump());
    }
    json given = json::parse(sent.request.body);
    const bool creates = sent.request.method == "POST";
    const bool stale = !creates && given["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"];
    if (stale || (creates && !lease.is_null())) return rest::http_answer(409, R"({"reason":"Conflict"})");
    if (sent.request.method == "PATCH") {
      lease.merge_patch(given);
    } else {
      lease = std::move(given);
    }
    lease["metadata"]["resourceVersion"] = std::to_string(++version);
    return rest::http_answer(200, lease.dump());
  }
  std::string holder() const { return lease["spec"]["holderIdentity"]; }

  json lease;
  int version = 0;
  bool down = false;
};

std::unique_ptr<Access> access_to(World& world) {
  ChosenContext chosen;
  chosen.cluster.server = "http://api:80";
  return std::make_unique<Access>(world, chosen, std::map<std::string, std::string>{});
}

Task<void> lose_the_lease(World& world, LeaseServer& server) {
  Client client(world, access_to(world));
  const ObjectName name{"ns", "lease"};
  Leader first(client, name, "first", Log());
  Leader second(client, name, "second", Log());
  co_await first.acquire();
  EXPECT_EQ(server.holder(), "first");
  // Nobody renews it: the second takes it when its time is over, not before.
  const Instant began = world.clock.now();
  co_await second.acquire();
  EXPECT_EQ(server.holder(), "second");
  EXPECT_GE(world.clock.now() - began, 15s);
  EXPECT_TRUE(second.holds());
  EXPECT_FALSE(first.holds());
  // What the first was about to write is not sent any more.
  Client guarded(world, access_to(world));
  guarded.guard_writes([&first] { return first.holds(); });
  bool refused = false;
  try {
    co_await guarded.remove(leases(), name);
  } catch (const Error&) {
    refused = true;
  }
  EXPECT_TRUE(refused);
  EXPECT_FALSE(server.lease.is_null());
  // The first finds out when it renews.
  co_await first.keep();
  EXPECT_EQ(server.holder(), "second");
  // A server that cannot be reached ends leadership before anybody else can have it.
  server.down = true;
  const Instant cut = world.clock.now();
  co_await second.keep();
  EXPECT_LE(world.clock.now() - cut, 15s);
}

TEST(Leader, HasALeaseOnlyWhileItRenewsIt) {
  rest::ScriptedWorld scripted;
  LeaseServer server;
  scripted.network.answer = [&](const rest::SentRequest& sent) { return server.answer(sent); };
  scripted.run([&](World& world) { return lose_the_lease(world, server); });
}

Task<void> hand_the_lease_over(World& world) {
  Client client(world, access_to(world));
  const ObjectName name{"ns", "lease"};
  Leader first(client, name, "first", Log());
  Leader second(client, name, "second", Log());
  co_await first.acquire();
  co_await first.release();
  const Instant began = world.clock.now();
  co_await second.acquire();
  EXPECT_LT(world.clock.now() - began, 1s);
}

TEST(Leader, GivesTheLeaseBackAtAnOrderlyEnd) {
  rest::ScriptedWorld scripted;
  LeaseServer server;
  scripted.network.answer = [&](const rest::SentRequest& sent) { return server.answer(sent); };
  scripted.run([&](World& world) { return hand_the_lease_over(world); });
}

}  // namespace
}  // namespace rubato::kubernetes
