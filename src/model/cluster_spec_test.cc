#include "model/cluster_spec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace rubato {
namespace {

ClusterSpec read(const std::string& text) { return read_cluster_spec(text, "c.yaml"); }

Error refused(const std::string& text) {
  try {
    read(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUsage);
    return error;
  }
  ADD_FAILURE() << "taken: " << text;
  return Error(ErrorCode::kFailed, "");
}

constexpr const char* kTwoTypes = R"(cluster_name: lab
provider: {type: local, isolation: netns}
max_workers: 5
available_node_types:
  small:
    resources: {CPU: 2, memory: 2GiB}
    min_workers: 2
    max_workers: 4
  gpu-big:
    resources: {CPU: 8, GPU: 1, license: 0.5}
    node_config: {}
)";

TEST(ClusterSpec, ReadsRaysModernSpellingWithPositions) {
  const ClusterSpec spec = read(kTwoTypes);
  EXPECT_EQ(spec.name, "lab");
  EXPECT_EQ(spec.isolation, Isolation::kNetns);
  EXPECT_EQ(spec.max_workers, 5);
  EXPECT_EQ(spec.max_where, "c.yaml:3:14");
  const NodeType& small = spec.types.at("small");
  EXPECT_EQ(describe(small.resources), "2 CPU, 2 GiB memory");
  EXPECT_EQ(small.min_workers, 2);
  EXPECT_EQ(small.max_workers, 4);
  EXPECT_EQ(small.resources_where, "c.yaml:6:16");
  EXPECT_EQ(small.min_where, "c.yaml:7:18");
  EXPECT_EQ(small.max_where, "c.yaml:8:18");
  const NodeType& big = spec.types.at("gpu-big");
  EXPECT_EQ(big.min_workers, 0);
  EXPECT_EQ(big.max_workers, 5);
  EXPECT_EQ(big.max_where, "c.yaml:9:3");
}

TEST(ClusterSpec, WithoutAClusterMaximumTheTypesAddUp) {
  const ClusterSpec spec = read(R"(provider: {type: local}
available_node_types:
  a: {resources: {CPU: 1}, min_workers: 2}
  b: {resources: {CPU: 1}, max_workers: 3}
)");
  EXPECT_EQ(spec.name, "local");
  EXPECT_EQ(spec.types.at("a").max_workers, 2);
  EXPECT_EQ(spec.types.at("b").min_workers, 0);
  EXPECT_EQ(spec.max_workers, 5);
}

TEST(ClusterSpec, OurOwnFormMeansTheSame) {
  const ClusterSpec spec = read(R"(cluster_name: lab
provider: {type: local}
autoscaling: {max_workers: 4}
node_types:
  a: {resources: {CPU: 1}, min_workers: 2}
)");
  EXPECT_EQ(spec.max_workers, 4);
  EXPECT_EQ(spec.max_where, "c.yaml:3:28");
  EXPECT_EQ(spec.types.at("a").max_workers, 4);
  EXPECT_EQ(refused("provider: {type: local}\nmax_workers: 1\nautoscaling: {max_workers: 2}\n").where, "c.yaml:3:15");
  EXPECT_EQ(refused("provider: {type: local}\nnode_types: {}\navailable_node_types: {}\n").where, "c.yaml:3:1");
}

TEST(ClusterSpec, TheDefaultIsOneNodeWithTheMachine) {
  const ClusterSpec spec = read(default_cluster_text(8, 2));
  EXPECT_EQ(spec.max_workers, 1);
  EXPECT_EQ(spec.types.at("machine").min_workers, 1);
  EXPECT_EQ(describe(spec.types.at("machine").resources), "8 CPU, 2 GPU");
  EXPECT_EQ(describe(read(default_cluster_text(3, 0)).types.at("machine").resources), "3 CPU");
}

struct Bad {
  const char* text;
  const char* message;
  const char* where;
  const char* hint;
};

