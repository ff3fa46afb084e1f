#include "cluster/event.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"

namespace rubato::cluster {
namespace {

using Json = nlohmann::json;

// One record of each type with every field set: the format, as journals on disks have it.
const std::vector<std::string> kRecords = {
    R"({"v":1,"t":1700000000000001,"type":"head-started","epoch":3,"version":"0.3.0","pid":41,
        "restarted_after":"signal 9"})",
    R"({"v":1,"t":2,"type":"cluster-configured","text":"cluster_name: c","no_restart":true,"restart":true,
        "spec":{"name":"c","provider":"external","isolation":"netns","max_workers":9,"lease_us":90000000,
        "max_where":"c.yaml:1:2",
        "head_type":"small","head_runtime":"0a","scaling":{"upscaling_speed":2.0,"idle_timeout_us":60000000,
        "initial_workers":1,"spot":"only","on_demand_base":2,"price_cap":1.5,
        "budget_per_hour":2.5,"budget":9.5,"launch_concurrency":3,"consolidate_after_us":1000,
        "speed_where":"c.yaml:8:1",
        "budget_where":"c.yaml:8:2","cap_where":"c.yaml:8:3","concurrency_where":"c.yaml:8:4","spot_where":"c.yaml:8:5",
        "target_utilization":0.5,"aggressive":true},"types":[{"name":"small",
        "resources":{"CPU":1.5},"min_workers":1,"max_workers":4,"resources_where":"c.yaml:5:1",
        "min_where":"c.yaml:6:1","max_where":"c.yaml:7:1","idle_timeout_us":1000000,"priority":3,
        "offerings":[{"zone":"z","market":"spot","price_per_hour":0.5}],"made_from":"0b","runtime":"0c"}]}})",
    R"({"v":1,"t":3,"type":"shutdown-requested"})",
    R"({"v":1,"t":3,"type":"journal-lost","first":7,"last":9,"epoch":4,"cause":"c","kept_in":"/journal.db.damaged-1"})",
    R"({"v":1,"t":4,"type":"node-requested","node":"small-1","node_type":"small","hash":"00ff","why":"min_workers",
        "runtime":"0c","head":true,
        "offering":{"zone":"z1","market":1,"price_per_hour":0.25},
        "reasons":{"wanted":"w","changes":["c"],"against":[{"text":"a","where":"c.yaml:1:1"}],
        "others":[{"text":"o","where":""}]}})",
    R"({"v":1,"t":5,"type":"node-created","node":"small-1","runtime":"0c"})",
    R"({"v":1,"t":6,"type":"node-failed","node":"small-1","error":"no room","code":2})",
    R"({"v":1,"t":7,"type":"node-joined","node":"small-1","agent":"a1","own_disk":true,"started":77,
        "resources":{"CPU":2,"memory":4096},
        "info":{"agent":"a1","host":"h","machine":"m","address":"127.0.1.1","addresses":["10.0.0.1"],"peer_port":7,
        "nproc":2,"role":"r"}})",
    R"({"v":1,"t":8,"type":"node-lost","node":"small-1","reason":"silent","silent":true})",
    R"({"v":1,"t":9,"type":"node-draining","node":"small-1","reason":"asked","update":true,
        "deadline":1700000000000009,"noticed":true,
        "reasons":{"wanted":"w","changes":["c"],"against":[{"text":"a","where":"c.yaml:1:1"}],
        "others":[{"text":"o","where":""}]}})",
    R"({"v":1,"t":10,"type":"node-removing","node":"small-1","reason":"idle",
        "reasons":{"wanted":"w","changes":["c"],"against":[{"text":"a","where":"c.yaml:1:1"}],
        "others":[{"text":"o","where":""}]}})",
    R"({"v":1,"t":11,"type":"node-gone","node":"small-1","unreachable":true})",
    R"({"v":1,"t":11,"type":"node-stepped","node":"small-1","step":"setup","detail":"pip install x"})",
    R"({"v":1,"t":11,"type":"node-updating","node":"small-1","runtime":"0d","why":"files"})",
    R"({"v":1,"t":11,"type":"node-refreshing","node":"small-1","runtime":"0d"})",
    R"({"v":1,"t":11,"type":"node-refreshed","node":"small-1","runtime":"0d","error":"no network"})",
    R"({"v":1,"t":11,"type":"stray-found","node":"small-9"})",
    R"({"v":1,"t":11,"type":"resources-requested","bundles":[{"each":{"CPU":1},"count":64}]})",
    R"({"v":1,"t":11,"type":"scale-held",
        "reasons":{"wanted":"w","changes":["c"],"against":[{"text":"a","where":"c.yaml:1:1"}],
        "others":[{"text":"o","where":""}]}})",
    R"({"v":1,"t":12,"type":"job-submitted","job":"j-1","request_id":"r1","rerun_of":"j-0","spec":{"name":"train",
        "kind":"module","program":"pkg.train","args":["-x"],"python":"/usr/bin/python3","prewarm":["torch"],
        "env":{"A":"b"},"package":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "workers_min":2,"workers_max":4,"per_worker":{"CPU":1,"GPU":1},"priority":-5,"owner":"ann","max_restarts":7,
        "timeout_s":1.5,"grace_s":2.0,"checkpoint_timeout_s":3.0,"rescale_timeout_s":4.0}})",
    R"({"v":1,"t":13,"type":"job-held","job":"j-1","reasons":{"wanted":"2 workers","changes":["a node comes"],
        "against":[{"text":"no room","where":"c.yaml:6:1"}],"others":[]}})",
    R"({"v":1,"t":14,"type":"job-placed","job":"j-1","generation":5,"cause":"its turn","shunned":["small-2"],
        "in_place":true,"broken":true,"seats":[{"node":"small-1","agent":"a1","workers":2}],
        "reasons":{"wanted":"w","changes":[],"against":[],"others":[]}})",
    R"({"v":1,"t":15,"type":"restart-charged","job":"j-1","used":2,"quick_crashes":1,"backoff_us":100000,"cause":"x",
        "crash":"exit code 1: boom","saved":true})",
    R"({"v":1,"t":16,"type":"job-started","job":"j-1","generation":5,"master_addr":"127.0.1.1","master_port":29500,
        "moved":"spot notice 120 s","in_place":true,"change":"resized 1→2 in place",
        "plan":{"members":[{"id":"a-1","local_rank":0,"node":0},{"id":"b-1","local_rank":1,"node":1}],
        "departing":["c-1"],"store":{"host":"10.0.0.1","port":4711,"token":"secret"}}})",
    R"({"v":1,"t":17,"type":"seat-failed","job":"j-1","generation":5,"node":"small-1","fenced":true,
        "failures":[{"host":"h","rank":3,
        "local_rank":1,"pid":99,"generation":5,"exit_code":2,"signal":9,"at_us":-12,"message":"m","traceback":"t",
        "error_file":"/e"}]})",
    R"({"v":1,"t":18,"type":"seat-done","job":"j-1","generation":5,"node":"small-1"})",
    R"({"v":1,"t":19,"type":"seat-vacated","job":"j-1","node":"small-1"})",
    R"({"v":1,"t":20,"type":"checkpoint-missed","job":"j-1","generation":5,"node":"small-1","workers":["rank 0"]})",
    R"({"v":1,"t":23,"type":"output-kept","job":"j-1","node":"small-1","generation":5,"files":2,"bytes":7})",
    R"({"v":1,"t":24,"type":"output-missing","job":"j-1","node":"small-1","reason":"no room"})",
    R"({"v":1,"t":21,"type":"job-stopping","job":"j-1","failed":true,"reason":"timeout"})",
    R"({"v":1,"t":22,"type":"job-ended","job":"j-1","result":2,"reason":"asked","cause":2})",
    R"({"v":1,"t":25,"type":"job-profiled","job":"j-1","profile":{"initBatchSize":8.0,"globalBatchSize":16.0,
        "maxBatchSize":64.0,"maxProfiledReplicas":2,"gradientAccumulation":true,"localBszBounds":[2,32],
        "gradParams":{"norm":0.5,"var":2.0},"perfParams":{"alpha_c":0.1,"beta_c":0.2,"alpha_n":0.3,"beta_n":0.4,
        "alpha_r":0.5,"beta_r":0.6,"gamma":1.5}}})",
    R"({"v":1,"t":26,"type":"job-sized","job":"j-1","workers":3,"worthwhile":4,"reason":"more would not help"})",
    R"({"v":1,"t":27,"type":"node-kept","node":"small-1","reason":"asked"})",
};

