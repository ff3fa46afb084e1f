// The rows of provider: it is open in Ray, so that these are the keys we know, not all there may be.
#include "model/config_keys_tables.h"

namespace rubato {

const std::vector<ConfigKey>& provider_keys() {  // tidy: long: a table
  using enum KeyType;
  using enum KeyEra;
  static const std::vector<ConfigKey> rows{
      {"provider", kSection, "", "where machines come from"},
      {"provider.type", kText, "", "aws, gcp, azure, kubernetes, vsphere, aliyun, local or external"},
      {"provider.module", kText, "", "the Python class of an external provider, package.Class", kShared, "", "",
       "external"},
      {"provider.command", kTexts, "",
       "the program of an external provider and its arguments: JSON lines on its standard input and output", kOurs, "",
       "", "external"},
      {"provider.use_internal_ips", kBool, "false", "reach the nodes at their private addresses"},
      {"provider.use_external_head_ip", kBool, "false",
       "reach the head at its public address although use_internal_ips is set"},
      {"provider.disable_node_updaters", kBool, "false", "start nodes, but do not set them up over SSH"},
      {"provider.disable_launch_config_check", kBool, "false", "keep nodes whose configuration has changed"},
      {"provider.foreground_node_launch", kBool, "false",
       "launch nodes one after the other; Rubato never blocks on a launch"},
      {"provider.worker_liveness_check", kBool, "true", "replace nodes that do not answer"},
      {"provider._config_cache_path", kAny, "", "written by Ray into its cache", kWritten},
      // this machine and hosts of one's own
      {"provider.isolation", kText, "none", "none, or netns for a network namespace for each node of this machine",
       kOurs, "", "", "local"},
      {"provider.head_ip", kHost, "", "the head's host: [user@]host[:port]", kShared, "", "", "local"},
      {"provider.worker_ips", kHosts, "[]", "the workers' hosts: [user@]host[:port] each", kShared, "", "", "local"},
      {"provider.external_head_ip", kText, "", "the head's address for people outside, when head_ip is a private one",
       kShared, "", "", "local"},
      {"provider.coordinator_address", kText, "",
       "host:port of a server that lends hosts; it takes the place of head_ip and worker_ips", kShared, "", "",
       "local"},
      // clouds
      {"provider.region", kText, "us-west-2 (aws), us-west1 (gcp)", "the cloud's region", kShared, "", "",
       "aws gcp aliyun"},
      {"provider.availability_zone", kText, "any (aws), us-west1-a (gcp)",
       "zones to try in order, with commas between; gcp takes one", kShared, "", "", "aws gcp azure aliyun"},
      {"provider.cache_stopped_nodes", kBool, "true (aws), false (others)",
       "stop nodes instead of ending them, and start them again later", kShared, "", "", "aws gcp azure aliyun"},
      {"provider.security_group", kSection, "", "the security group that is made for the nodes", kShared, "", "",
       "aws"},
      {"provider.security_group.GroupName", kText, "", "its name"},
      {"provider.security_group.IpPermissions", kAny, "", "rules in EC2's words, added to ours"},
      {"provider.key_pair", kSection, "", "the EC2 key pair", kShared, "", "", "aws"},
      {"provider.key_pair.key_name", kText, "", "its name; made when it does not exist"},
      {"provider.aws_credentials", kOpaque, "",
       "keys instead of the usual chain of credentials; better kept out of files", kShared, "", "", "aws"},
      {"provider.cloudwatch", kOpaque, "", "agent, dashboard and alarms for CloudWatch", kShared, "", "", "aws"},
      {"provider.project_id", kText, "", "the project; gcp cannot do without", kShared, "", "", "gcp"},
      {"provider.gcp_credentials", kSection, "", "credentials instead of the usual chain", kShared, "", "", "gcp"},
      {"provider.gcp_credentials.type", kText, "", "credentials_token or service_account"},
      {"provider.gcp_credentials.credentials", kText, "", "the token, or the account's JSON"},
      {"provider._has_tpus", kAny, "", "written by Ray into its cache", kWritten},
      {"provider.location", kText, "", "the region", kShared, "", "", "azure"},
      {"provider.resource_group", kText, "", "the resource group", kShared, "", "", "azure"},
      {"provider.subscription_id", kText, "", "the subscription", kShared, "", "", "azure"},
      {"provider.tags", kTextMap, "", "tags for all that is made", kShared, "", "", "azure"},
      {"provider.msi_identity_id", kText, "", "the managed identity of the nodes", kShared, "", "", "azure"},
      {"provider.msi_identity_principal_id", kText, "", "its principal", kShared, "", "", "azure"},
      {"provider.subnet_id", kText, "", "the subnet of the nodes", kShared, "", "", "azure"},
      {"provider.access_key", kText, "", "the access key", kShared, "", "", "aliyun"},
      {"provider.access_key_secret", kText, "", "its secret; better kept out of files", kShared, "", "", "aliyun"},
      {"provider.zone_id", kText, "", "the zone", kShared, "", "", "aliyun"},
      {"provider.cidr_block", kText, "", "the addresses of the network that is made", kShared, "", "", "aliyun"},
      {"provider.key_name", kText, "ray", "the key pair's name", kShared, "", "", "aliyun"},
      {"provider.security_group_rule", kAny, "", "rules of the security group that is made", kShared, "", "", "aliyun"},
      {"provider.vsphere_config", kOpaque, "", "credentials, frozen VM and GPUs of vSphere", kShared, "", "",
       "vsphere"},
      {"provider.namespace", kText, "", "the Kubernetes namespace", kShared, "", "", "kubernetes"},
      {"provider.autoscaler_service_account", kOpaque, "", "a manifest to make", kShared, "", "", "kubernetes"},
      {"provider.autoscaler_role", kOpaque, "", "a manifest to make", kShared, "", "", "kubernetes"},
      {"provider.autoscaler_role_binding", kOpaque, "", "a manifest to make", kShared, "", "", "kubernetes"},
      {"provider.services", kAny, "", "manifests of services to make", kShared, "", "", "kubernetes"},
  };
  return rows;
}

}  // namespace rubato
