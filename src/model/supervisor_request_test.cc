#include "model/supervisor_request.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/text.h"

namespace rubato {
namespace {

using Verb = SupervisorRequest::Verb;

SupervisorRequest read(std::string_view method, std::string_view path, std::optional<std::string> timeout = {}) {
  return read_supervisor_request(method, split(path, '/'), timeout);
}

TEST(SupervisorRequest, IsReadFromItsPath) {
  EXPECT_EQ(read("GET", "healthz").verb, Verb::kHealth);
  EXPECT_EQ(read("PUT", "hints/ns/job").verb, Verb::kHints);
  EXPECT_EQ(read("GET", "hints/ns/job").verb, Verb::kUnknown);
  const SupervisorRequest asked = read("GET", "discover/ns/job/3", "5");
  EXPECT_EQ(asked.verb, Verb::kDiscover);
  EXPECT_EQ(asked.group, 3u);
  EXPECT_EQ(asked.patience, 5s);
  EXPECT_EQ(read("GET", "discover/ns/job/3").patience, 30s) << "as AdaptDL's own supervisor";
  EXPECT_EQ(read("GET", "discover/ns/job/3", "999999").patience, 120s) << "bounded";
}

TEST(SupervisorRequest, WhatHasNoMeaningIsTold) {
  EXPECT_EQ(read("GET", "discover/ns/job/x").verb, Verb::kMalformed);
  EXPECT_EQ(read("GET", "discover/ns/job/1", "soon").verb, Verb::kMalformed);
  EXPECT_EQ(read("GET", "discover").verb, Verb::kUnknown);
  EXPECT_EQ(read("DELETE", "discover/ns/job/1").verb, Verb::kUnknown);
  EXPECT_EQ(read("GET", "").verb, Verb::kUnknown);
  EXPECT_EQ(read_supervisor_request("GET", {}, {}).verb, Verb::kUnknown);
}

}  // namespace
}  // namespace rubato
