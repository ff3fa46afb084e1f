#include "model/config_keys.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/text.h"
#include "model/cluster_file_testing.h"
#include "model/config_schema.h"

namespace rubato {
namespace {

TEST(ConfigKeys, TheTableHoldsTogether) {
  std::set<std::string_view> paths;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    EXPECT_FALSE(key.meaning.empty()) << key.path;
    if (!key.native.empty()) {
      const ConfigKey* ours = find_config_key(key.native);
      ASSERT_NE(ours, nullptr) << key.path;
      EXPECT_TRUE(ours->era == KeyEra::kOurs && ours->native.empty()) << key.path;
    }
    EXPECT_EQ(key.era == KeyEra::kLegacy, !key.advice.empty()) << key.path;
    EXPECT_TRUE(key.era != KeyEra::kRay || !key.native.empty()) << key.path;
    EXPECT_TRUE(key.type != KeyType::kSection || !config_keys_under(key.path).empty()) << key.path;
    if (!key.parent().empty() && key.parent() != "node_types.*") {
      const ConfigKey* parent = find_config_key(key.parent());
      ASSERT_NE(parent, nullptr) << key.path;
      EXPECT_EQ(parent->type, KeyType::kSection) << key.path;
    }
  }
}

// Of facts/ray-yaml-schema.md, which lists what Ray's schema and its providers take.
TEST(ConfigKeys, EveryKeyOfRaysSchemaIsThere) {
  constexpr std::string_view kKeys =
      "cluster_name max_workers upscaling_speed idle_timeout_minutes provider auth docker "
      "available_node_types head_node_type file_mounts cluster_synced_files file_mounts_sync_continuously "
      "rsync_exclude rsync_filter metadata initialization_commands setup_commands head_setup_commands "
      "worker_setup_commands head_start_ray_commands worker_start_ray_commands no_restart min_workers "
      "head_node worker_nodes initial_workers autoscaling_mode target_utilization_fraction "
      "worker_default_node_type available_instance_types node_types.*.node_config node_types.*.resources "
      "node_types.*.min_workers node_types.*.max_workers node_types.*.idle_timeout_s node_types.*.priority "
      "node_types.*.labels node_types.*.initialization_commands node_types.*.worker_setup_commands "
      "node_types.*.docker.pull_before_run node_types.*.docker.worker_image "
      "node_types.*.docker.worker_run_options auth.ssh_user auth.ssh_private_key auth.ssh_public_key "
      "auth.ssh_proxy_command docker.image docker.container_name docker.pull_before_run docker.run_options "
      "docker.head_image docker.head_run_options docker.worker_image docker.worker_run_options "
      "docker.disable_automatic_runtime_detection docker.disable_shm_size_detection docker.use_podman "
      "provider.type provider.module provider.use_internal_ips provider.use_external_head_ip "
      "provider.disable_node_updaters provider.disable_launch_config_check provider.foreground_node_launch "
      "provider.worker_liveness_check provider._config_cache_path provider.namespace provider.region "
      "provider.availability_zone provider.cache_stopped_nodes provider.security_group.GroupName "
      "provider.security_group.IpPermissions provider.key_pair.key_name provider.aws_credentials "
      "provider.cloudwatch provider.project_id provider.gcp_credentials.type "
      "provider.gcp_credentials.credentials provider._has_tpus provider.head_ip provider.worker_ips "
      "provider.coordinator_address provider.external_head_ip provider.location provider.resource_group "
      "provider.subscription_id provider.tags provider.msi_identity_id provider.msi_identity_principal_id "
      "provider.subnet_id";
  for (const std::string_view key : split(kKeys, ' ')) EXPECT_NE(find_config_key(key), nullptr) << key;
}

TEST(ConfigKeys, PeopleFindThem) {
  EXPECT_EQ(config_keys_called("max_workers").size(), 3u);
  EXPECT_EQ(config_keys_called("available_node_types.priority").front()->path, "node_types.*.priority");
  EXPECT_EQ(config_keys_called("node_types.*.labels").front()->path, "node_types.*.labels");
  EXPECT_EQ(config_keys_called("ssh_user").front()->path, "auth.ssh_user");
  EXPECT_TRUE(config_keys_called("nonsense").empty());
  EXPECT_EQ(nearest_config_key("idle_timeout_minute"), "idle_timeout_minutes");
  EXPECT_EQ(nearest_config_key("file.mounts"), "files.mounts");
}

TEST(ConfigKeys, DocumentsAreMadeFromTheTable) {
  EXPECT_EQ(config_schema().dump(2) + "\n", source_file("docs/cluster.schema.json")) << "make docs writes it again";
  EXPECT_EQ(config_keys_markdown(), source_file("docs/config-keys.md")) << "make docs writes it again";
}

TEST(ConfigKeys, ExplainSaysBothSpellings) {
  EXPECT_EQ(explain_key(*find_config_key("files.mounts")),
            "files.mounts: texts by name\n  path on the nodes: path here. Folders are made equal, deletions too\n"
            "  default: {}\n  known to: Rubato\n  in Ray's files: file_mounts\n");
  EXPECT_NE(explain_key(*find_config_key("head_node")).find("instead: write a node type"), std::string::npos);
}

}  // namespace
}  // namespace rubato