// As the version before wrote them.
TEST(EventCodec, ReadsOlderRecords) {
  const Record made = decode(1, R"({"v":1,"t":5,"type":"node-created","node":"small-1"})");
  EXPECT_EQ(std::get<NodeCreated>(made.event).runtime, "");
  const Record configured = decode(2, R"({"v":1,"t":2,"type":"cluster-configured","text":"t","spec":{"name":"c",
      "provider":"local","isolation":"none","max_workers":9,"max_where":"c.yaml:1:2","types":[{"name":"small",
      "resources":{"CPU":1},"min_workers":1,"max_workers":4,"resources_where":"","min_where":"","max_where":""}]}})");
  EXPECT_EQ(std::get<ClusterConfigured>(configured.event).spec.types.at("small").max_workers, 4);
}

TEST(EventCodec, KeepsEveryFieldOfEveryRecord) {
  std::set<std::string> types;
  uint64_t offset = 0;
  for (const std::string& text : kRecords) {
    const Record record = decode(++offset, text);
    EXPECT_EQ(record.offset, offset);
    EXPECT_EQ(Json::parse(encode(record.time, record.event)), Json::parse(text));
    EXPECT_FALSE(describe(record.event).empty());
    types.emplace(type_name(record.event));
  }
  EXPECT_EQ(types.size(), std::variant_size_v<Event>) << "add the new event to the table";
}

