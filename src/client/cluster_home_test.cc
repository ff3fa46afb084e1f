#include "client/cluster_home.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "terminal/testing.h"

namespace rubato::cli {
namespace {

TEST(ClusterHome, FollowsTheXdgRules) {
  EXPECT_EQ(clusters_folder({{"XDG_STATE_HOME", "/s"}, {"HOME", "/h"}}), "/s/rubato/clusters");
  EXPECT_EQ(clusters_folder({{"XDG_STATE_HOME", "relative"}, {"HOME", "/h"}}), "/h/.local/state/rubato/clusters");
  EXPECT_THROW(clusters_folder({}), Error);
}

Error not_chosen(const std::vector<ClusterFound>& found, const std::string& named) {
  try {
    ADD_FAILURE() << choose_cluster(found, named);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kFailed, "");
}

TEST(ClusterHome, TheOnlyOpenOneIsMeant) {
  EXPECT_EQ(choose_cluster({{"lab", true}}, ""), "lab");
  EXPECT_EQ(choose_cluster({{"lab", true}, {"local", false}}, ""), "lab");
  EXPECT_EQ(choose_cluster({{"lab", true}, {"local", true}}, ""), "local");
  EXPECT_EQ(choose_cluster({{"lab", true}, {"local", true}}, "lab"), "lab");
  EXPECT_EQ(choose_cluster({{"lab", false}}, "lab"), "lab");
}

TEST(ClusterHome, NoneAndSeveralAreClearErrors) {
  EXPECT_EQ(render(not_chosen({}, "")), "error: no cluster is running\n  fix start one with: rubato up\n");
  EXPECT_NE(not_chosen({{"lab", false}}, "").hint.find("there were: lab"), std::string::npos);
  const Error several = not_chosen({{"a", true}, {"b", true}}, "");
  EXPECT_EQ(several.code, ErrorCode::kUsage);
  EXPECT_EQ(several.message, "which cluster? there are a, b");
  EXPECT_EQ(not_chosen({{"lab", true}}, "lba").hint, "did you mean 'lab'?");
  EXPECT_EQ(not_chosen({{"lab", true}}, "zzzzzz").hint, "running: lab");
}

TEST(ClusterHome, OfClustersThatAreDownTheOnlyOneIsRead) {
  EXPECT_EQ(choose_past_cluster({{"lab", false}}, ""), "lab");
  EXPECT_EQ(choose_past_cluster({{"lab", false}, {"local", false}}, ""), "local");
  EXPECT_EQ(choose_past_cluster({{"lab", false}, {"zoo", true}}, ""), "zoo") << "one that is up goes first";
  EXPECT_EQ(choose_past_cluster({{"lab", false}, {"zoo", true}}, "lab"), "lab");
  EXPECT_EQ(usage_error([] {
              choose_past_cluster({{"a", false}, {"b", false}}, "");
            }).message,
            "which cluster? all are down: a, b");
  EXPECT_THROW(choose_past_cluster({}, ""), Error);
}

TEST(ClusterHome, ANameNeverLeavesTheFolder) {
  for (const char* name : {"..", "a/b", "", "A", "a b"}) {
    EXPECT_THROW(place_of({{"HOME", "/h"}}, name), Error) << name;
  }
}

TEST(ClusterHome, ListsFoldersAndWhetherTheyAreOpen) {
  const std::string folder = scratch("rubato_clusters");
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(list_clusters(folder).empty());
  std::filesystem::create_directories(folder + "/lab/head");
  std::filesystem::create_directories(folder + "/zoo");
  std::filesystem::create_directories(folder + "/Not A Cluster");
  std::filesystem::create_directories(folder + "/tried/ssh");
  std::ofstream(folder + "/lab/head/head.json") << "{}";
  const auto found = list_clusters(folder);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "lab");
  EXPECT_TRUE(found[0].open);
  EXPECT_FALSE(found[1].open);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rubato::cli
