"""What the tests of clusters on machines of their own share: hosts, a file for them, and an end that leaves nothing."""
import shutil

import cluster_harness
import hosts as machines
from harness import ROOT


class MachinesCase(cluster_harness.ClusterCase):
    names = ("head", "w1")

    def setUp(self):
        super().setUp()
        reason = machines.why_not()
        if reason:
            self.skipTest(reason)
        self.hosts = machines.Hosts(self.folder / "hosts", list(self.names))
        # After tearDown, which ends the cluster over SSH.
        self.addCleanup(self.hosts.close)

    def write_file(self, provider, more=""):
        """A file with a head and up to two workers; `provider` is the section, as one line of YAML."""
        (self.folder / "cluster.yaml").write_text(
            f"cluster_name: local\nprovider: {provider}\n"
            f"auth: {{ssh_user: root, ssh_private_key: {self.hosts.key}}}\n"
            "max_workers: 1\n"
            "available_node_types:\n"
            "  head: {resources: {CPU: 1}, node_config: {}, max_workers: 0}\n"
            "  worker: {resources: {CPU: 1}, node_config: {}, min_workers: 1, max_workers: 1}\n"
            f"head_node_type: head\n{more}")

    def use_example(self, name):
        shutil.copy(ROOT / "examples/providers" / name, self.folder / name)

    def daemons(self, name):
        """What of ours runs on a machine."""
        return [line for line in self.hosts[name].processes() if "rubato" in line and "docker" not in line.split()[0]]


