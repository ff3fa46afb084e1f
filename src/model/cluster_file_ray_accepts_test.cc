// What Ray accepts, we accept: with a warning where something looks wrong, never with a refusal.
#include "model/cluster_file_testing.h"
#include "model/config_section.h"

namespace rubato {
namespace {

using Words = std::vector<std::string>;

TEST(RayAcceptsIt, AVeryLargeMaxWorkersMeansNoLimit) {
  const ClusterFile file = fine(
      "cluster_name: c\nprovider: {type: aws}\nmax_workers: 999999\nhead_node_type: h\n"
      "available_node_types:\n  h: {}\n  w: {max_workers: 1000000000}\n  v: {}\n");
  EXPECT_EQ(file.autoscaling.max_workers, kClusterNodesMax);
  EXPECT_EQ(file.types.at("w").max_workers, kClusterNodesMax);
  EXPECT_EQ(file.types.at("v").max_workers, kClusterNodesMax);
  EXPECT_EQ(said(file, Severity::kNote),
            (Words{"3:14 999999 is as good as no limit; a cluster has at most 10000 nodes",
                   "7:20 1000000000 is as good as no limit; a cluster has at most 10000 nodes"}));
}

TEST(RayAcceptsIt, MaxWorkersGoesBeforeMinWorkers) {
  const ClusterFile file = fine(
      "cluster_name: c\nprovider: {type: aws}\nmax_workers: 9\nnode_types: {a: {min_workers: 3, max_workers: 2}}\n");
  EXPECT_EQ(file.types.at("a").min_workers, 2);
  EXPECT_EQ(said(file, Severity::kWarning), Words{"4:47 the node type a has min_workers 3 above max_workers 2"});
}

TEST(RayAcceptsIt, KeysOfAProviderThatWeDoNotKnowArePassedOn) {
  const ClusterFile file = fine("cluster_name: c\nprovider: {type: aws, regoin: x, use_node_id_as_ip: true}\n");
  EXPECT_EQ(said(file, Severity::kWarning), (Words{"2:23 provider has the unknown key \"regoin\"",
                                                   "2:34 provider has the unknown key \"use_node_id_as_ip\""}));
  EXPECT_EQ(file.findings.front().hint, "did you mean \"region\"? If not: it is passed on as it is");
  EXPECT_EQ(file.provider.options["regoin"], "x");
}

TEST(RayAcceptsIt, AliyunsProvider) {
  const ClusterFile file = fine(
      "cluster_name: c\nprovider:\n  type: aliyun\n  region: cn-hangzhou\n  zone_id: cn-hangzhou-b\n"
      "  cidr_block: 172.16.0.0/24\n  cache_stopped_nodes: True\n  access_key:\n  access_key_secret:\n  key_name: ray\n"
      "  security_group_rule:\n    - {port_range: \"22/22\", source_cidr_ip: \"0.0.0.0/0\", ip_protocol: \"tcp\"}\n");
  EXPECT_EQ(said(file, Severity::kWarning), Words());
}

TEST(RayAcceptsIt, NamesThatKubernetesProviderFillsIn) {
  const ClusterFile file = fine(
      "cluster_name: c\nprovider: {type: kubernetes, namespace: ray}\nhead_node_type: h\navailable_node_types:\n"
      "  h: {node_config: {pod: {}}}\n  w:\n    node_config:\n      ingress:\n"
      "        spec: {rules: [{http: {paths: [{backend: {serviceName: '${RAY_POD_NAME}'}}]}}]}\n");
  EXPECT_EQ(said(file, Severity::kWarning), Words());
}

TEST(RayAcceptsIt, AByteOrderMark) {
  const ClusterFile file = fine(
      "\xef\xbb\xbf"
      "cluster_name: marked\nprovider: {type: aws}\n");
  EXPECT_EQ(file.name, "marked");
}

TEST(RayAcceptsIt, AFileWithoutAName) {
  const ClusterFile aws = fine("provider: {type: aws}\n");
  EXPECT_EQ(aws.findings.front().message, "the file has no cluster_name; 'default' is taken");
  EXPECT_EQ(aws.findings.front().severity, Severity::kWarning);
  const ClusterFile local = fine("provider: {type: local}\nnode_types: {a: {resources: {CPU: 1}, min_workers: 1}}\n");
  EXPECT_EQ(local.findings.front().message, "the file has no cluster_name; 'local' is taken");
}

TEST(RayAcceptsIt, ANameThatWeDoNotTakeIsReplaced) {
  const ClusterFile file = fine("cluster_name: My_Cluster\nprovider: {type: aws}\n");
  EXPECT_EQ(said(file, Severity::kNote), Words{"1:15 the cluster 'My_Cluster' is called 'my-cluster-c49d15' here"});
  EXPECT_EQ(file.name, "my-cluster-c49d15");
  EXPECT_EQ(file.findings.front().hint,
            "names become folders, host names and names of containers: use up to 40 of a-z, 0-9 and '-'");
}

}  // namespace
}  // namespace rubato
