// What is wrong is said at its place, with the fix, all at once.
#include "model/cluster_file_testing.h"

namespace rubato {
namespace {

using Words = std::vector<std::string>;

struct Bad {
  const char* text;
  const char* error;  // line:column message
  const char* hint;
};

TEST(ClusterFileErrors, PointAtTheWord) {
  const Bad cases[] = {
      {"", "1:1 the cluster file is empty, or not a mapping", "cluster_name"},
      {"a: [", "2:1 not valid YAML", ""},
      {"apiVersion: ray.io/v1\nkind: RayCluster\n", "2:7 this is a Kubernetes manifest (RayCluster)", "provider"},
      {"provider: {type: awss}\n", "1:18 the provider type 'awss' is unknown", "did you mean aws?"},
      {"provider: {}\n", "1:11 provider lacks the key \"type\"", "aws"},
      {"provider: 3\n", "1:11 provider must be a mapping", ""},
      {"provider: {type: aws}\nmax_worker: 3\n", "2:1 the cluster file has the unknown key \"max_worker\"",
       "\"max_workers\""},
      {"provider: {type: aws}\nssh_user: x\n", "2:1 the cluster file has the unknown key \"ssh_user\"",
       "it belongs in auth"},
      {"provider: {type: aws}\nauth: {ssh_usr: x}\n", "2:8 auth has the unknown key \"ssh_usr\"", "ssh_user"},
      {"provider: {type: aws}\nmax_workers: two\n", "2:14 expected a whole number", ""},
      {"provider: {type: aws}\nmax_workers: -1\n", "2:14 -1 is not between 0 and 1000000000000", ""},
      {"provider: {type: aws}\nmax_workers: 1\nautoscaling: {max_workers: 2}\n",
       "3:15 \"autoscaling.max_workers\" says again what \"max_workers\" says in line 2", "keep one"},
      {"provider: {type: aws}\nidle_timeout_minutes: soon\n", "2:23 expected a number", ""},
      {"provider: {type: aws}\nsetup_commands: ls\n", "2:17 \"setup_commands\" must be a list", "- ls"},
      {"provider: {type: aws}\nsetup_commands:\n  - echo a: b\n", "3:5 this command is read as a mapping", "quotes"},
      {"provider: {type: aws}\ndocker: {container_name: c}\n", "2:26 docker names a container, but no image", "image"},
      {"provider: {type: aws}\ndocker: {head_image: h}\n", "2:22 docker has no worker_image", "worker_image"},
      {"provider: {type: aws}\nmax_workers: 1\nnode_types: {a: {min_workers: 2}}\n",
       "2:14 the types' min_workers add up to 2", "raise"},
      {"provider: {type: aws}\nnode_types: {a: {}, b: {}}\n", "2:1 the file does not say which node type is the head's",
       "head_type: one of a, b"},
      {"provider: {type: aws}\nhead_node_type: ab\navailable_node_types: {abc: {}, d: {}}\n",
       "2:17 the head's type 'ab' is not among", "abc"},
      {"provider: {type: aws}\nnode_types: {a b: {}}\n", "2:14 'a b' is not a name for a node type", "letters"},
      {"provider: {type: aws}\nnode_types: {a: {resources: {cpu: 1}}}\n", "2:35 the resource 'cpu' is spelled 'CPU'",
       "CPU"},
      {"provider: {type: aws}\nnode_types: {a: {resources: {CPU: -1}}}\n", "2:35 the amount of 'CPU' is negative", ""},
      {"provider: {type: aws}\nnode_types: {a: {resource: {}}}\n",
       "2:18 the node type has the unknown key \"resource\"", "resources"},
      {"provider: {type: aws}\nnode_types: {a: {}}\navailable_instance_types: {b: {}}\n",
       "3:1 \"available_instance_types\" and \"node_types\" both say", "remove"},
      {"provider: {type: aws}\ncluster_name: a/b\n", "2:15 'a/b' is not a name for a cluster", ""},
      {"provider: {type: external}\n", "1:11 an external provider needs a module or a command", "package.Class"},
      {"provider: {type: external, module: cls}\n", "1:36 the module 'cls' names no class", "package.Class"},
      {"provider: {type: local, worker_ips: [a]}\n", "1:25 worker_ips need a head_ip", "head_ip"},
      {"provider: {type: local, head_ip: 'a b'}\n", "1:34 'a b' is not a host", "user@host"},
      {"provider: {type: local, head_ip: a, worker_ips: [b, b]}\n", "1:53 the host b is there twice", ""},
      {"provider: {type: local, coordinator_address: 'h:1'}\n",
       "1:25 with a coordinator_address, max_workers is required", ""},
      {"provider: {type: aws}\nauth: {ssh_port: 0}\n", "2:18 0 is not between 1 and 65535", ""},
      {"provider: {type: aws}\nauth: {ssh_user: -oProxy}\n", "2:18 '-oProxy' cannot be given to ssh", ""},
      {"provider: {type: aws}\nautoscaling_mode: wild\n", "2:19 the autoscaling_mode 'wild' is unknown", "aggressive"},
      {"provider: {type: aws}\ntarget_utilization_fraction: 0\n", "2:30 target_utilization_fraction must be above 0",
       ""},
      {"provider: {type: aws}\njobs: {workers: many}\n", "2:17 'many' is not a number of workers", "2:8"},
      {"provider: {type: gcp, project_id: p}\nnode_types: {a: {node_config: {machineTyp: x}}}\n",
       "2:32 Google's instances.insert does not know \"machineTyp\"", "machineType"},
      {"provider: {type: aws}\ncluster_name: ${X}\n", "2:15 ${X} was never filled in", "shell"},
  };
  for (const Bad& bad : cases) {
    const ClusterFile file = read_text(bad.text);
    const Words all = errors(file);
    ASSERT_EQ(all.size(), 1u) << bad.text << ::testing::PrintToString(all);
    EXPECT_TRUE(all[0].starts_with(bad.error)) << all[0];
    for (const Finding& one : file.findings) {
      if (one.severity == Severity::kError) {
        EXPECT_NE(one.hint.find(bad.hint), std::string::npos) << one.hint;
      }
    }
  }
}

TEST(ClusterFileErrors, AllAtOnceInTheOrderOfTheFile) {
  const ClusterFile file = read_text(source_file("tests/data/cluster-files/broken/many.yaml"));
  EXPECT_EQ(errors(file).size(), 8u) << ::testing::PrintToString(errors(file));
  size_t line = 0;
  for (const Finding& one : file.findings) {
    EXPECT_LE(line, one.line);
    line = one.line;
  }
}

TEST(ClusterFileErrors, OfTwoEqualKeysTheLastCounts) {
  const ClusterFile file = fine("provider: {type: aws}\nsetup_commands: []\nsetup_commands: [x]\n");
  EXPECT_EQ(file.commands.setup_all, Words{"x"});
  EXPECT_EQ(said(file, Severity::kWarning), Words{"3:1 the key \"setup_commands\" appears twice, first in line 2"});
}

TEST(ClusterFileErrors, AFileThatNoHeadTakesIsNotReadAtAll) {
  const std::string start = "cluster_name: c\nprovider: {type: aws}\n";
  EXPECT_EQ(said(read_text(start + std::string(480 * 1024 - start.size(), '\n')), Severity::kError), Words());
  EXPECT_EQ(said(read_text(start + std::string(480 * 1024, '\n')), Severity::kError),
            Words{"1:1 the cluster file has 481 KiB; it may have 480 at most"});
}

}  // namespace
}  // namespace rubato
