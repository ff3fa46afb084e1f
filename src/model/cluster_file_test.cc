// Sections: provider, login, docker, files, commands, jobs.
#include "model/cluster_file.h"

#include "model/cluster_file_testing.h"

namespace rubato {
namespace {

using Words = std::vector<std::string>;

TEST(ClusterFile, BothSpellingsGiveTheSameValues) {
  const ClusterFile ray = fine(
      "cluster_name: c\nprovider: {type: aws}\nmax_workers: 7\nidle_timeout_minutes: 1.5\nupscaling_speed: "
      "2\nfile_mounts: {/a: ~/b}\n"
      "rsync_exclude: [x]\nrsync_filter: [.gitignore]\ncluster_synced_files: [/s]\nfile_mounts_sync_continuously: yes\n"
      "initialization_commands: [i]\nsetup_commands: [s]\nhead_setup_commands: [h]\nworker_setup_commands: [w]\n");
  const ClusterFile ours = fine(
      "cluster_name: c\nprovider: {type: aws}\nautoscaling: {max_workers: 7, idle_timeout: 90s, upscaling_speed: 2}\n"
      "files: {mounts: {/a: ~/b}, exclude: [x], ignore_files: [.gitignore], synced_from_head: [/s], sync_continuously: "
      "true}\n"
      "setup: {host: [i], all: [s], head: [h], worker: [w]}\n");
  EXPECT_EQ(resolved_values(ray), resolved_values(ours));
  EXPECT_EQ(ray.autoscaling.idle_timeout, 90s);
  EXPECT_EQ(ray.files.mounts.at("/a"), "~/b");
  EXPECT_TRUE(ray.files.sync_continuously);
  EXPECT_EQ(ray.commands.setup_worker, Words{"w"});
  EXPECT_EQ(ray.findings.size(), 0u);
}

TEST(ClusterFile, KnowsWhereEachValueStands) {
  const ClusterFile file =
      fine("provider: {type: aws}\nmax_workers: 7\nnode_types:\n  a:\n    max_workers: 3\nhead_type: a\n");
  EXPECT_EQ(file.place("autoscaling.max_workers"), "c.yaml:2:14");
  EXPECT_EQ(file.place("node_types.a.max_workers"), "c.yaml:5:18");
  EXPECT_EQ(file.place("node_types.a.min_workers"), "c.yaml:4:3");
  EXPECT_EQ(file.place("docker.image"), "");
}

TEST(ClusterFile, ProvidersHaveTheirDefaults) {
  const ClusterFile aws = fine("provider: {type: aws, availability_zone: 'a, b'}\n");
  EXPECT_EQ(aws.provider.region, "us-west-2");
  EXPECT_EQ(aws.provider.zones, (Words{"a", "b"}));
  EXPECT_TRUE(aws.provider.cache_stopped_nodes);
  EXPECT_EQ(aws.auth.ssh_user, "ubuntu");
  EXPECT_EQ(aws.head_type, "ray.head.default");
  EXPECT_EQ(aws.types.at("ray.worker.default").max_workers, 2);
  const ClusterFile gcp = fine("provider: {type: gcp, project_id: p, region: r}\n");
  EXPECT_FALSE(gcp.provider.cache_stopped_nodes);
  EXPECT_EQ(gcp.types.at("ray_worker_small").resources.amounts.of(kCpu), 2000);
  EXPECT_TRUE(fine("provider: {type: gcp}\n").has(Severity::kUnfilled));
}

TEST(ClusterFile, HostsMayHaveUserAndPort) {
  const ClusterFile file =
      fine("provider: {type: local, head_ip: me@h0:2222, worker_ips: [10.0.0.1, '[::1]:22', 'fe80::1']}\n");
  EXPECT_EQ(*file.provider.head, (HostAddress{"me", "h0", 2222}));
  EXPECT_EQ(file.provider.workers[1], (HostAddress{"", "::1", 22}));
  EXPECT_EQ(file.provider.workers[2].host, "fe80::1");
  EXPECT_EQ(to_string(file.provider.workers[1]), "[::1]:22");
  EXPECT_FALSE(file.provider.this_machine());
  for (const char* bad : {"", "-x", "a b", "h:", "h:0", "h:70000", "@h", "-u@h", "[::1", "h;x", "[::1]:"}) {
    EXPECT_FALSE(parse_host_address(bad)) << bad;
  }
}

TEST(ClusterFile, OpenProvidersKeepTheirKeys) {
  const ClusterFile file = fine("cluster_name: c\nprovider: {type: external, module: a.B, rack: 12}\n");
  EXPECT_EQ(file.provider.options.at("rack"), 12);
  EXPECT_EQ(file.findings.size(), 0u);
  const ClusterFile aws = fine("provider: {type: aws, something_else: 1}\n");
  EXPECT_EQ(said(aws, Severity::kWarning), Words{"1:23 provider has the unknown key \"something_else\""});
}

TEST(ClusterFile, DockerForEachNode) {
  const ClusterFile file = fine(
      "provider: {type: aws}\ndocker: {image: i, worker_image: w, run_options: [a], head_run_options: [h], "
      "worker_run_options: [x]}\n"
      "node_types:\n  h: {}\n  w: {}\n  v: {docker: {worker_image: v, pull_before_run: false, worker_run_options: "
      "[y]}}\nhead_type: h\n");
  EXPECT_EQ(*container_for(file, "h", true), (NodeContainer{"i", "rubato", true, {"a", "h"}}));
  EXPECT_EQ(*container_for(file, "w", false), (NodeContainer{"w", "rubato", true, {"a", "x"}}));
  EXPECT_EQ(*container_for(file, "v", false), (NodeContainer{"v", "rubato", false, {"a", "y"}}));
  const ClusterFile off = fine("provider: {type: aws}\ndocker: {image: \"\", container_name: \"\"}\n");
  EXPECT_FALSE(container_for(off, off.head_type, true));
}

TEST(ClusterFile, CommandsForEachNode) {
  const ClusterFile file = fine(
      "provider: {type: aws}\ninitialization_commands: [i]\nsetup_commands: [s]\nhead_setup_commands: [h]\n"
      "worker_setup_commands: [w]\nhead_start_ray_commands: [mine, ray stop, ray start --head, later]\n"
      "available_node_types:\n  a: {}\n  b: {worker_setup_commands: [], initialization_commands: "
      "[bi]}\nhead_node_type: a\n");
  EXPECT_EQ(commands_for(file, "a", true).setup, (Words{"s", "h"}));
  EXPECT_EQ(commands_for(file, "a", false).setup, (Words{"s", "w"}));
  EXPECT_EQ(commands_for(file, "b", false).setup, Words());
  EXPECT_EQ(commands_for(file, "b", false).host, Words{"bi"});
  EXPECT_EQ(commands_for(file, "a", true).start.before, Words{"mine"});
  EXPECT_EQ(commands_for(file, "a", true).start.after, Words{"later"});
  EXPECT_TRUE(commands_for(file, "a", true).login_shells);
  EXPECT_EQ(said(file, Severity::kNote), Words{"6:1 Rubato's agent starts instead of: ray stop | ray start --head"});
}

TEST(ClusterFile, CommandsMayDoWithoutTheProfile) {
  const ClusterFile file = fine("provider: {type: aws}\nlogin_shells: no\navailable_node_types:\n  a: {}\n");
  EXPECT_FALSE(commands_for(file, "a", false).login_shells);
}

TEST(ClusterFile, JobsHaveDefaults) {
  const ClusterFile file = fine(
      "provider: {type: aws}\njobs: {workers: '2:4', resources: {GPU: 1}, env: {A: 1}, timeout: 2h, priority: -5}\n");
  EXPECT_EQ(file.jobs.workers, (WorkerSizes{2, 4, 1}));
  EXPECT_EQ(file.jobs.env.at("A"), "1");
  EXPECT_EQ(file.jobs.timeout, 2h);
  EXPECT_EQ(file.jobs.priority, -5);
}

TEST(ClusterFile, ThisMachineIsReadAsRubatoUpReadsIt) {
  const ClusterFile file =
      fine("provider: {type: local, isolation: netns}\nnode_types:\n  a: {resources: {CPU: 2}, min_workers: 2}\n");
  EXPECT_TRUE(file.provider.this_machine());
  EXPECT_EQ(file.types.at("a").max_workers, 2);
  EXPECT_EQ(file.autoscaling.max_workers, 2);
  EXPECT_EQ(file.head_type, "");
  EXPECT_EQ(errors(read_text("provider: {type: local}\nnode_types:\n  a: {resources: {CPU: 2}}\n")),
            Words{"3:6 the node type a would never have a node"});
}

}  // namespace
}  // namespace rubato
