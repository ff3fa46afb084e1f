#include "model/job_spec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato {
namespace {

using nlohmann::json;

json small() { return {{"name", "train"}, {"program", "train.py"}}; }

Error refused(const json& object) {
  try {
    job_spec_from_json(object);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUsage);
    return error;
  }
  ADD_FAILURE() << "taken: " << object.dump();
  return Error(ErrorCode::kFailed, "");
}

TEST(JobSpec, ASmallOneGetsTheDefaults) {
  const JobSpec spec = job_spec_from_json(small());
  EXPECT_EQ(spec.workers_min, 1);
  EXPECT_EQ(spec.workers_max, 1);
  EXPECT_EQ(describe(spec.per_worker), "1 CPU");
  EXPECT_EQ(spec.max_restarts, 3);
  EXPECT_EQ(spec.checkpoint_timeout, 120s);
  EXPECT_EQ(spec.rescale_timeout, 60s);
  EXPECT_EQ(spec.kind, ProgramKind::kScript);
}

TEST(JobSpec, EveryFieldGoesThereAndBack) {
  JobSpec spec;
  spec.name = "a.b_c-1";
  spec.kind = ProgramKind::kModule;
  spec.program = "pkg.train";
  spec.args = {"--x", "", "ü"};
  spec.python = "/opt/python";
  spec.prewarm = {"torch", "numpy.linalg"};
  spec.env = {{"A", "1"}, {"_B", ""}};
  spec.package = std::string(64, 'a');
  spec.workers_min = 2;
  spec.workers_max = 4;
  spec.workers_step = 2;
  spec.per_worker.set(kGpu, 1000);
  spec.priority = -7;
  spec.owner = "me";
  spec.max_restarts = 0;
  spec.timeout = 90s;
  spec.grace = 500ms;
  spec.checkpoint_timeout = 1s;
  spec.rescale_timeout = 2s;
  EXPECT_EQ(job_spec_from_json(to_json(spec)), spec);
  EXPECT_EQ(job_spec_from_json(json::parse(to_json(spec).dump())), spec);
}

TEST(JobSpec, AnEmptyNeedIsKeptEmpty) {
  json object = small();
  object["per_worker"] = json::object();
  EXPECT_TRUE(job_spec_from_json(object).per_worker.empty());
}

TEST(JobSpec, AnUnknownFieldNamesTheNearest) {
  json object = small();
  object["worker_max"] = 3;
  EXPECT_EQ(refused(object).hint, "did you mean 'workers_max'?");
}

TEST(JobSpec, NothingIsTakenOnTrust) {
  const std::vector<std::pair<const char*, json>> cases = {
      {"name", "Train"},
      {"name", ".hidden"},
      {"name", ""},
      {"name", std::string(64, 'a')},
      {"name", 3},
      {"program", ""},
      {"program", "../x.py"},
      {"program", "a/../../x.py"},
      {"program", "/etc/x.py"},
      {"program", std::string("a\0b", 3)},
      {"kind", "shell"},
      {"args", "text"},
      {"args", json::array({1})},
      {"args", json::array({std::string(200'000, 'x')})},
      {"env", {{"1A", "x"}}},
      {"env", {{"A=B", "x"}}},
      {"env", {{"A", 1}}},
      {"package", "../../x"},
      {"package", std::string(64, 'G')},
      {"workers_min", 0},
      {"workers_min", 1.5},
      {"workers_max", 0},
      {"workers_step", 0},
      {"workers_step", 2},
      {"workers_max", 18446744073709551615ULL},
      {"priority", 1001},
      {"weight", 0},
      {"weight", 1000},
      {"weight", "much"},
      {"deadline_s", -1},
      {"max_restarts", -1},
      {"timeout_s", -1},
      {"timeout_s", "90"},
      {"grace_s", 1e300},
      {"owner", "a\nb"},
      {"prewarm", json::array({"os; import x"})},
      {"per_worker", {{"CPU", -1}}},
  };
  for (const auto& [field, value] : cases) {
    json object = small();
    object[field] = value;
    EXPECT_NE(refused(object).message, "") << field;
  }
  refused(json::array());
  json range = small();
  range["workers_min"] = 3;
  range["workers_max"] = 2;
  EXPECT_NE(refused(range).message.find("the maximum 2 is below the minimum 3"), std::string::npos);
}

TEST(JobSpec, AProgramOfTheNodeMayHaveAnAbsolutePath) {
  json object = small();
  object["kind"] = "binary";
  object["program"] = "/bin/true";
  EXPECT_EQ(job_spec_from_json(object).program, "/bin/true");
  object["prewarm"] = json::array({"torch"});
  refused(object);
}

TEST(JobSpec, ArgumentsAndVariablesTogetherHaveALimit) {
  json object = small();
  for (int i = 0; i < 12; ++i) object["args"].push_back(std::string(100'000, 'x'));
  EXPECT_NE(refused(object).message.find("together"), std::string::npos);
}

TEST(JobSpec, EnvNames) {
  EXPECT_TRUE(valid_env_name("_A1"));
  for (const char* name : {"", "1A", "A-B", "A B", "Ä"}) EXPECT_FALSE(valid_env_name(name)) << name;
}

TEST(JobSpec, SecondsAreWrittenAsAPersonWouldAndStayTheSame) {
  JobSpec spec;
  spec.name = "n";
  spec.program = "p.py";
  spec.grace = 100ms;
  const nlohmann::json json = to_json(spec);
  EXPECT_EQ(json.at("checkpoint_timeout_s").dump(), "120.0");
  EXPECT_EQ(json.at("grace_s").dump(), "0.1");
  EXPECT_EQ(to_json(job_spec_from_json(json)), json);
}

}  // namespace
}  // namespace rubato
