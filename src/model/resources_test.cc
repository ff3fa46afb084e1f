#include "model/resources.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/limits.h"

namespace rubato {
namespace {

using nlohmann::json;

Resources of(const char* text) { return resources_from_json(json::parse(text)); }

TEST(Resources, ZerosAreNotKeptSoThatEqualAmountsAreEqual) {
  Resources a = of(R"({"CPU": 2, "GPU": 0})");
  EXPECT_EQ(a, of(R"({"CPU": 2.0})"));
  a -= of(R"({"CPU": 2})");
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(a.of("CPU"), 0);
}

TEST(Resources, AddingAndTakingAwayNeverDrifts) {
  const Resources tenth = of(R"({"CPU": 0.1})");
  Resources sum;
  for (int i = 0; i < 10; ++i) sum += tenth;
  EXPECT_EQ(sum, of(R"({"CPU": 1})"));
  EXPECT_EQ(times(tenth, 10), sum);
  for (int i = 0; i < 10; ++i) sum -= tenth;
  EXPECT_TRUE(sum.empty());
}

TEST(Resources, FitsOnlyWhereEveryAmountIsThere) {
  const Resources worker = of(R"({"CPU": 2, "GPU": 1})");
  EXPECT_TRUE(worker.fits_in(of(R"({"CPU": 2, "GPU": 1, "memory": 5})")));
  EXPECT_FALSE(worker.fits_in(of(R"({"CPU": 64})")));
  EXPECT_EQ(worker.times_in(of(R"({"CPU": 9, "GPU": 8})")), 4);
  EXPECT_EQ(worker.times_in(of(R"({"CPU": 9})")), 0);
  EXPECT_GT(Resources().times_in(worker), 1000000);
}

TEST(Resources, TooManyFitNowhereInsteadOfWrappingAround) {
  const Resources huge = times(of(R"({"memory": "64TiB"})"), 1'000'000'000);
  EXPECT_FALSE(huge.fits_in(of(R"({"memory": "64TiB"})")));
}

TEST(Resources, PeopleReadThemInOneOrder) {
  EXPECT_EQ(describe(of(R"({"tpu": 0.25, "memory": 4294967296, "GPU": 1, "CPU": 1.5})")),
            "1.5 CPU, 1 GPU, 4 GiB memory, 0.25 tpu");
  EXPECT_EQ(describe({}), "nothing");
}

TEST(Resources, JsonGoesThereAndBack) {
  const Resources all = of(R"({"CPU": 1.5, "GPU": 2, "memory": "1GiB", "accelerator_type:T4": 0.001})");
  EXPECT_EQ(resources_from_json(to_json(all)), all);
  EXPECT_EQ(to_json(all)["GPU"].dump(), "2");
  EXPECT_EQ(to_json(all)["memory"].dump(), "1073741824");
}

TEST(Resources, WrongAmountsAndNamesAreRefused) {
  for (const char* text : {R"([])", R"({"CPU": -1})", R"({"CPU": "2"})", R"({"CPU": 1e300})", R"({"CPU": 0.0001})",
                           R"({"cpu": 1})", R"({"a b": 1})", R"({"": 1})", R"({"memory": 0.2})", R"({"CPU": true})"}) {
    EXPECT_THROW(of(text), Error) << text;
  }
  try {
    of(R"({"Memory": 1})");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.hint, "write memory");
  }
}

TEST(Bytes, UnitsAreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("4GiB"), int64_t{4} << 30);
  EXPECT_EQ(parse_bytes("512M"), int64_t{512} << 20);
  EXPECT_EQ(parse_bytes(" 1.5g "), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("2 GB"), 2'000'000'000);
  EXPECT_EQ(parse_bytes("17"), 17);
  for (const char* text : {"", "G", "4 X", "-1", "nan", "inf", "1e30", "1GiBs", "4G4"}) {
    EXPECT_THROW(parse_bytes(text), Error) << text;
  }
}

TEST(Bytes, PeopleReadThemShort) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((int64_t{1} << 20) - 1), "1 MiB");
  EXPECT_EQ(format_bytes(int64_t{64} << 40), "64 TiB");
}

// Ray's files and states give it in bytes: 200 GB are not too many of it.
TEST(Resources, ObjectStoreMemoryIsCountedInBytes) {
  const Resources node = resources_from_json({{"CPU", 4}, {"object_store_memory", 200'000'000'000}});
  EXPECT_EQ(node.of("object_store_memory"), 200'000'000'000);
  EXPECT_EQ(to_json(node), (json{{"CPU", 4}, {"object_store_memory", 200'000'000'000}}));
  EXPECT_EQ(describe(node), "4 CPU, 186.3 GiB object_store_memory");
  EXPECT_EQ(resources_from_json({{"object_store_memory", "2GiB"}}).of("object_store_memory"), int64_t{2} << 30);
}

TEST(Resources, HaveABoundedNumberOfNames) {
  json many = json::object();
  for (size_t i = 0; i < kResourceNamesMax; ++i) many["r" + std::to_string(i)] = 1;
  EXPECT_EQ(resources_from_json(many).amounts().size(), kResourceNamesMax);
  many["one_more"] = 1;
  EXPECT_THROW(resources_from_json(many), Error);
}

}  // namespace
}  // namespace rubato
