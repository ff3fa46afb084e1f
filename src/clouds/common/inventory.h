// What the surveys of all clouds do alike: which things are in use, what machines and disks cost, checks that may fail.
#pragma once

#include <string>
#include <vector>

#include "clouds/common/machine_cloud.h"
#include "model/cluster_spec.h"
#include "provider/cloud_survey.h"

namespace rubato::clouds {

class Inventory {
 public:
  explicit Inventory(const ClusterFile& file);

  // `kind` is the cloud's name of the machine's size, `node_type` that of the file. One that has ended is left out.
  void add_machine(const CloudMachine& machine, provider::CloudResource named, const std::string& kind,
                   const std::string& node_type);
  // A disk of so many gigabytes. What a machine holds goes with it.
  void add_disk(provider::CloudResource disk, int64_t gigabytes, double price_per_gb_month, bool is_attached);
  void add(provider::CloudResource one) { out_.found.push_back(std::move(one)); }

  // Runs one part; where it fails, that is noted, and the next part goes on.
  Task<void> read(std::string what, Task<void> part);

  // With a head that is there, things are in use, but for disks that no machine holds.
  provider::CloudInventory finish();

 private:
  std::optional<double> price_of(const CloudMachine& machine, const std::string& node_type) const;

  const ClusterSpec spec_;
  const NodeId head_;
  bool has_head_ = false;
  std::vector<size_t> unheld_;  // disks of no machine
  provider::CloudInventory out_;
};

// One check: what the step tells, or why it failed with the fix.
Task<bool> try_check(std::string name, Task<std::string> step, std::vector<provider::CloudCheck>& out);

// Whether so many of something may be had: at once, and when the cluster is as large as it may get.
struct QuotaNeed {
  std::string name;  // the cloud's own: "Running On-Demand G and VT instances"
  double least = 0, most = 0, limit = 0, used = 0;
  std::string unit;  // "vCPUs"
  std::string fix;
};
provider::CloudCheck judge_quota(const QuotaNeed& need);

}  // namespace rubato::clouds