TEST(EventCodec, TellsNobodyThePlansToken) {
  for (const std::string& text : kRecords) {
    EXPECT_EQ(event_fields(decode(1, text).event).dump().find("secret"), std::string::npos) << text;
  }
}

TEST(EventCodec, ReadsRecordsWithoutLaterFields) {
  const Record record = decode(1, R"({"v":1,"t":5,"type":"job-placed","job":"j-1","generation":2})");
  const auto& placed = std::get<JobPlaced>(record.event);
  EXPECT_EQ(placed.generation, 2u);
  EXPECT_TRUE(placed.seats.empty() && placed.cause.empty() && placed.shunned.empty() && !placed.in_place);
  EXPECT_FALSE(std::get<JobStarted>(decode(1, R"({"v":1,"t":5,"type":"job-started","job":"j"})").event).plan);
  EXPECT_EQ(std::get<JobEnded>(decode(1, R"({"v":1,"t":5,"type":"job-ended","job":"j"})").event).result,
            JobResult::kSucceeded);
  // And fields that it does not know.
  EXPECT_NO_THROW(decode(1, R"({"v":1,"t":5,"type":"node-gone","node":"n","later":[1]})"));
}

TEST(EventCodec, RefusesANewerFormatAndSaysWhichRecord) {
  try {
    decode(77, R"({"v":2,"t":5,"type":"node-gone","node":"n"})");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where, "journal record 77");
    EXPECT_NE(error.message.find("newer"), std::string::npos);
    EXPECT_FALSE(error.hint.empty());
  }
}

