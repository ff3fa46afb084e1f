// The node types that Ray's defaults.yaml has for a file without any.
#include "model/cluster_file_readers.h"

namespace rubato {
namespace {

using nlohmann::ordered_json;

DefaultTypes aws_types() {
  DefaultTypes out{.head = "ray.head.default", .worker = "ray.worker.default"};
  const ordered_json disk = {{"DeviceName", "/dev/sda1"}, {"Ebs", {{"VolumeSize", 256}}}};
  out.head_config = {{"InstanceType", "m5.large"}, {"BlockDeviceMappings", ordered_json::array({disk})}};
  out.worker_config = {{"InstanceType", "m5.large"}, {"InstanceMarketOptions", {{"MarketType", "spot"}}}};
  return out;
}

DefaultTypes gcp_types() {
  DefaultTypes out{.head = "ray_head_default", .worker = "ray_worker_small"};
  const ordered_json image = {
      {"diskSizeGb", 50}, {"sourceImage", "projects/deeplearning-platform-release/global/images/family/common-cpu"}};
  const ordered_json disk = {{"boot", true}, {"autoDelete", true}, {"type", "PERSISTENT"}, {"initializeParams", image}};
  out.head_config = {{"machineType", "n1-standard-2"}, {"disks", ordered_json::array({disk})}};
  out.worker_config = out.head_config;
  out.worker_config["scheduling"] = ordered_json::array({ordered_json{{"preemptible", true}}});
  out.resources.set(kCpu, 2000);
  return out;
}

}  // namespace

DefaultTypes default_types(std::string_view provider) {
  if (provider == "aws") return aws_types();
  if (provider == "gcp") return gcp_types();
  return {.head = "ray.head.default", .worker = "ray.worker.default"};
}

}  // namespace rubato
