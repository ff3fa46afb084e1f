#include "clouds/gcp/gcp_launch.h"

#include <gtest/gtest.h>

#include "clouds/gcp/machine_types.h"
#include "model/cluster_file.h"
#include "model/cluster_spec.h"
#include "rest/json.h"

namespace rubato::clouds {
namespace {

using nlohmann::json;

GcpConfig lab() {
  GcpConfig config;
  config.cluster = "lab";
  config.project = "p";
  config.region = "us-west1";
  config.ssh_user = "ubuntu";
  return config;
}

GcpSurroundings around() {
  GcpSurroundings out;
  out.project = "p";
  out.region = "us-west1";
  out.zones = {"us-west1-a", "us-west1-b"};
  out.subnetwork = "projects/p/regions/us-west1/subnetworks/default";
  out.network_tag = "rubato-lab-node";
  out.head_account = "head@p.iam.gserviceaccount.com";
  out.person_key = "ssh-ed25519 PERSON";
  out.images = {{"worker", "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"}};
  return out;
}

LaunchOrder order(const json& config, Market market = Market::kOnDemand) {
  LaunchOrder out;
  out.sample.type.name = "worker";
  out.sample.type.node_config = config.dump();
  out.sample.launch_hash = "0123456789abcdef";
  out.sample.offering.market = market;
  out.nodes = {NodeId{"worker-1"}};
  out.head_key = "ssh-ed25519 HEAD";
  return out;
}

json body_of(const json& config, Market market = Market::kOnDemand) {
  return instance_request(lab(), around(), order(config, market), NodeId{"worker-1"}, "us-west1-b", 0).body;
}

std::string metadata(const json& body, const std::string& key) {
  for (const json& one : body["metadata"]["items"]) {
    if (one["key"] == key) return one["value"];
  }
  return "";
}

// As in Ray's example-full.yaml.
const json kRays = {
    {"machineType", "n1-standard-2"},
    {"disks", {{{"boot", true}, {"autoDelete", true}, {"type", "PERSISTENT"},
                {"initializeParams", {{"diskSizeGb", 50}, {"sourceImage", "projects/x/global/images/family/y"}}}}}},
    {"scheduling", {{{"preemptible", true}}}}};

TEST(GcpLaunch, RaysConfigBecomesARequest) {
  const json body = body_of(kRays, Market::kSpot);
  EXPECT_EQ(body["machineType"], "zones/us-west1-b/machineTypes/n1-standard-2");
  EXPECT_EQ(body["scheduling"],
            (json{{"preemptible", true}, {"automaticRestart", false}, {"onHostMaintenance", "TERMINATE"}}));
  EXPECT_EQ(body["disks"][0]["initializeParams"]["diskSizeGb"], 50);
  EXPECT_EQ(body["disks"][0]["initializeParams"]["labels"]["rubato-cluster"], "lab");
  EXPECT_EQ(body["networkInterfaces"][0]["subnetwork"], "projects/p/regions/us-west1/subnetworks/default");
  EXPECT_EQ(body["networkInterfaces"][0]["accessConfigs"][0]["type"], "ONE_TO_ONE_NAT");
  EXPECT_EQ(body["tags"]["items"], json::array({"rubato-lab-node"}));
  EXPECT_EQ(body["labels"]["ray-node-status"], "uninitialized");
  EXPECT_EQ(body["labels"]["rubato-node"], "worker-1");
  EXPECT_EQ(metadata(body, "ssh-keys"), "ubuntu:ssh-ed25519 PERSON\nubuntu:ssh-ed25519 HEAD");
  EXPECT_EQ(metadata(body, "enable-oslogin"), "FALSE");
  EXPECT_FALSE(body.contains("serviceAccounts")) << "a worker has no account unless the file gives it one";
}

TEST(GcpLaunch, OnDemandTakesTheMarketOutAndSpotPutsItIn) {
  EXPECT_FALSE(body_of(kRays).contains("scheduling"));
  const json spot = body_of({{"machineType", "e2-medium"}}, Market::kSpot)["scheduling"];
  EXPECT_EQ(spot["provisioningModel"], "SPOT");
  EXPECT_EQ(spot["instanceTerminationAction"], "DELETE");
  json kept = {{"machineType", "e2-medium"},
               {"scheduling", {{"provisioningModel", "SPOT"}, {"instanceTerminationAction", "STOP"}}}};
  EXPECT_EQ(body_of(kept, Market::kSpot)["scheduling"]["instanceTerminationAction"], "STOP");
  EXPECT_FALSE(body_of(kept).contains("scheduling"));
}

TEST(GcpLaunch, PlacesAreThoseOfTheZoneThatIsTried) {
  const json card = {{"acceleratorType", "projects/p/zones/z/acceleratorTypes/nvidia-tesla-t4"},
                     {"acceleratorCount", 1}};
  const json body =
      body_of({{"machineType", "https://www.googleapis.com/compute/v1/projects/p/zones/z/machineTypes/n1-x"},
               {"guestAccelerators", json::array({card})},
               {"disks", {{{"boot", true}, {"initializeParams", {{"diskType", "pd-ssd"}}}}}}});
  EXPECT_EQ(body["machineType"], "zones/us-west1-b/machineTypes/n1-x");
  EXPECT_EQ(body["guestAccelerators"][0]["acceleratorType"], "zones/us-west1-b/acceleratorTypes/nvidia-tesla-t4");
  EXPECT_EQ(body["disks"][0]["initializeParams"]["diskType"], "zones/us-west1-b/diskTypes/pd-ssd");
  EXPECT_EQ(body["scheduling"]["onHostMaintenance"], "TERMINATE") << "GPUs do not migrate";
}

TEST(GcpLaunch, WhatThePersonWroteStaysBesideOurs) {
  const json body = body_of({{"machineType", "e2-medium"},
                             {"labels", {{"team", "vision"}}},
                             {"tags", {{"items", {"mine"}}}},
                             {"serviceAccounts", {{{"email", "w@p"}}}},
                             {"networkInterfaces", {{{"network", "global/networks/other"}}}},
                             {"metadata", {{"items", {{{"key", "ssh-keys"}, {"value", "ann:ssh-rsa A"}},
                                                      {{"key", "startup-script"}, {"value", "echo"}}}}}}});
  EXPECT_EQ(body["labels"]["team"], "vision");
  EXPECT_EQ(body["tags"]["items"], (json{"mine", "rubato-lab-node"}));
  EXPECT_EQ(body["serviceAccounts"][0]["email"], "w@p");
  EXPECT_EQ(body["networkInterfaces"], (json::array({{{"network", "global/networks/other"}}})));
  EXPECT_TRUE(metadata(body, "ssh-keys").starts_with("ann:ssh-rsa A\nubuntu:"));
  EXPECT_EQ(metadata(body, "startup-script"), "echo");
}

// Where OS Login is on, Google ignores keys in metadata: none are written there.
TEST(GcpLaunch, WithOsLoginNoKeysAreInTheMetadata) {
  const json on = {{"machineType", "e2-medium"},
                   {"metadata", {{"items", {{{"key", "enable-oslogin"}, {"value", "true"}}}}}}};
  EXPECT_EQ(metadata(body_of(on), "ssh-keys"), "");
  EXPECT_EQ(metadata(body_of(on), "enable-oslogin"), "TRUE");
  GcpSurroundings by_project = around();
  by_project.uses_login = true;
  const auto body_in = [&](const json& config) {
    return instance_request(lab(), by_project, order(config), NodeId{"worker-1"}, "us-west1-b", 0).body;
  };
  EXPECT_EQ(metadata(body_in(kRays), "ssh-keys"), "");
  EXPECT_EQ(metadata(body_in(kRays), "enable-oslogin"), "TRUE");
  json off = on;
  off["metadata"]["items"][0]["value"] = "FALSE";
  EXPECT_NE(metadata(body_in(off), "ssh-keys"), "") << "a machine's own counts before the project's";
  EXPECT_EQ(gcp_surroundings_from_json(to_json(by_project)), by_project);
}

TEST(GcpLaunch, ANodeHasOneNameInAZoneUntilTheNextRound) {
  const LaunchOrder one = order(kRays);
  const auto request = [&](const char* node, const char* zone, int round) {
    return instance_request(lab(), around(), one, NodeId{node}, zone, round);
  };
  EXPECT_EQ(request("worker-1", "us-west1-a", 0).name, request("worker-1", "us-west1-a", 0).name);
  EXPECT_EQ(request("worker-1", "us-west1-a", 0).request_id, request("worker-1", "us-west1-a", 0).request_id);
  EXPECT_NE(request("worker-1", "us-west1-a", 0).name, request("worker-1", "us-west1-a", 1).name);
  EXPECT_NE(request("worker-1", "us-west1-a", 0).name, request("worker-2", "us-west1-a", 0).name);
  EXPECT_TRUE(request("worker-1", "us-west1-a", 0).name.starts_with("ray-lab-worker-"));
  EXPECT_EQ(request("worker-1", "us-west1-a", 0).request_id.size(), 36u);
}

TEST(GcpLaunch, NodesAreLabelsAndBack) {
  for (const char* name : {"worker-1", "ray_worker_small-12", "ray.worker.default-3", "A__b_-.c", "__2e"}) {
    const auto label = label_of_node(NodeId{name});
    ASSERT_TRUE(label) << name;
    EXPECT_EQ(node_of_label(*label).value, name) << *label;
  }
  EXPECT_EQ(label_of_node(NodeId{"ray_worker_small-12"}), "ray_worker_small-12");
  EXPECT_EQ(label_of_node(NodeId{std::string(64, 'a')}), std::nullopt);
}

TEST(GcpLaunch, ZonesAreThoseWhereTheTypeIs) {
  LaunchOrder one = order(kRays);
  EXPECT_EQ(zones_for(around(), one).size(), 2u);
  GcpSurroundings some = around();
  some.type_zones["worker"] = {"us-west1-b"};
  EXPECT_EQ(zones_for(some, one), std::vector<std::string>{"us-west1-b"});
  one.sample.offering.zone = "us-west1-a";
  EXPECT_THROW(zones_for(some, one), Error);
  EXPECT_EQ(gcp_surroundings_from_json(to_json(some)), some);
}

TEST(GcpTypes, SizesAndPricesComeFromTheName) {
  EXPECT_EQ(find_gcp_type("n1-standard-8")->memory_mib, 30720);
  EXPECT_NEAR(find_gcp_type("n1-standard-8")->price_per_hour, 0.38, 0.001);
  EXPECT_EQ(find_gcp_type("e2-custom-4-8192")->vcpus, 4);
  EXPECT_EQ(find_gcp_type("custom-2-5120")->memory_mib, 5120);
  EXPECT_EQ(find_gcp_type("a2-highgpu-8g")->gpus, 8);
  for (const char* unknown : {"", "n1", "n1-standard", "n1-standard-x", "z9-standard-4", "c2-highmem-8"}) {
    EXPECT_FALSE(find_gcp_type(unknown)) << unknown;
  }
}

ClusterFile read(const std::string& config) {
  return read_cluster_file("cluster_name: lab\nprovider: {type: gcp, project_id: p, region: r}\navailable_node_types:\n"
                           "  a:\n    node_config: " + config + "\nhead_node_type: a\nmax_workers: 2\n", "c.yaml");
}

std::string first_error(const ClusterFile& file) {
  for (const Finding& one : file.findings) {
    if (one.severity == Severity::kError) return one.where + " " + one.message;
  }
  return "";
}

TEST(GcpConfig, AConfigIsCheckedByGooglesSchema) {
  EXPECT_EQ(first_error(read("{machineType: e2-medium, scheduling: [{preemptible: true}]}")), "");
  EXPECT_EQ(first_error(read("{machineTyp: e2-medium}")),
            "c.yaml:5:19 Google's instances.insert does not know \"machineTyp\"");
  EXPECT_NE(first_error(read("{machineType: e2-medium, scheduling: {preemptible: maybe}}")), "");
  EXPECT_NE(first_error(read("{machineType: e2-medium, name: mine}")).find("decided by Rubato"), std::string::npos);
  const ClusterFile tpu = read("{acceleratorType: v2-8, runtimeVersion: x}");
  EXPECT_EQ(first_error(tpu), "") << "Ray's files can be read; up refuses them";
  EXPECT_TRUE(tpu.has(Severity::kWarning));
}

TEST(GcpConfig, ResourcesAndPricesAreFilledIn) {
  const ClusterSpec spec = cluster_spec_of(read("{machineType: n1-standard-8, guestAccelerators: [{acceleratorType: "
                                                "nvidia-tesla-t4, acceleratorCount: 2}]}"));
  const Resources& has = spec.types.at("a").resources;
  EXPECT_EQ(has.of(kCpu), 8000);
  EXPECT_EQ(has.of(kGpu), 2000);
  EXPECT_EQ(has.of("accelerator_type:T4"), 1000);
  EXPECT_FALSE(read("{machineType: n1-standard-8}").has(Severity::kWarning));
  EXPECT_FALSE(read("{machineType: zones/us-west1-a/machineTypes/e2-standard-2}").has(Severity::kWarning));
  EXPECT_TRUE(read("{machineType: z9-standard-8}").has(Severity::kWarning)) << "nobody knows what it has";
}

TEST(GcpConfig, CredentialsOfTheFileStayHere) {
  const ClusterFile file = read_cluster_file(
      "cluster_name: lab\nprovider: {type: gcp, project_id: p, region: r, gcp_credentials: {type: credentials_token, "
      "credentials: SECRET}}\n", "c.yaml");
  EXPECT_EQ(given_credentials(file)->text, "SECRET");
  EXPECT_EQ(cluster_spec_of(file).provider_config.find("SECRET"), std::string::npos);
}

}  // namespace
}  // namespace rubato::clouds
