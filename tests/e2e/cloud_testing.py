"""What tests of clusters in a cloud share: its machines are hosts.py's, this one is the laptop."""
import hosts as machines
from cluster_harness import ClusterCase
from harness import wait_until


class CloudCase(ClusterCase):
    cluster = "lab"
    settings = {}
    names = ("m1", "m2", "m3")
    node_label = "rubato-node"

    def make_cloud(self):
        """A CloudMachines of self.hosts."""
        raise NotImplementedError

    def living(self):
        """{id: instance} of those that come up or run, with their labels."""
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        reason = machines.why_not()
        if reason:
            self.skipTest(reason)
        self.hosts = machines.Hosts(self.folder / "hosts", list(self.names), booted=False)
        self.cloud = self.make_cloud()
        self.write_file()

    def assert_nothing_left(self):
        if hasattr(self, "cloud"):
            self.cloud.close()
            self.hosts.close()
        super().assert_nothing_left()

    def of_node(self, node):
        """The living instance of a node: (id, what the cloud says of it)."""
        for name, one in self.living().items():
            if one["labels"].get(self.node_label) == node:
                return name, one
        return None

    def assert_not_on_machines(self, *secrets):
        """What is the person's alone is on no machine."""
        wanted = " ".join(f"-e '{each}'" for each in secrets)
        for one in self.living().values():
            found = self.hosts[one["host"]].run(f"grep -rlF {wanted} /root /home /tmp || true")
            self.assertEqual(found, "", one["host"])

    def wait_for_status(self, node, label, status):
        wait_until(lambda: self.of_node(node)[1]["labels"].get(label) == status,
                   lambda: f"the status of {self.of_node(node)}")