TEST(ClusterSpec, ErrorsPointAtTheWord) {
  const Bad cases[] = {
      {"", "empty", "c.yaml:1:1", "cluster_name"},
      {"provider: {type: azure}\n", "'azure' is not supported", "c.yaml:1:18", "type: external"},
      {"provider: {type: local}\nauth: {ssh_user: me}\n", "\"auth.ssh_user\" has no meaning", "c.yaml:2:8", "head_ip"},
      {"provider: {type: local, isolatoin: none}\n", "unknown key \"isolatoin\"", "c.yaml:1:25", "isolation"},
      {"provider: {type: local, isolation: vm}\n", "isolation 'vm'", "c.yaml:1:36", "none or netns"},
      {"provider: {type: local}\n", "no node types", "c.yaml:1:1", "node_types"},
      {"provider: {type: local}\navailable_node_types: {}\n", "no node types", "c.yaml:1:1", ""},
      {"cluster_name: My Lab\nprovider: {type: local}\n", "'My Lab' is not a name", "c.yaml:1:15", "letters"},
      {"provider: {type: local}\navailable_node_typs: {a: {}}\n", "unknown key \"available_node_typs\"", "c.yaml:2:1",
       "available_node_types"},
  };
  for (const Bad& bad : cases) {
    const Error error = refused(bad.text);
    EXPECT_NE(error.message.find(bad.message), std::string::npos) << error.message;
    EXPECT_EQ(error.where, bad.where) << error.message;
    EXPECT_NE(error.hint.find(bad.hint), std::string::npos) << error.hint;
  }
}

TEST(ClusterSpec, ErrorsInATypePointAtTheWord) {
  const std::string head = "provider: {type: local}\navailable_node_types:\n  ";
  const Bad cases[] = {
      {"a: {}", "needs some resource", "c.yaml:3:6", ""},
      {"a: {resources: {CPU: 1}}", "would never have a node", "c.yaml:3:6", "min_workers"},
      {"a: {resources: {}, min_workers: 1}", "needs some resource", "c.yaml:3:18", ""},
      {"a: {resources: {CPU: auto}, min_workers: 1}", "expected a number", "c.yaml:3:24", ""},
      {"a: {resources: {cpu: 1}, min_workers: 1}", "spelled 'CPU'", "c.yaml:3:24", "write CPU"},
      {"a: {resources: {CPU: x}, min_workers: 1}", "expected a number", "c.yaml:3:24", ""},
      {"a: {resources: {memory: 4 elephants}, min_workers: 1}", "not an amount of memory", "c.yaml:3:27", "4GiB"},
      {"a: {resources: {CPU: 1}, min_workers: 3, max_workers: 2}", "min_workers 3 above max_workers 2", "c.yaml:3:57",
       "raise max_workers to 3"},
      {"a: {resources: {CPU: 1}, min_worker: 3}", "unknown key \"min_worker\"", "c.yaml:3:28", "min_workers"},
      {"A/b: {resources: {CPU: 1}, min_workers: 3}", "'A/b' is not a name", "c.yaml:3:3", ""},
      {"a: {resources: {CPU: 1}, min_workers: -1}", "not between 0 and", "c.yaml:3:41", ""},
      {"a: {resources: {CPU: 1}, min_workers: 1, node_config: {x: 1}}", "no meaning", "c.yaml:3:57", ""},
  };
  for (const Bad& bad : cases) {
    const Error error = refused(head + bad.text);
    EXPECT_NE(error.message.find(bad.message), std::string::npos) << error.message;
    EXPECT_EQ(error.where, bad.where) << error.message;
    EXPECT_NE(error.hint.find(bad.hint), std::string::npos) << error.hint;
  }
}

TEST(ClusterSpec, TheMinimaMustFitUnderTheClustersMaximum) {
  const Error error = refused(
      "provider: {type: local}\nmax_workers: 3\navailable_node_types:\n"
      "  a: {resources: {CPU: 1}, min_workers: 2}\n  b: {resources: {CPU: 1}, min_workers: 2}\n");
  EXPECT_EQ(error.message, "the types' min_workers add up to 4, but max_workers is 3");
  EXPECT_EQ(error.where, "c.yaml:2:14");
}

