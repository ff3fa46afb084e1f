#include "node/notice_watch.h"

#include <gtest/gtest.h>

#include "core/scope.h"
#include "rest/rest_testing.h"

namespace rubato::node {
namespace {

using rest::http_answer;
using rest::SentRequest;

struct NoticeWatch : testing::Test {
  rest::ScriptedWorld world;
  NoticeSource source;
  std::map<std::string, std::string> environment;
  std::vector<MachineNotice> found;

  // What comes within so long.
  void watch(Duration length) {
    world.run([&, length](World& here) { return watch_in(here, length); });
  }
  Task<void> watch_in(World& here, Duration length) {
    Channel<MachineNotice> notices(here.clock.loop());
    Scope scope(here.clock.loop());
    NoticeWatchSettings settings;
    settings.source = source;
    settings.node = NodeId{"n-1"};
    settings.environment = environment;
    scope.spawn(watch_notices(here, std::move(settings), notices));
    const Instant until = here.clock.now() + length;
    while (here.clock.now() < until) {
      std::optional<std::optional<MachineNotice>> next =
          co_await with_deadline(here.clock.loop(), until, notices.pop());
      if (next && *next) found.push_back(std::move(**next));
    }
  }
  int asked(const std::string& path) const {
    int count = 0;
    for (const SentRequest& sent : world.network.sent) count += sent.request.target.starts_with(path) ? 1 : 0;
    return count;
  }
};

constexpr const char* kToken = "/latest/api/token";
constexpr const char* kAction = "/latest/meta-data/spot/instance-action";
constexpr const char* kRebalance = "/latest/meta-data/events/recommendations/rebalance";

TEST_F(NoticeWatch, Ec2TellsWhenTheInstanceEnds) {
  source.service = NoticeService::kEc2;
  world.network.answer = [&](const SentRequest& sent) {
    if (sent.request.target == kToken) return http_answer(200, "token");
    EXPECT_EQ(sent.request.headers.at("x-aws-ec2-metadata-token"), "token");
    if (sent.request.target != kAction) return http_answer(404, "");
    if (asked(kAction) < 3) return http_answer(404, "");
    return http_answer(200, R"({"action": "terminate", "time": "2026-11-16T12:02:00Z"})");
  };
  watch(1min);
  ASSERT_EQ(found.size(), 1u) << "it is told once";
  EXPECT_EQ(found[0].what, "spot notice");
  ASSERT_TRUE(found[0].notice.deadline);
  EXPECT_EQ(format_time(*found[0].notice.deadline).substr(0, 19), "2026-11-16T12:02:00");
  EXPECT_EQ(asked(kRebalance), 0) << "nobody wants to know";
}

TEST_F(NoticeWatch, ARebalanceRecommendationHasNoDeadline) {
  source.service = NoticeService::kEc2;
  source.rebalance = true;
  world.network.answer = [&](const SentRequest& sent) {
    if (sent.request.target == kToken) return http_answer(200, "token");
    if (sent.request.target == kRebalance) return http_answer(200, R"({"noticeTime": "2026-11-16T12:00:00Z"})");
    return http_answer(404, "");
  };
  watch(1min);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "rebalance recommendation");
  EXPECT_FALSE(found[0].notice.deadline);
}

TEST_F(NoticeWatch, AServiceThatIsAwayIsAskedAgain) {
  source.service = NoticeService::kEc2;
  world.network.answer = [&](const SentRequest& sent) -> HttpResponse {
    if (world.network.sent.size() < 5) throw Error(ErrorCode::kUnavailable, "no route");
    if (sent.request.target == kToken) return http_answer(200, "token");
    return http_answer(200, R"({"action": "stop", "time": "2026-11-16T12:02:00Z"})");
  };
  watch(10min);
  EXPECT_EQ(found.size(), 1u);
}

TEST_F(NoticeWatch, GoogleIsAskedOnceAndThenWaitedFor) {
  source.service = NoticeService::kGcp;
  environment["GCE_METADATA_HOST"] = "127.0.0.1:8080";
  bool preempted = false;
  world.network.answer = [&](const SentRequest& sent) {
    EXPECT_EQ(sent.request.headers.at("metadata-flavor"), "Google");
    EXPECT_EQ(sent.endpoint.port, 8080);
    const std::string& target = sent.request.target;
    const bool waits = target.find("wait_for_change=true") != std::string::npos;
    if (target.find("maintenance-event") != std::string::npos) {
      if (waits) throw Error(ErrorCode::kUnavailable, "nothing has changed for a minute");
      return http_answer(200, "MIGRATE_ON_HOST_MAINTENANCE", {{"etag", "a"}});
    }
    EXPECT_EQ(waits, target.find("last_etag=b") != std::string::npos) << target;
    if (waits) preempted = true;
    return http_answer(200, preempted ? "TRUE\n" : "FALSE\n", {{"etag", "b"}});
  };
  watch(10s);
  ASSERT_EQ(found.size(), 1u) << "a machine that moves to another host stays";
  EXPECT_EQ(found[0].what, "preemption notice");
  EXPECT_TRUE(found[0].notice.deadline);
}

TEST_F(NoticeWatch, AFileIsOfTheNode) {
  source.file = "/notices/%n";
  world.write_file("/notices/n-1", "90s");
  watch(5s);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "notice in /notices/n-1");
  EXPECT_TRUE(found[0].notice.deadline);
}

}  // namespace
}  // namespace rubato::node
