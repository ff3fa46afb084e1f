#include "node/supervisor.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "os/files.h"
#include "os/network.h"
#include "os/process_fixture.h"

namespace rubato::node {
namespace {

Task<int> ask(Supervisor& supervisor, ServerRequest request, ServerReply& reply) {
  reply = co_await supervisor.handle(std::move(request));
  co_return 0;
}

class SupervisorTest : public testing::Test {
 protected:
  ServerReply call(const std::string& method, const std::string& path, const std::string& body = "",
                   const std::string& timeout = "0") {
    ServerRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.query["timeout"] = timeout;
    ServerReply reply;
    Task<int> asked = ask(supervisor, std::move(request), reply);
    runtime.run(std::move(asked));
    return reply;
  }
  std::string path(const JobId& job) {
    const std::string url = supervisor.url_for(job);
    EXPECT_TRUE(url.starts_with("http://127.0.0.1:4000/")) << url;
    return url.substr(url.rfind('/'));
  }
  static elastic::JobOrder job_order(Generation generation, std::vector<elastic::PeerSeat> peers) {
    elastic::JobOrder out;
    out.job = JobId{"j-1"};
    out.generation = generation;
    out.master_addr = "10.0.0.1";
    out.peers = std::move(peers);
    return out;
  }

  os::Runtime runtime;
  os::RealNetwork network{runtime};
  os::RealProcesses processes{runtime};
  os::RealFiles files;
  os::RealConsole console;
  Random random{1};
  const MachineFacts machine;
  World world{runtime, network, processes, files, console, random, machine};
  std::vector<elastic::JobHints> told;
  Supervisor supervisor{world, 4000, [this](elastic::JobHints hints) { told.push_back(std::move(hints)); }};
  const JobId job{"j-1"};
};

TEST_F(SupervisorTest, TellsTheAddressesOfAGroupByRank) {
  supervisor.follow(job_order(3, {{"10.0.0.1", 2}, {"10.0.0.2", 1}}));
  const ServerReply reply = call("GET", path(job) + "/discover/rubato/j-1/2");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, R"(["10.0.0.1","10.0.0.1","10.0.0.2"])");
  EXPECT_EQ(call("GET", path(job) + "/discover/rubato/j-1/3").status, 408) << "of a group that is not there yet";
  EXPECT_EQ(call("GET", path(job) + "/discover/rubato/j-1/1").status, 408) << "of one that was";
  supervisor.follow(job_order(4, {}));
  EXPECT_EQ(call("GET", path(job) + "/discover/rubato/j-1/3").body, R"(["10.0.0.1"])") << "too many to tell";
}

TEST_F(SupervisorTest, TakesHints) {
  EXPECT_EQ(call("PUT", path(job) + "/hints/rubato/j-1", R"({"initBatchSize": 32, "other": 1})").status, 200);
  EXPECT_EQ(call("PUT", path(job) + "/hints/j-1", R"({"initBatchSize": 64})").status, 200);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].job, job);
  EXPECT_EQ(told[1].profile.init_batch_size, 64);
  EXPECT_EQ(call("PUT", path(job) + "/hints/rubato/j-1", "{").status, 400);
  EXPECT_EQ(call("PUT", path(job) + "/hints/rubato/j-1", R"({"initBatchSize": "x"})").status, 400);
  EXPECT_EQ(call("GET", path(job) + "/hints/rubato/j-1").status, 404);
  EXPECT_EQ(told.size(), 2u);
}

TEST_F(SupervisorTest, AJobSpeaksForItselfOnly) {
  const JobId other{"j-2"};
  EXPECT_NE(path(job), path(other));
  EXPECT_EQ(call("GET", path(job) + "/healthz").status, 200);
  EXPECT_EQ(call("GET", "/healthz").status, 404);
  EXPECT_EQ(call("GET", "/").status, 404);
  EXPECT_EQ(call("PUT", "/00000000000000000000000000000000/hints/rubato/j-1", "{}").status, 404);
  // Whatever job the path names: the secret says whose hints these are.
  EXPECT_EQ(call("PUT", path(other) + "/hints/rubato/j-1", R"({"initBatchSize": 32})").status, 200);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].job, other);
  ServerRequest head;
  head.path = path(job) + "/hints/rubato/j-1";
  EXPECT_TRUE(supervisor.admit(head).authenticated);
  head.path = "/guess/hints/rubato/j-1";
  EXPECT_FALSE(supervisor.admit(head).authenticated);
  const std::string before = path(job);
  supervisor.forget(job);
  EXPECT_EQ(call("GET", before + "/healthz").status, 404);
}

TEST_F(SupervisorTest, OddRequestsAreAnswered) {
  supervisor.follow(job_order(1, {{"10.0.0.1", 1}}));
  for (const char* odd : {"/discover", "/discover/rubato/j-1/x", "/discover/rubato/j-1/-1"}) {
    const int status = call("GET", path(job) + odd).status;
    EXPECT_TRUE(status == 400 || status == 404) << odd << ' ' << status;
  }
  EXPECT_EQ(call("GET", path(job) + "/discover/rubato/j-1/0", "", "x").status, 400);
  EXPECT_EQ(call("GET", path(job) + "/discover/rubato/j-1/0", "", "99999999999999999999").status, 400);
  EXPECT_EQ(call("POST", path(job) + "/discover/rubato/j-1/0").status, 404);
}

}  // namespace
}  // namespace rubato::node