TEST(ClusterSpec, JsonGoesThereAndBack) {
  const ClusterSpec spec = read(kTwoTypes);
  EXPECT_EQ(cluster_spec_from_json(nlohmann::json::parse(to_json(spec).dump())), spec);
  EXPECT_THROW(cluster_spec_from_json(nlohmann::json::object()), Error);
  EXPECT_THROW(cluster_spec_from_json(nlohmann::json::array()), Error);
}

TEST(ClusterSpec, OnlyWhatMakesANodeChangesItsHash) {
  const ClusterSpec spec = read(kTwoTypes);
  const NodeType& small = spec.types.at("small");
  const std::string hash = launch_hash(spec, small);
  NodeType more = small;
  more.max_workers = 9;
  more.min_where = "elsewhere";
  EXPECT_EQ(launch_hash(spec, more), hash);
  more.resources.set(kCpu, 3000);
  EXPECT_NE(launch_hash(spec, more), hash);
  ClusterSpec open = spec;
  open.isolation = Isolation::kNone;
  EXPECT_NE(launch_hash(open, small), hash);
  EXPECT_NE(launch_hash(spec, spec.types.at("gpu-big")), hash);
}

constexpr const char* kHosts = R"(cluster_name: lab
provider:
  type: local
  head_ip: 10.0.0.1
  worker_ips: [10.0.0.2, 10.0.0.3]
setup_commands: [echo a]
head_setup_commands: [echo b]
)";

TEST(ClusterSpec, HostsAreMachinesWithAHeadAmongThem) {
  const ClusterSpec spec = read(kHosts);
  EXPECT_EQ(spec.head_type, "local.cluster.node");
  const NodeType& type = spec.types.at(spec.head_type);
  EXPECT_EQ(type.min_workers, 2);
  EXPECT_TRUE(type.resources.empty());
  EXPECT_EQ(node_stem(type), "worker");
  EXPECT_NE(runtime_hash(spec, type, true), runtime_hash(spec, type, false));
}

// How Ray's files keep work off a head: what is not named is the machine's own.
TEST(ClusterSpec, AZeroDeniesAndDoesNotMeanUnspecified) {
  const std::string types = R"(
available_node_types:
  head: {resources: {CPU: 0}, max_workers: 0}
  worker: {resources: {CPU: 0, license: 1}, max_workers: 2}
head_node_type: head
provider: {type: external, command: [cloud]}
cluster_name: c
)";
  const ClusterSpec spec = read(types);
  const NodeType& head = spec.types.at("head");
  EXPECT_TRUE(head.resources.empty());
  EXPECT_EQ(head.denied, std::vector<std::string>{"CPU"});
  EXPECT_TRUE(spec.types.at("worker").denied.empty()) << "its resources are the whole of it";
  EXPECT_EQ(cluster_spec_from_json(to_json(spec)), spec);
  NodeType open = head;
  open.denied.clear();
  EXPECT_NE(launch_hash(spec, open), launch_hash(spec, head));
}

TEST(ClusterSpec, HashesSayWhatAChangeTouches) {
  const ClusterSpec spec = read(kHosts);
  const NodeType& type = spec.types.at(spec.head_type);
  const auto hashes = [&](const std::string& text, const std::string& contents = {}) {
    const ClusterSpec next = read_cluster_spec(text, "c.yaml", contents);
    const NodeType& now = next.types.at(next.head_type);
    return std::pair(launch_hash(next, now) != launch_hash(spec, type), now.runtime != type.runtime);
  };
  EXPECT_EQ(hashes(kHosts + std::string("max_workers: 1\n")), std::pair(false, false));
  EXPECT_EQ(hashes(kHosts + std::string("worker_setup_commands: [echo c]\n")), std::pair(false, true));
  EXPECT_EQ(hashes(kHosts + std::string("login_shells: no\n")), std::pair(false, true));
  EXPECT_EQ(hashes(kHosts, "other contents"), std::pair(false, true));
  EXPECT_EQ(hashes(kHosts + std::string("auth: {ssh_user: somebody}\n")), std::pair(true, false));
}

