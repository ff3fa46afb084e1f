// Node types and limits, of today and of old.
#include "model/cluster_file_testing.h"

namespace rubato {
namespace {

using Words = std::vector<std::string>;

const std::string kAws = "provider: {type: aws}\n";

TEST(ClusterFileNodes, LimitsFillIn) {
  const ClusterFile file = fine(kAws +
                                "max_workers: 9\nhead_node_type: h\navailable_node_types:\n  h: {}\n  a: {min_workers: "
                                "1}\n  b: {max_workers: 3}\n");
  EXPECT_EQ(file.types.at("h").max_workers, 0);
  EXPECT_EQ(file.types.at("a").max_workers, 9);
  EXPECT_EQ(file.types.at("b").max_workers, 3);
  EXPECT_EQ(fine(kAws + "node_types: {a: {min_workers: 5}}\n").autoscaling.max_workers, 5);
}

TEST(ClusterFileNodes, ATypeHasEverythingRayKnows) {
  const ClusterFile file = fine(kAws +
                                "node_types:\n  a:\n    node_config: {BlockDeviceMappings: [{Ebs: {Encrypted: no}}]}\n"
                                "    resources: {CPU: 0, GPU: 2, \"accelerator_type:V100\": 1, memory: 4GiB}\n"
                                "    idle_timeout_s: 90\n    priority: -1\n    labels: {z: 1}\n");
  const NodeTypeConfig& type = file.types.at("a");
  EXPECT_EQ(type.node_config.at("BlockDeviceMappings")[0].at("Ebs").at("Encrypted"), false);
  EXPECT_EQ(type.resources.zeros, Words{"CPU"});
  EXPECT_EQ(type.resources.amounts.of(kGpu), 2000);
  EXPECT_EQ(type.resources.amounts.of(kMemory), int64_t{4} << 30);
  EXPECT_EQ(type.idle_timeout, 90s);
  EXPECT_EQ(type.priority, -1);
  EXPECT_EQ(type.labels.at("z"), "1");
}

TEST(ClusterFileNodes, LegacyNodesBecomeTypes) {
  const ClusterFile file = fine(
      kAws +
      "min_workers: 1\nmax_workers: 4\nhead_node: {InstanceType: m4.large}\nworker_nodes: {InstanceType: p2.xlarge}\n");
  EXPECT_EQ(file.head_type, "ray-legacy-head-node-type");
  EXPECT_EQ(file.types.at(file.head_type).node_config.at("InstanceType"), "m4.large");
  const NodeTypeConfig& worker = file.types.at("ray-legacy-worker-node-type");
  EXPECT_EQ(worker.node_config.at("InstanceType"), "p2.xlarge");
  EXPECT_EQ(worker.min_workers, 1);
  EXPECT_EQ(worker.max_workers, 4);
  EXPECT_EQ(said(file, Severity::kWarning).size(), 3u);
  EXPECT_EQ(file.findings[2].hint, "write a node type in node_types, and its name as head_type");
  EXPECT_EQ(file.place("node_types.ray-legacy-worker-node-type.min_workers"), "c.yaml:2:14");
}

TEST(ClusterFileNodes, OneLegacyNodeIsEnough) {
  const ClusterFile file = fine(kAws + "max_workers: 0\nhead_node: {InstanceType: p2.8xlarge}\n");
  EXPECT_EQ(file.types.at("ray-legacy-head-node-type").node_config.at("InstanceType"), "p2.8xlarge");
  EXPECT_EQ(file.types.at("ray-legacy-worker-node-type").node_config.at("InstanceType"), "m5.large");
  EXPECT_EQ(file.autoscaling.max_workers, 0);
}

TEST(ClusterFileNodes, LegacySpeedsBecomeUpscalingSpeed) {
  EXPECT_DOUBLE_EQ(fine(kAws + "target_utilization_fraction: 0.8\n").autoscaling.upscaling_speed, 0.25);
  EXPECT_DOUBLE_EQ(
      fine(kAws + "target_utilization_fraction: 0.8\nautoscaling_mode: aggressive\n").autoscaling.upscaling_speed,
      99999);
  EXPECT_DOUBLE_EQ(fine(kAws + "autoscaling_mode: default\n").autoscaling.upscaling_speed, 1);
  EXPECT_DOUBLE_EQ(fine(kAws + "target_utilization_fraction: 0.8\nupscaling_speed: 3\n").autoscaling.upscaling_speed,
                   3);
}

TEST(ClusterFileNodes, InstanceTypesOfRay087) {
  const ClusterFile file =
      read_cluster_file(source_file("tests/data/cluster-files/instance-types-0.8.7.yaml"), "c.yaml");
  EXPECT_EQ(file.types.at("m4.4xlarge").node_config,
            nlohmann::ordered_json({{"ImageId", "latest_dlami"}, {"InstanceType", "m4.4xlarge"}}));
  EXPECT_EQ(file.types.at("m4.4xlarge").min_workers, 1);
  EXPECT_EQ(file.types.at("p3.8xlarge").max_workers, 4);
  EXPECT_EQ(file.autoscaling.initial_workers, 3);
}

TEST(ClusterFileNodes, LegacyNodesBesideTypesAreWhatTheyHaveInCommon) {
  const ClusterFile file =
      fine(kAws +
           "head_node_type: h\nhead_node: {ImageId: x}\nworker_nodes: {ImageId: y, KeyName: k}\n"
           "available_node_types:\n  h: {node_config: {InstanceType: a}}\n  w: {node_config: {ImageId: z}}\n");
  EXPECT_EQ(file.types.at("h").node_config, nlohmann::ordered_json({{"ImageId", "x"}, {"InstanceType", "a"}}));
  EXPECT_EQ(file.types.at("w").node_config, nlohmann::ordered_json({{"ImageId", "z"}, {"KeyName", "k"}}));
  EXPECT_EQ(fine(kAws + "head_node: {}\nworker_nodes: {}\nnode_types: {a: {}}\n").types.size(), 1u);
}

TEST(ClusterFileNodes, TheClustersMinimumGoesToTheOnlyWorkerType) {
  EXPECT_EQ(fine(kAws + "min_workers: 2\n").types.at("ray.worker.default").min_workers, 2);
  const ClusterFile several =
      fine(kAws + "min_workers: 2\nhead_node_type: h\navailable_node_types: {h: {}, a: {}, b: {}}\n");
  EXPECT_EQ(several.types.at("a").min_workers, 0);
  EXPECT_EQ(said(several, Severity::kWarning)[1],
            "2:14 min_workers of the whole cluster is ignored, because there are several node types");
}

TEST(ClusterFileNodes, HostsAreOneType) {
  const std::string hosts = "provider: {type: local, head_ip: h, worker_ips: [a, b]}\n";
  const ClusterFile file = fine(hosts);
  EXPECT_EQ(file.types.at("local.cluster.node").min_workers, 2);
  EXPECT_EQ(file.autoscaling.max_workers, 2);
  const ClusterFile more = fine(hosts + "autoscaling: {max_workers: 5, min_workers: 1}\n");
  EXPECT_EQ(more.autoscaling.max_workers, 2);
  EXPECT_EQ(more.types.at("local.cluster.node").min_workers, 1);
  EXPECT_EQ(said(more, Severity::kWarning), Words{"2:28 5 workers are wanted, but worker_ips has 2"});
  EXPECT_EQ(errors(read_text(hosts + "available_node_types: {a: {}}\n")),
            Words{"2:1 \"available_node_types\" has no meaning for hosts of your own"});
  const ClusterFile lent = fine(
      "provider: {type: local, coordinator_address: 'c:1234'}\nmax_workers: 3\navailable_node_types: "
      "{}\nhead_node_type: {}\n");
  EXPECT_EQ(lent.types.at("local.cluster.node").max_workers, 3);
}

}  // namespace
}  // namespace rubato
