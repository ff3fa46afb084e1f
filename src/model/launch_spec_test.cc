#include "model/launch_spec.h"

#include <gtest/gtest.h>

namespace rubato {
namespace {

TEST(StreamChoice, ALocalRanksOwnChoiceOverridesTheOneForAll) {
  const StreamChoice choice{.all = 3, .by_local_rank = {{1, 0}}};
  EXPECT_EQ(choice.of(0), 3);
  EXPECT_EQ(choice.of(1), 0);
}

TEST(LaunchSpec, KindsHaveNames) {
  EXPECT_EQ(to_string(Backend::kEmbedded), "embedded");
  EXPECT_EQ(to_string(Backend::kEtcd), "etcd");
  EXPECT_EQ(to_string(Backend::kStatic), "static");
  EXPECT_EQ(to_string(ProgramKind::kScript), "script");
  EXPECT_EQ(to_string(ProgramKind::kBinary), "binary");
}

}  // namespace
}  // namespace rubato
