#include "reconcile/settings.h"

#include <gtest/gtest.h>

#include "cluster/state_testing.h"

namespace rubato::reconcile {
namespace {

using namespace cluster;  // NOLINT: the words of state_testing.h

std::string lines(const std::vector<PlannedChange>& changes) {
  std::string out;
  for (const PlannedChange& one : changes) out += one.action + " " + one.type + ": " + one.why + "\n";
  return out;
}

TEST(Settings, WhatDidNotChangeIsNotNamed) {
  const ClusterSpec spec = cluster_of({node_type("small", cpus(1), 1, 2)});
  EXPECT_EQ(lines(setting_changes(spec, spec)), "");
}

TEST(Settings, EachChangeIsNamedWithBothValues) {
  const ClusterSpec before = cluster_of({node_type("small", cpus(1), 1, 2), node_type("old", cpus(1), 0, 2)});
  ClusterSpec after = cluster_of({node_type("small", cpus(1), 1, 2), node_type("big", cpus(8), 0, 1)});
  after.scaling.idle_timeout = 60s;
  after.scaling.budget_per_hour = 2.5;
  after.types.at("small").priority = 3;
  EXPECT_EQ(lines(setting_changes(before, after)),
            "setting max_workers of the cluster: 4 → 3\n"
            "setting idle_timeout: 5m00s → 1m00s\n"
            "setting budget_per_hour: none → 2.5\n"
            "setting node type big: new\n"
            "setting priority of small: 0 → 3\n"
            "setting node type old: no longer in the file\n");
}

}  // namespace
}  // namespace rubato::reconcile
