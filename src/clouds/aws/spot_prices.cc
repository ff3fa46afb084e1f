#include "clouds/aws/spot_prices.h"

#include <algorithm>
#include <set>

#include "aws/credentials.h"
#include "aws/ec2.h"
#include "clouds/aws/ec2_config.h"
#include "core/time.h"
#include "model/cluster_spec.h"

namespace rubato::clouds {

std::map<std::string, std::string> spot_types_of(const ClusterFile& file) {
  std::map<std::string, std::string> out;
  const ClusterSpec spec = cluster_spec_of(file);
  for (const auto& [name, type] : file.types) {
    const auto of_spec = spec.types.find(name);
    const bool spot = of_spec != spec.types.end() &&
                      std::ranges::any_of(of_spec->second.offerings,
                                          [](const Offering& one) { return one.market == Market::kSpot; });
    if (!spot || type.spot_price_per_hour) continue;
    const auto instance = type.node_config.find("InstanceType");
    if (instance != type.node_config.end() && instance->is_string()) out[name] = instance->get<std::string>();
  }
  return out;
}

Task<std::vector<provider::LivePrice>> read_spot_prices(aws::Client& client,
                                                        std::map<std::string, std::string> instance_types) {
  std::vector<provider::LivePrice> out;
  if (instance_types.empty()) co_return out;
  std::set<std::string> names;
  for (const auto& [type, instance] : instance_types) names.insert(instance);
  std::vector<std::string> asked(names.begin(), names.end());
  // From now on: EC2 gives the price that holds at that time, and no older ones.
  const std::string now = format_time(client.world().clock.wall());
  const auto found = co_await aws::describe_spot_prices(client, std::move(asked), now);
  std::set<std::pair<std::string, std::string>> seen;  // the newest come first
  for (const aws::SpotPrice& one : found) {
    if (one.price <= 0 || !seen.emplace(one.type, one.zone).second) continue;
    for (const auto& [type, instance] : instance_types) {
      if (instance == one.type) out.push_back({type, one.zone, one.price});
    }
  }
  co_return out;
}

Task<std::vector<provider::LivePrice>> ec2_prices(World& world, const ClusterFile& file, std::vector<std::string> env) {
  std::map<std::string, std::string> wanted = spot_types_of(file);
  if (wanted.empty()) co_return std::vector<provider::LivePrice>();
  aws::Settings settings;
  settings.env = rest::environment_of(env);
  settings.region = ec2_config_from_json(compile_ec2_config(file)).region;
  const std::unique_ptr<aws::Client> client = co_await aws::open_client(world, std::move(settings));
  co_return co_await read_spot_prices(*client, std::move(wanted));
}

}  // namespace rubato::clouds
