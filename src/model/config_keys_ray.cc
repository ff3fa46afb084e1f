// Ray's words for our keys, those of today and those of old.
#include "model/config_keys_tables.h"

namespace rubato {

const std::vector<ConfigKey>& ray_keys() {
  using enum KeyType;
  using enum KeyEra;
  static const std::vector<ConfigKey> rows{
      {"max_workers", kCount, "2; the number of worker_ips on hosts of your own",
       "the most workers over all types; the head is not counted", kRay, "autoscaling.max_workers"},
      {"upscaling_speed", kNumber, "1.0", "launches under way at once, as a multiple of the nodes that run; at least 5",
       kRay, "autoscaling.upscaling_speed"},
      {"idle_timeout_minutes", kNumber, "5", "a node without work for so many minutes is removed, down to min_workers",
       kRay, "autoscaling.idle_timeout"},
      {"available_node_types", kTypes, "the provider's: a head and a worker type", "kinds of nodes, by name", kRay,
       "node_types"},
      {"head_node_type", kText, "Ray's default, or the only one", "the node type of the head", kRay, "head_type"},
      {"node_types.*.idle_timeout_s", kNumber, "the cluster's",
       "seconds without work after which a node of this type is removed", kRay, "node_types.*.idle_timeout"},
      {"node_types.*.initialization_commands", kCommands, "the cluster's", "instead of the cluster's", kRay,
       "node_types.*.setup.host"},
      {"node_types.*.worker_setup_commands", kCommands, "the cluster's",
       "instead of the cluster's setup_commands and worker_setup_commands", kRay, "node_types.*.setup.worker"},
      {"file_mounts", kTextMap, "{}", "path on the nodes: path here. Folders are made equal, deletions too", kRay,
       "files.mounts"},
      {"cluster_synced_files", kTexts, "[]", "paths that the head copies to workers; missing ones are skipped", kRay,
       "files.synced_from_head"},
      {"file_mounts_sync_continuously", kBool, "false", "copy changes to workers while the cluster runs", kRay,
       "files.sync_continuously"},
      {"rsync_exclude", kTexts, "[]", "rsync patterns that are never copied", kRay, "files.exclude"},
      {"rsync_filter", kTexts, "[]", "names of files such as .gitignore whose patterns hold in their folders", kRay,
       "files.ignore_files"},
      {"initialization_commands", kCommands, "[]", "first, on the host itself, outside docker", kRay, "setup.host"},
      {"setup_commands", kCommands, "[]; Ray's own default installs Ray", "on head and workers", kRay, "setup.all"},
      {"head_setup_commands", kCommands, "[]", "after setup_commands, on the head", kRay, "setup.head"},
      {"worker_setup_commands", kCommands, "[]", "after setup_commands, on workers", kRay, "setup.worker"},
      {"head_start_ray_commands", kCommands, "[]",
       "start Ray on the head; ray stop and ray start become the start of our agent, the others stay", kRay,
       "start.head"},
      {"worker_start_ray_commands", kCommands, "[]", "as head_start_ray_commands, on workers", kRay, "start.worker"},
      {"no_restart", kAny, "", "written by ray up --no-restart into the head's copy", kWritten},
      // legacy
      {"head_node", kOpaque, "the provider's", "the node_config of the head", kLegacy, "",
       "write a node type in node_types, and its name as head_type"},
      {"worker_nodes", kOpaque, "the provider's", "the node_config of all workers", kLegacy, "",
       "write a node type in node_types"},
      {"min_workers", kCount, "0", "workers that are always there", kLegacy, "autoscaling.min_workers",
       "write min_workers in the node type; autoscaling.min_workers on hosts of your own"},
      {"initial_workers", kCount, "0", "workers started with the cluster", kLegacy, "autoscaling.initial_workers",
       "write autoscaling.initial_workers, or min_workers in the node type"},
      {"autoscaling_mode", kText, "default", "default, or aggressive for all launches at once", kLegacy, "",
       "write autoscaling.upscaling_speed: 99999 for aggressive, nothing for default"},
      {"target_utilization_fraction", kNumber, "0.8",
       "how full the cluster is before it grows: 0.8 is a speed of 1/0.8 - 1", kLegacy, "",
       "write autoscaling.upscaling_speed"},
      {"worker_default_node_type", kText, "", "the type of workers that nobody asked for by name", kLegacy, "",
       "write min_workers in that node type"},
      {"available_instance_types", kAny, "", "instance types of EC2 with resources and max_workers", kLegacy, "",
       "write node types with node_config: {InstanceType: ...}"},
  };
  return rows;
}

}  // namespace rubato
