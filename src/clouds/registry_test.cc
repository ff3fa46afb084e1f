#include <gtest/gtest.h>

#include <set>

#include "model/cluster_file.h"
#include "model/provider_kind.h"

namespace rubato {
namespace {

TEST(ProviderKinds, EachIsThereOnceAndIsFoundByItsType) {
  std::set<std::string_view> types;
  for (const ProviderKind* kind : provider_kinds()) {
    EXPECT_TRUE(types.insert(kind->type).second) << kind->type;
    EXPECT_EQ(&provider_kind(kind->type), kind);
  }
  EXPECT_TRUE(types.contains("local") && types.contains("external") && types.contains("aws"));
  EXPECT_FALSE(provider_kind("nothing of the kind").is_supported());
}

// The table of keys is one for all: a word that two of them have would be the first one's.
TEST(ProviderKinds, NoTwoHaveTheSameKeyAndEachKeyNamesItsKind) {
  std::set<std::string_view> paths;
  for (const ConfigKey& key : common_provider_keys()) EXPECT_TRUE(paths.insert(key.path).second) << key.path;
  for (const ProviderKind* kind : provider_kinds()) {
    for (const ConfigKey& key : kind->keys) {
      EXPECT_TRUE(paths.insert(key.path).second) << key.path;
      EXPECT_TRUE(key.path.starts_with("provider.")) << key.path;
      const bool inside = key.parent() != "provider" || key.era == KeyEra::kWritten;
      EXPECT_TRUE(inside || key.only == kind->type) << key.path;
      EXPECT_EQ(find_config_key(key.path)->meaning, key.meaning);
    }
  }
}

TEST(ProviderKinds, WhatMakesMachinesSaysSo) {
  EXPECT_TRUE(provider_kind("local").has_own_machines);
  EXPECT_FALSE(provider_kind("local").can_make_head);
  EXPECT_FALSE(provider_kind("external").has_own_machines);
  EXPECT_TRUE(provider_kind("external").can_make_head);
}

bool warns_of_spot(const std::string& provider) {
  const std::string text = "cluster_name: c\nprovider: {" + provider +
                           "}\nmax_workers: 1\nhead_type: a\nnode_types: {a: {resources: {CPU: 1}, spot: true}}\n";
  const ClusterFile file = read_cluster_file(text, "c.yaml");
  for (const Finding& one : file.findings) {
    if (one.message.find("no spot market") != std::string::npos) return true;
  }
  return false;
}

TEST(ProviderKinds, SpotWhereThereIsNoSpotMarketIsWarnedOf) {
  EXPECT_TRUE(warns_of_spot("type: local"));
  EXPECT_FALSE(warns_of_spot("type: external, command: [cloud]"));
  EXPECT_FALSE(warns_of_spot("type: aws"));
}

}  // namespace
}  // namespace rubato