constexpr const char* kDocker = R"(cluster_name: lab
provider: {type: external, command: [cloud], rack: 12}
auth: {ssh_user: me, ssh_port: 2222}
docker: {image: i, container_name: box, use_podman: true, worker_run_options: [-x]}
file_mounts: {/srv/a: ./a}
setup_commands: [echo all]
max_workers: 3
head_node_type: h
available_node_types:
  h: {node_config: {size: s}, max_workers: 0}
  w: {node_config: {size: l}, labels: {zone: a}}
  v: {node_config: {size: xl}}
)";

TEST(ClusterSpec, CompilesHowNodesAreMade) {
  const ClusterSpec spec = read(kDocker);
  ASSERT_EQ(spec.recipes.size(), 2u) << "one for the head, one that all workers share";
  EXPECT_EQ(recipe_for(spec, "w", false), recipe_for(spec, "v", false));
  const NodeRecipe& worker = spec.recipes.at(recipe_for(spec, "w", false));
  EXPECT_EQ(worker.cluster, "lab");
  EXPECT_EQ(worker.ssh_user, "me");
  EXPECT_EQ(worker.ssh_port, 2222);
  EXPECT_TRUE(worker.fresh_machine);
  EXPECT_EQ(worker.mounts, std::vector<std::string>{"/srv/a"});
  EXPECT_EQ(worker.commands.setup, std::vector<std::string>{"echo all"});
  ASSERT_TRUE(worker.container);
  EXPECT_EQ(worker.container->container.name, "box");
  EXPECT_TRUE(worker.container->use_podman);
  EXPECT_NE(worker, spec.recipes.at(recipe_for(spec, "h", true)));
  EXPECT_EQ(spec.types.at("w").node_config, R"({"size":"l"})");
  EXPECT_EQ(spec.types.at("w").labels.at("zone"), "a");
  EXPECT_NE(spec.provider_config.find("\"rack\":12"), std::string::npos);
  EXPECT_EQ(recipe_for(spec, "nothing", false), "");
  EXPECT_EQ(cluster_spec_from_json(nlohmann::json::parse(to_json(spec).dump())), spec);
  EXPECT_TRUE(read(kTwoTypes).recipes.empty()) << "processes beside the head need none";
}

TEST(ClusterSpec, ARecipeIsInAnotherPlaceWhenItsContainerIs) {
  const ClusterSpec spec = read(kDocker);
  const NodeRecipe recipe = spec.recipes.at(recipe_for(spec, "w", false));
  NodeRecipe other = recipe;
  other.container->container.image = "another";
  other.ssh_port = 1;
  EXPECT_TRUE(other.same_place(recipe)) << "made anew by the same name";
  EXPECT_NE(recipe_id(other), recipe_id(recipe));
  other.container->container.name = "crate";
  EXPECT_FALSE(other.same_place(recipe));
  other.container.reset();
  EXPECT_FALSE(other.same_place(recipe));
  EXPECT_FALSE(recipe.same_place(other));
}

constexpr const char* kMoney = R"(provider: {type: external, command: [cloud], availability_zone: "z1,z2"}
autoscaling:
  max_workers: 9
  spot: only
  on_demand_base: 2
  price_cap: 1.5
  budget_per_hour: 12
  budget: 400
  launch_concurrency: 3
  consolidate_after: 10m
head_type: small
node_types:
  small: {resources: {CPU: 4}, price_per_hour: 0.2, spot: true, spot_price_per_hour: 0.05, idle_timeout: 30s}
  plain: {resources: {CPU: 4}}
)";

