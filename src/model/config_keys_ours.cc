// The rows of our own form, without the provider's.
#include "model/config_keys_tables.h"

namespace rubato {
namespace {

using enum KeyType;
using enum KeyEra;

std::vector<ConfigKey> cluster_rows() {
  return {
      {"cluster_name", kText, "default", "names the cluster, its nodes and its folder here"},
      {"lease", kDuration, "2m", "how long a job may train on nodes that do not reach the head", kOurs},
      {"notice", kSection, "", "where nodes hear that their machine will be taken away", kOurs},
      {"notice.watch", kText, "auto: the provider's", "the service that tells it: auto, ec2, gcp or none", kOurs},
      {"notice.rebalance", kBool, "no", "drain nodes that EC2 recommends to replace, though they may stay", kOurs},
      {"notice.file", kText, "",
       "a file on the node that tells it, as of rubato run --notice; %n is the name of the node", kOurs},
      {"notice.command", kShell, "", "a command on the node; it ends with 0 when there is a notice, and prints it",
       kOurs},
      {"autoscaling", kSection, "", "how many nodes there may be, and when they come and go", kOurs},
      {"autoscaling.max_workers", kCount, "2; the number of worker_ips on hosts of your own",
       "the most workers over all types; the head is not counted", kOurs},
      {"autoscaling.min_workers", kCount, "0; the number of worker_ips on hosts of your own",
       "workers that are always there, of the only worker type", kOurs},
      {"autoscaling.initial_workers", kCount, "0", "workers started with the cluster, which may leave again when idle",
       kOurs},
      {"autoscaling.upscaling_speed", kNumber, "1.0",
       "launches under way at once, as a multiple of the nodes that run; at least 5", kOurs},
      {"autoscaling.idle_timeout", kDuration, "5m", "a node without work for so long is removed, down to min_workers",
       kOurs},
      {"autoscaling.spot", kText, "prefer",
       "prefer: spot machines where they are not dearer, on demand where spot cannot be had; only; never", kOurs},
      {"autoscaling.on_demand_base", kCount, "0", "so many workers are on demand before the first one on spot", kOurs},
      {"autoscaling.price_cap", kNumber, "none", "no node that costs more than this per hour", kOurs},
      {"autoscaling.budget_per_hour", kNumber, "none", "no more nodes than this pays for, all together", kOurs},
      {"autoscaling.budget", kNumber, "none", "no more nodes once all nodes of this cluster have cost so much", kOurs},
      {"autoscaling.launch_concurrency", kCount, "none", "launches under way at once, of all types", kOurs},
      {"autoscaling.consolidate_after", kDuration, "never",
       "a busy node of elastic jobs is emptied when others have room and it pays within this time", kOurs},
      {"adaptive", kSection, "", "how workers are shared out among adaptive jobs: docs/adaptive.md", kOurs},
      {"adaptive.policy", kText, "goodput",
       "goodput: least work left first; fair: the job that is slowest against its fair share", kOurs},
      {"adaptive.max_slowdown", kNumber, "none",
       "a job that is slower than with its fair share by more than this factor comes first", kOurs},
      {"adaptive.least_utility", kNumber, "0.5",
       "nodes are added while each of their workers does so much of what a first one does", kOurs},
      {"adaptive.utility_band", kText, "none", "AdaptDL's rule for the number of nodes instead: LOW:HIGH, 0.35:0.65",
       kOurs},
      {"head_type", kText, "the type named like Ray's default, or the only one", "the node type of the head", kOurs},
      {"node_types", kTypes, "the provider's: a head and a worker type", "kinds of nodes, by name", kOurs},
      {"node_types.*.node_config", kOpaque, "{}", "the machine, in the cloud's own words"},
      {"node_types.*.resources", kResources, "what the provider knows of the machine",
       "amounts by name: CPU, GPU, memory in bytes, and your own"},
      {"node_types.*.min_workers", kCount, "0", "workers of this type that are always there"},
      {"node_types.*.max_workers", kCount, "0 for the head's type, else the cluster's",
       "the most workers of this type"},
      {"node_types.*.idle_timeout", kDuration, "the cluster's", "as autoscaling.idle_timeout, for this type", kOurs},
      {"node_types.*.priority", kInteger, "0", "of types that would do, the highest is taken"},
      {"node_types.*.price_per_hour", kNumber, "estimated from the resources", "what a node costs, on demand", kOurs},
      {"node_types.*.spot", kBool, "as node_config says", "it can be had on the spot market too", kOurs},
      {"node_types.*.spot_price_per_hour", kNumber, "estimated from price_per_hour", "what a node costs there", kOurs},
      {"node_types.*.labels", kTextMap, "{}", "words about the node for jobs to ask for"},
      {"node_types.*.setup", kSection, "", "commands that take the place of the cluster's", kOurs},
      {"node_types.*.setup.host", kCommands, "the cluster's", "instead of setup.host", kOurs},
      {"node_types.*.setup.worker", kCommands, "the cluster's", "instead of setup.all and setup.worker", kOurs},
      {"node_types.*.docker", kSection, "", "differences from docker"},
      {"node_types.*.docker.pull_before_run", kBool, "the cluster's", "pull the image even if it is there"},
      {"node_types.*.docker.worker_image", kText, "the cluster's", "the image of workers of this type"},
      {"node_types.*.docker.worker_run_options", kCommands, "the cluster's", "more options for docker run"},
  };
}

std::vector<ConfigKey> machine_rows() {
  return {
      {"auth", kSection, "", "how to log in to the nodes"},
      {"auth.ssh_user", kText, "ubuntu; on hosts of your own, you", "the user on the nodes"},
      {"auth.ssh_port", kCount, "22", "the port of sshd", kOurs},
      {"auth.ssh_private_key", kText, "one that is made for the cluster",
       "the file of the private key; ~ is your home"},
      {"auth.ssh_public_key", kText, "the private key's name with .pub", "the file of the public key"},
      {"auth.ssh_proxy_command", kShell, "", "the ProxyCommand of ssh; the head does not get it"},
      {"auth.ssh_proxy_jump", kText, "", "the ProxyJump of ssh: [user@]host[:port]", kOurs},
      {"docker", kSection, "", "run commands and workers in a container; off without an image"},
      {"docker.image", kText, "", "the image of all nodes"},
      {"docker.head_image", kText, "image", "the image of the head"},
      {"docker.worker_image", kText, "image", "the image of workers"},
      {"docker.container_name", kText, "rubato", "the container's name"},
      {"docker.pull_before_run", kBool, "true", "pull the image even if it is there"},
      {"docker.run_options", kCommands, "[]", "more options for docker run"},
      {"docker.head_run_options", kCommands, "[]", "more options on the head"},
      {"docker.worker_run_options", kCommands, "[]", "more options on workers"},
      {"docker.disable_automatic_runtime_detection", kBool, "false", "do not look for the NVIDIA runtime"},
      {"docker.disable_shm_size_detection", kBool, "false", "do not set --shm-size from the memory"},
      {"docker.use_podman", kBool, "false", "podman instead of docker"},
      {"files", kSection, "", "what is copied to the nodes", kOurs},
      {"files.mounts", kTextMap, "{}", "path on the nodes: path here. Folders are made equal, deletions too", kOurs},
      {"files.synced_from_head", kTexts, "[]", "paths that the head copies to workers; missing ones are skipped",
       kOurs},
      {"files.sync_continuously", kBool, "false", "copy changes to workers while the cluster runs", kOurs},
      {"files.exclude", kTexts, "[]", "rsync patterns that are never copied", kOurs},
      {"files.ignore_files", kTexts, "[]", "names of files such as .gitignore whose patterns hold in their folders",
       kOurs},
      {"setup", kSection, "", "commands for a new node, each in a shell of its own", kOurs},
      {"setup.host", kCommands, "[]", "first, on the host itself, outside docker", kOurs},
      {"setup.all", kCommands, "[]", "then, on head and workers", kOurs},
      {"setup.head", kCommands, "[]", "after setup.all, on the head", kOurs},
      {"setup.worker", kCommands, "[]", "after setup.all, on workers", kOurs},
      {"login_shells", kBool, "yes", "run set-up commands and the agent in a shell with the person's profile", kOurs},
      {"start", kSection, "", "commands around the start of Rubato's agent, each time it starts", kOurs},
      {"start.head", kCommands, "[]",
       "on the head, in the shell that then starts the agent: it inherits their environment", kOurs},
      {"start.head_after", kCommands, "[]", "on the head, once the agent is up", kOurs},
      {"start.worker", kCommands, "[]", "as start.head, on workers", kOurs},
      {"start.worker_after", kCommands, "[]", "as start.head_after, on workers", kOurs},
      {"metadata", kOpaque, "{}", "yours; kept, never read"},
  };
}

std::vector<ConfigKey> job_rows() {
  return {
      {"jobs", kSection, "", "defaults for rubato submit on this cluster", kOurs},
      {"jobs.workers", kText, "1", "N, MIN:MAX or MIN:MAX:STEP", kOurs},
      {"jobs.resources", kResources, "{CPU: 1}", "of each worker", kOurs},
      {"jobs.env", kTextMap, "{}", "variables for each worker", kOurs},
      {"jobs.python", kText, "the node's", "the interpreter", kOurs},
      {"jobs.priority", kInteger, "0", "higher first, -1000 to 1000", kOurs},
      {"jobs.max_restarts", kCount, "3", "restarts after failures", kOurs},
      {"jobs.timeout", kDuration, "none", "the longest a job may take", kOurs},
      {"jobs.grace", kDuration, "30s", "between SIGTERM and SIGKILL when it is stopped", kOurs},
  };
}

}  // namespace

const std::vector<ConfigKey>& our_keys() {
  static const std::vector<ConfigKey> rows = [] {
    std::vector<ConfigKey> all = cluster_rows();
    for (auto part : {machine_rows(), job_rows()}) all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return rows;
}

}  // namespace rubato
