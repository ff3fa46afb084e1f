#include "model/job_profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato {
namespace {

using nlohmann::json;

json hints() {
  return {{"initBatchSize", 128},
          {"localBszBounds", {32, 256}},
          {"globalBatchSize", 512},
          {"maxBatchSize", 4096},
          {"maxProfiledReplicas", 4},
          {"gradientAccumulation", true},
          {"gradParams", {{"norm", 0.5}, {"var", 2.0}}},
          {"perfParams",
           {{"alpha_c", 0.1},
            {"beta_c", 0.01},
            {"alpha_n", 0.2},
            {"beta_n", 0.02},
            {"alpha_r", 0.1},
            {"beta_r", 0.01},
            {"gamma", 1.5}}}};
}

TEST(JobProfile, IsReadFromHintsAndWrittenBack) {
  const JobProfile profile = job_profile_from_json(hints());
  EXPECT_EQ(profile.local_max, 256);
  EXPECT_EQ(profile.perf->gamma, 1.5);
  EXPECT_EQ(profile.gradient->var, 2.0);
  EXPECT_EQ(job_profile_from_json(to_json(profile)), profile);
  EXPECT_TRUE(is_known(profile));
}

TEST(JobProfile, WhatOnlyOurLibraryTellsIsReadAndWrittenBack) {
  json some = hints();
  some["progress"] = {{"done", 120.5}, {"total", 4000}};
  some["deviceKind"] = "NVIDIA H200";
  some["perfByDevice"] = {{"cpu", {{"alpha_c", 3}, {"gamma", 2}}}};
  some["startSeconds"] = 4.5;
  const JobProfile profile = job_profile_from_json(some);
  EXPECT_EQ(profile.done_iters, 120.5);
  EXPECT_EQ(profile.total_iters, 4000);
  EXPECT_EQ(profile.device, "NVIDIA H200");
  EXPECT_EQ(profile.perf_by_device.at("cpu").alpha_c, 3);
  EXPECT_EQ(profile.start_s, 4.5);
  EXPECT_EQ(job_profile_from_json(to_json(profile)), profile);
  some["progress"] = {{"done", 1}, {"total", nullptr}};
  EXPECT_EQ(job_profile_from_json(some).total_iters, std::nullopt) << "no end is declared";
}

TEST(JobProfile, UnknownKeysAndNullsAreAsAbsent) {
  json some = {{"initBatchSize", 32}, {"madeUp", 1}, {"perfParams", nullptr}, {"localBszBounds", nullptr}};
  const JobProfile profile = job_profile_from_json(some);
  EXPECT_EQ(profile.init_batch_size, 32);
  EXPECT_FALSE(is_known(profile));
  EXPECT_EQ(job_profile_from_json(json::object()), JobProfile{});
}

TEST(JobProfile, EitherEndOfTheLocalBoundsMayBeOpen) {
  const auto bounds = [](const json& value) {
    json some = hints();
    some["maxBatchSize"] = 4096;
    some["localBszBounds"] = value;
    const JobProfile profile = job_profile_from_json(some);
    return std::pair(profile.local_min, profile.local_max);
  };
  EXPECT_EQ(bounds({nullptr, 64}), std::pair(int64_t{1}, int64_t{64}));
  EXPECT_EQ(bounds({16, nullptr}), std::pair(int64_t{16}, int64_t{4096}));
  EXPECT_EQ(bounds({nullptr, nullptr}), std::pair(int64_t{1}, int64_t{4096}));
}

TEST(JobProfile, ValuesWithoutMeaningAreRefused) {
  const auto refused = [](const char* key, const json& value) {
    json bad = hints();
    bad[key] = value;
    EXPECT_THROW(job_profile_from_json(bad), Error) << key << ' ' << value;
  };
  refused("initBatchSize", "many");
  refused("initBatchSize", 0);
  refused("initBatchSize", 1e300);
  refused("localBszBounds", {1});
  refused("localBszBounds", {5, 1});
  refused("maxProfiledReplicas", -1);
  refused("gradientAccumulation", 1);
  refused("gradParams", 3);
  refused("perfParams", {{"gamma", 0.5}});
  refused("progress", 5);
  refused("progress", {{"done", -1}});
  refused("progress", {{"total", "all"}});
  refused("startSeconds", "soon");
  refused("deviceKind", 7);
  refused("deviceKind", "a\nb");
  refused("deviceKind", std::string(65, 'x'));
  refused("perfByDevice", {{"cpu", 1}});
  json many = json::object();
  for (int i = 0; i < 9; ++i) many[std::to_string(i)] = {{"gamma", 1}};
  refused("perfByDevice", many);
  EXPECT_THROW(job_profile_from_json(json::array()), Error);
}

}  // namespace
}  // namespace rubato
