#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster/state_testing.h"
#include "core/error.h"

namespace rubato::cluster {
namespace {

using Json = nlohmann::json;

// A state in which as many fields as possible say something.
State rich() {
  History history;
  history.add(HeadStarted{4, "0.3.0", 17});
  history.configure({node_type("small", cpus(8, 4096, 2), 2, 10)});
  history.nodes_up("small", 3);
  history.add(NodeLost{NodeId{"small-3"}, "silent"});
  NodeJoined elsewhere = History::joined(NodeId{"small-2"}, "agent-small-2", cpus(8, 4096, 2));
  elsewhere.own_disk = true;
  history.add(elsewhere);
  JobSpec spec = job_of(1, 6);
  spec.env["A"] = "b";
  const JobId job{"j-1"};
  history.add(JobSubmitted{job, spec, "request-1", "j-0"});
  history.run(job, {{"small-1", 3}, {"small-2", 2}});
  history.add(SeatDone{job, 1, NodeId{"small-2"}});
  history.pass(5s);
  history.fail(job, "small-1");
  JobPlaced placed{job, 2, {Seat{NodeId{"small-1"}, AgentId{"agent-small-1"}, 1}}, "cause", {}, {NodeId{"small-2"}}};
  placed.reasons = Reasons{"wanted", {{"text", "where"}}, {"changes"}};
  history.add(placed);
  history.add(RestartCharged{job, 1, 1, 250ms, "cause"});
  history.add(JobEnded{history.submit(1, 1), JobResult::kFailed, "because"});
  history.submit(2, 2);
  return history.state;
}

TEST(Snapshot, RoundTripsEveryField) {
  const State state = rich();
  const std::string bytes = encode_snapshot(state);
  const State back = decode_snapshot(bytes);
  EXPECT_EQ(encode_snapshot(back), bytes);
  const Job& job = back.jobs.at(JobId{"j-1"});
  EXPECT_EQ(job.seats, state.jobs.at(JobId{"j-1"}).seats);
  EXPECT_EQ(job.leaving, (std::map<NodeId, int>{{NodeId{"small-1"}, 2}}));
  EXPECT_EQ(job.restarts.uptime, 5s);
  EXPECT_EQ(job.spec, state.jobs.at(JobId{"j-1"}).spec);
  EXPECT_EQ(back.spec, state.spec);
  EXPECT_EQ(back.jobs_on, state.jobs_on);
  EXPECT_EQ(back.outputs_on, state.outputs_on);
  EXPECT_EQ(job.outputs.at(NodeId{"small-2"}).rank, 3);
  EXPECT_EQ(back.requests, state.requests);
}

TEST(Snapshot, OfNothingIsTheFirstState) {
  EXPECT_EQ(encode_snapshot(decode_snapshot(R"({"v":1})")), encode_snapshot(State{}));
}

TEST(Snapshot, RefusesWhatIsNone) {
  Json newer = Json::parse(encode_snapshot(rich()));
  newer["v"] = 2;
  Json dangling = Json::parse(encode_snapshot(rich()));
  dangling["active"].push_back("j-nowhere");
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"v":1,"jobs":3})"),
        std::string(R"({"v":1,"offset":-3})"), newer.dump(), dangling.dump()}) {
    try {
      decode_snapshot(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.where, "journal snapshot");
    }
  }
}

// Every value of a good snapshot in turn is replaced by one of another kind.
TEST(Snapshot, DamageGivesAnError) {
  const Json good = Json::parse(encode_snapshot(rich()));
  const Json flat = good.flatten();
  for (const auto& [path, value] : flat.items()) {
    for (const Json& bad : {Json(), Json(-7), Json(1e300), Json("x"), Json::array({1}), Json::object()}) {
      Json damaged = good;
      damaged[Json::json_pointer(path)] = bad;
      try {
        encode_snapshot(decode_snapshot(damaged.dump()));
      } catch (const Error& error) {
        EXPECT_FALSE(error.message.empty());
      }
    }
  }
}

}  // namespace
}  // namespace rubato::cluster