TEST(ClusterSpec, KnowsPricesMarketsAndBudgets) {
  const ClusterSpec spec = read(kMoney);
  EXPECT_EQ(spec.scaling.spot, SpotPolicy::kOnly);
  EXPECT_EQ(spec.scaling.on_demand_base, 2);
  EXPECT_EQ(spec.scaling.price_cap, 1.5);
  EXPECT_EQ(spec.scaling.budget_per_hour, 12);
  EXPECT_EQ(spec.scaling.budget, 400);
  EXPECT_EQ(spec.scaling.budget_where, "c.yaml:7:20");
  EXPECT_EQ(spec.scaling.launch_concurrency, 3);
  EXPECT_EQ(spec.scaling.consolidate_after, Duration(10min));
  EXPECT_EQ(spec.types.at("small").idle_timeout, Duration(30s));
  const std::vector<Offering> both = {{"z1", Market::kSpot, 0.05},
                                      {"z1", Market::kOnDemand, 0.2},
                                      {"z2", Market::kSpot, 0.05},
                                      {"z2", Market::kOnDemand, 0.2}};
  EXPECT_EQ(spec.types.at("small").offerings, both);
  EXPECT_EQ(spec.types.at("plain").offerings.size(), 2u);
  EXPECT_EQ(cluster_spec_from_json(to_json(spec)), spec);
}

TEST(ClusterSpec, WithoutAWordThereIsOneOfferingOfUnknownPrice) {
  const ClusterSpec spec = read(kTwoTypes);
  EXPECT_TRUE(spec.types.at("small").offerings.empty());
  EXPECT_EQ(spec.scaling.spot, SpotPolicy::kPrefer);
  EXPECT_FALSE(spec.scaling.budget_per_hour || spec.scaling.price_cap || spec.scaling.consolidate_after);
}

TEST(ClusterSpec, RefusesAnUnknownSpotPolicyAndNoLaunchAtAll) {
  const std::string rest = "\nprovider: {type: local}\nnode_types: {a: {resources: {CPU: 1}, max_workers: 1}}\n";
  EXPECT_EQ(refused("autoscaling: {spot: maybe}" + rest).hint, "write prefer, only or never");
  EXPECT_EQ(refused("autoscaling: {launch_concurrency: 0}" + rest).where, "c.yaml:1:35");
}

TEST(ClusterSpec, SaysHowAdaptiveJobsShare) {
  const std::string rest = "\nprovider: {type: local}\nnode_types: {a: {resources: {CPU: 1}, max_workers: 1}}\n";
  const ClusterSpec spec =
      read("adaptive: {policy: fair, max_slowdown: 3, least_utility: 0.4, utility_band: \"0.35:0.65\"}" + rest);
  EXPECT_EQ(spec.adaptive.policy, AdaptivePolicy::kFair);
  EXPECT_EQ(spec.adaptive.max_slowdown, 3);
  EXPECT_EQ(spec.adaptive.least_utility, 0.4);
  EXPECT_EQ(spec.adaptive.utility_band, std::pair(0.35, 0.65));
  EXPECT_EQ(cluster_spec_from_json(to_json(spec)), spec);
  EXPECT_EQ(read("lease: 2m" + rest).adaptive, AdaptiveSettings{});
  EXPECT_EQ(refused("adaptive: {policy: greedy}" + rest).hint, "write goodput or fair");
  EXPECT_EQ(refused("adaptive: {max_slowdown: 0.5}" + rest).where, "c.yaml:1:26");
  EXPECT_EQ(refused("adaptive: {least_utility: 2}" + rest).where, "c.yaml:1:27");
  for (const char* band : {"0.6:0.3", "0.3", "a:b", "0:2", "-1:1"})
    EXPECT_EQ(refused("adaptive: {utility_band: \"" + std::string(band) + "\"}" + rest).where, "c.yaml:1:26") << band;
}

TEST(ClusterSpec, SurvivesJson) {
  for (const char* text : {kTwoTypes, kHosts}) {
    const ClusterSpec spec = read(text);
    EXPECT_EQ(cluster_spec_from_json(to_json(spec)), spec);
  }
}

}  // namespace
}  // namespace rubato