TEST(EventCodec, RefusesWhatIsNoRecord) {
  for (const char* text : {"",
                           "{",
                           "null",
                           "[]",
                           "7",
                           "{}",
                           R"({"v":1})",
                           R"({"v":1,"t":1})",
                           R"({"v":1,"t":1,"type":"job-eaten"})",
                           R"({"v":"1","t":1,"type":"node-gone"})",
                           R"({"v":1.5,"t":1,"type":"node-gone"})",
                           R"({"v":1,"t":1e300,"type":"node-gone"})",
                           R"({"v":1,"t":9223372036854775807,"type":"node-gone"})",
                           R"({"v":1,"t":1,"type":"node-gone","node":7})",
                           R"({"v":1,"t":1,"type":"job-placed","seats":5})",
                           R"({"v":1,"t":1,"type":"job-placed","seats":{"a":{}}})",
                           R"({"v":1,"t":1,"type":"job-placed","seats":[5]})",
                           R"({"v":1,"t":1,"type":"job-placed","generation":-1})",
                           R"({"v":1,"t":1,"type":"job-started","master_port":65536})",
                           R"({"v":1,"t":1,"type":"restart-charged","backoff_us":9223372036854775807})",
                           R"({"v":1,"t":1,"type":"restart-charged","used":99999999999})",
                           R"({"v":1,"t":1,"type":"job-ended","result":3})",
                           R"({"v":1,"t":1,"type":"job-ended","result":-1})",
                           R"({"v":1,"t":1,"type":"job-submitted","spec":{}})",
                           R"({"v":1,"t":1,"type":"cluster-configured","spec":7})"}) {
    try {
      decode(9, text);
      ADD_FAILURE() << "taken for a record: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.where, "journal record 9") << text;
    }
  }
}

TEST(EventCodec, WritesTextThatIsNoUtf8) {
  const std::string text = encode(WallTime{}, NodeLost{NodeId{"n"}, "bad \xff byte"});
  EXPECT_EQ(std::get<NodeLost>(decode(1, text).event).node.value, "n");
}

RC_GTEST_PROP(EventCodec, GivesAnErrorForDamagedRecords, ()) {
  std::string text = *rc::gen::elementOf(kRecords);
  const int edits = *rc::gen::inRange(1, 4);
  for (int i = 0; i < edits; ++i) {
    const size_t at = *rc::gen::inRange<size_t>(0, text.size());
    if (*rc::gen::arbitrary<bool>()) {
      text[at] = *rc::gen::arbitrary<char>();
    } else {
      text.erase(at, *rc::gen::inRange<size_t>(1, 9));
    }
    if (text.empty()) break;
  }
  try {
    const Record record = decode(1, text);
    RC_ASSERT(!describe(record.event).empty());
  } catch (const Error& error) {
    RC_ASSERT(error.where == "journal record 1");
  }
}

RC_GTEST_PROP(EventCodec, RoundTripsAnyPlacement, (const std::string& cause, uint64_t generation)) {
  JobPlaced placed;
  placed.job = JobId{"j-1"};
  placed.generation = generation;
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i)
    placed.seats.push_back(Seat{NodeId{"n" + std::to_string(i)}, AgentId{"a"}, *rc::gen::arbitrary<int>()});
  placed.cause = cause;
  const std::string text = encode(WallTime{}, placed);
  const Record back = decode(1, text);
  RC_ASSERT(encode(back.time, back.event) == text);
  RC_ASSERT(std::get<JobPlaced>(back.event).seats == placed.seats);
  RC_ASSERT(std::get<JobPlaced>(back.event).generation == generation);
}

TEST(EventText, NamesTheJobThatIsRunAgain) {
  JobSubmitted event{JobId{"j-2"}, {}, "", "j-1"};
  event.spec.name = "train";
  EXPECT_EQ(describe(Event(event)), "job j-2 (train) submitted, a rerun of j-1");
}

}  // namespace
}  // namespace rubato::cluster
