// CloudSurvey: what a cloud has of a cluster, and whether `up` can work there, asked from a person's machine. Nothing
// is changed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/task.h"
#include "model/cluster_file.h"
#include "world/world.h"

namespace rubato::provider {

// One thing in the cloud that carries the cluster's mark.
struct CloudResource {
  std::string kind;                      // "instance", "security group"
  std::string name;                      // as the cloud's own tools take it
  std::string where;                     // zone or region; empty: of the whole account
  std::string detail;                    // "worker-1, running, m5.large, spot"
  std::optional<double> price_per_hour;  // dollars; nullopt: not known
  bool in_use = false;                   // by a cluster whose head is there
  bool goes_with_down = true;            // `rubato down` removes it
  std::string remove;                    // a command of the cloud's own tools that removes it
};

struct CloudInventory {
  std::vector<CloudResource> found;
  std::vector<std::string> unread;  // what could not be listed, with the reason
};

enum class CheckResult { kOk, kWarn, kFail };
struct CloudCheck {
  std::string check;  // "credentials"
  CheckResult result = CheckResult::kOk;
  std::string found;
  std::string fix;  // empty when ok
};

// What a spot machine of a node type costs now, where the cluster file does not say.
struct LivePrice {
  std::string node_type, zone;
  double price_per_hour = 0;  // dollars
};

struct CloudSurvey {
  // The file outlives the call. `env` as NAME=VALUE.
  using List = Task<CloudInventory> (*)(World& world, const ClusterFile& file, std::vector<std::string> env);
  using Check = Task<std::vector<CloudCheck>> (*)(World& world, const ClusterFile& file, std::vector<std::string> env);
  // Everything of the cluster, in all zones, whoever made it and whether its head is alive or not.
  List list = nullptr;
  // Each step that `up` would take, as far as it can be tried without one.
  Check check = nullptr;
  // Spot prices of now; null: the cloud does not tell them.
  using Prices = Task<std::vector<LivePrice>> (*)(World& world, const ClusterFile& file, std::vector<std::string> env);
  Prices prices = nullptr;
};

// Of a kind of provider; empty for one that is no cloud. The list is src/clouds/registry.cc.
CloudSurvey cloud_survey(std::string_view provider_type);

}  // namespace rubato::provider
