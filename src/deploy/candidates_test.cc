#include "deploy/candidates.h"

#include <gtest/gtest.h>

namespace rubato::cli {
namespace {

ClusterFile read(const std::string& types, const std::string& more = "") {
  return read_cluster_file(
      "cluster_name: lab\nprovider: {type: aws, region: eu-west-1, availability_zone: 'eu-west-1a,eu-west-1b'}\n"
      "available_node_types:\n  head: {node_config: {InstanceType: m5.large}, max_workers: 0}\n" +
          types + "head_node_type: head\nmax_workers: 4\n" + more,
      "c.yaml");
}

TEST(Candidates, AreATableWithPricesAndWhatIsTakenFirst) {
  const ClusterFile file =
      read("  gpu: {node_config: {InstanceType: p3.2xlarge}, spot: true, min_workers: 2, max_workers: 4}\n"
           "  later: {node_config: {InstanceType: m5.large}, min_workers: 0, max_workers: 4}\n");
  EXPECT_EQ(candidates_text(file),
            "Plan for cluster 'lab' (3 nodes)\n"
            " NODES   WHERE           INSTANCE    GPU   SPOT  $/H    CHOSEN\n"
            " head    aws/eu-west-1a  m5.large    -     no    0.096  yes\n"
            " head    aws/eu-west-1b  m5.large    -     no    0.096\n"
            " gpu x2  aws/eu-west-1a  p3.2xlarge  V100  yes   2.142  yes\n"
            " gpu x2  aws/eu-west-1a  p3.2xlarge  V100  no    6.120\n"
            " gpu x2  aws/eu-west-1b  p3.2xlarge  V100  yes   2.142\n"
            " gpu x2  aws/eu-west-1b  p3.2xlarge  V100  no    6.120\n"
            "about $2.24 an hour; spot prices change, disks and traffic cost more\n");
}

TEST(Candidates, SpotPricesOfNowCountBeforeTheTableAndBehindTheFile) {
  const ClusterFile file =
      read("  gpu: {node_config: {InstanceType: p3.2xlarge}, spot: true, min_workers: 1, max_workers: 4}\n");
  LivePrices live;
  live.push_back({"gpu", "eu-west-1a", 4.0});
  live.push_back({"gpu", "eu-west-1b", 0.9});
  const std::vector<Candidate> rows = candidates_of(file, live);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_DOUBLE_EQ(rows[2].price_per_hour, 4.0);
  EXPECT_FALSE(rows[2].is_chosen);
  EXPECT_DOUBLE_EQ(rows[3].price_per_hour, 3.06) << "on demand";
  EXPECT_DOUBLE_EQ(rows[4].price_per_hour, 0.9);
  EXPECT_TRUE(rows[4].is_chosen);
}

TEST(Candidates, WhatIsNotKnownIsSaid) {
  const ClusterFile file = read("  odd: {node_config: {InstanceType: zz9.large}, min_workers: 1, max_workers: 1}\n");
  const std::string text = candidates_text(file);
  EXPECT_NE(text.find("zz9.large  -    no    ?      yes"), std::string::npos) << text;
  EXPECT_NE(text.find("and what is not known"), std::string::npos) << text;
}

}  // namespace
}  // namespace rubato::cli
