#!/usr/bin/env python3
"""Clusters whose machines come from a program of one's own: `provider: {type: external}`."""
import json
import unittest

import cloud
import hosts as machines
from cluster_harness import ClusterCase
from harness import wait_until
from machines_testing import MachinesCase


TYPES = """max_workers: 1
available_node_types:
  head: {resources: {CPU: 1}, node_config: {}, max_workers: 0}
  worker: {resources: {CPU: 1}, node_config: {}, min_workers: 1, max_workers: 1}
head_node_type: head
"""


class External(MachinesCase):
    def test_the_example_in_python_makes_a_cluster(self):
        head, worker = self.hosts["head"].address, self.hosts["w1"].address
        self.use_example("static.py")
        self.write_file(f"{{type: external, command: [./static.py], head: {head}, machines: [{worker}]}}", TYPES)
        self.rubato("up", "-y", "cluster.yaml")
        nodes = {node["id"]: node for node in self.json("status")["nodes"]}
        self.assertEqual({node["phase"] for node in nodes.values()}, {"up"}, nodes)
        self.assertEqual(len(nodes), 2, nodes)
        self.assertEqual(self.rubato("get-head-ip", "cluster.yaml").stdout.strip(), head)
        self.assertEqual(self.rubato("exec", "cluster.yaml", "hostname").stdout.strip(), "head")
        # The program on the head remembers who has what, and a second `up` changes nothing.
        taken = self.hosts["head"].run("cat ~/.local/state/rubato/clusters/local/provider-state/taken.json")
        worker_node = next(name for name in nodes if name != "head")
        self.assertEqual(json.loads(taken)["nodes"], {worker_node: worker})
        self.rubato("up", "-y", "cluster.yaml")
        again = {node["id"] for node in self.json("status")["nodes"]}
        self.assertEqual(again, set(nodes))
        self.rubato("down", "-y", "cluster.yaml")
        for name in self.names:
            wait_until(lambda: not self.daemons(name), lambda: f"the end of {self.daemons(name)}")
        for name in self.names:
            keys = self.hosts[name].run("cat ~/.ssh/authorized_keys").splitlines()
            self.assertEqual(len(keys), 1, keys)  # the head's own key is taken back

    def test_a_head_of_no_cpus_gets_no_workers(self):
        head, worker = self.hosts["head"].address, self.hosts["w1"].address
        self.use_example("static.py")
        self.write_file(f"{{type: external, command: [./static.py], head: {head}, machines: [{worker}]}}",
                        TYPES.replace("head: {resources: {CPU: 1}", "head: {resources: {CPU: 0}"))
        self.rubato("up", "-y", "cluster.yaml")
        resources = {node["type"]: node["resources"] for node in self.json("status")["nodes"]}
        self.assertNotIn("CPU", resources["head"])
        self.assertGreater(resources["head"]["memory"], 0, "what the file does not name is the machine's own")
        self.wait_for_job(self.submit("--no-python", "--", "hostname"), "succeeded")
        self.assertRegex(self.rubato("events").stdout, "with 1 worker on worker-1")

    def test_a_program_that_is_wrong_says_so_before_anything_is_made(self):
        self.write_file("{type: external, command: [./nothing.py]}", TYPES)
        self.assertIn("nothing.py is not there", self.rubato("config", "check", "cluster.yaml").stdout)
        done = self.rubato("up", "-y", "cluster.yaml", code=2)
        self.assertIn("nothing.py", done.stderr)
        self.use_example("static.py")
        self.write_file("{type: external, command: [./static.py], machines: [10.0.0.1]}", TYPES)
        done = self.rubato("up", "-y", "cluster.yaml", code=2)
        self.assertIn("provider names no machine for the head", done.stderr)
        self.assertIn("add head: HOST", done.stderr)
        (self.folder / "loud.py").write_text("#!/bin/sh\nread line\necho Hello there\n")
        (self.folder / "loud.py").chmod(0o755)
        self.write_file("{type: external, command: [./loud.py]}", TYPES)
        done = self.rubato("up", "-y", "cluster.yaml", code=1)
        self.assertIn("wrote a line that is not JSON: Hello there", done.stderr)

    def test_doctor_greets_the_program_and_looks_at_its_machines(self):
        head, worker = self.hosts["head"].address, self.hosts["w1"].address
        self.use_example("static.py")
        self.write_file(f"{{type: external, command: [./static.py], head: {head}, machines: [{worker}]}}", TYPES)
        report = self.json("doctor", "cluster.yaml")
        self.assertEqual(report["provider"]["checks"][0]["state"], "ok", report)
        self.assertIn(worker, [one["host"] for one in report["hosts"]])
        (self.folder / "static.py").write_text("#!/bin/sh\necho no such zone >&2; exit 3\n")
        broken = self.rubato("doctor", "cluster.yaml", code=1).stdout
        self.assertRegex(broken, r"program +fail .*exit code 3")
        self.assertIn("no such zone", broken)
        (self.folder / "static.py").unlink()
        self.assertRegex(self.rubato("doctor", "cluster.yaml", code=1).stdout, r"program +fail .*static\.py")


class FromAClass(ClusterCase):
    """Ray's `module: package.Class`: machines that a class of Ray's kind makes at a cloud of the test's own."""
    cluster = "lab"

    def setUp(self):
        super().setUp()
        reason = machines.why_not()
        if reason:
            self.skipTest(reason)
        self.hosts = machines.Hosts(self.folder / "hosts", ["m1", "m2", "m3"], booted=False)
        self.cloud = cloud.Cloud(self.hosts)
        (self.folder / "lab_cloud.py").write_text(cloud.PROVIDER)
        self.write_file()

    def assert_nothing_left(self):
        if hasattr(self, "cloud"):
            self.cloud.close()
            self.hosts.close()
        super().assert_nothing_left()

    def write_file(self, module="lab_cloud.LabProvider"):
        (self.folder / "cluster.yaml").write_text(
            f"cluster_name: lab\nprovider: {{type: external, module: {module}, url: {self.cloud.url}}}\n"
            f"auth: {{ssh_user: root, ssh_private_key: {self.hosts.key}}}\nmax_workers: 2\n"
            "available_node_types:\n"
            "  head: {resources: {CPU: 1}, node_config: {size: small}, max_workers: 0}\n"
            "  worker: {resources: {CPU: 1}, node_config: {size: large}, min_workers: 1, max_workers: 2}\n"
            "head_node_type: head\n")

    def test_a_class_of_rays_kind_makes_and_ends_a_cluster(self):
        checked = self.json("doctor", "cluster.yaml")
        self.assertIn("lab_cloud.LabProvider answers", checked["provider"]["checks"][0]["found"])
        self.assertEqual(self.cloud.made, 0)

        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "-y", "cluster.yaml").stderr)
        kinds = {name: (one["tags"]["ray-node-type"], one["tags"]["rubato-node"], one["size"])
                 for name, one in self.cloud.running().items()}
        self.assertEqual(kinds, {"m1": ("head", "head", "small"), "m2": ("worker", "worker-1", "large")})
        self.assertEqual(self.rubato("get-head-ip", "cluster.yaml").stdout, self.hosts["m1"].address + "\n")
        self.assertEqual(self.rubato("get-worker-ips", "cluster.yaml").stdout, self.hosts["m2"].address + "\n")
        self.assertEqual(self.rubato("exec", "cluster.yaml", "hostname").stdout, "m1\n")
        again = self.rubato("up", "-y", "cluster.yaml")
        self.assertEqual((again.stderr, self.cloud.made), ("nothing to change: 'lab' is up with 2 nodes\n", 2))
        more = self.rubato("up", "-y", "cluster.yaml", "--min-workers", 2)
        self.assertIn("'lab' is up with 3 nodes", more.stderr)
        self.assertEqual(sorted(self.cloud.running()), ["m1", "m2", "m3"])
        keys = (self.hosts["m3"].home / ".ssh/authorized_keys").read_text()
        self.assertIn("rubato-lab", keys)  # the head's own; the person's private key is on no machine
        private = self.hosts.key.read_text().splitlines()[3]  # the first lines are those of every such key
        for host in self.hosts:
            self.assertEqual(host.run(f"grep -rlF -- {private} /root /tmp || true"), "", host.name)
        self.rubato("down", "-y", "cluster.yaml")
        self.assertEqual((self.cloud.running(), self.cloud.made), ({}, 3))
        self.assertIn("is not running", self.rubato("down", "-y", "lab").stderr)

    def test_a_command_that_goes_on_alone_leaves_no_machine_on(self):
        # The class has no machine for itself to be run on once the head's is off: so that one goes off, as Ray's does,
        # and the next `down` tells the class.
        started = self.rubato("exec", "cluster.yaml", "--start", "--stop", "--tmux",
                              "until [ -e go-on ]; do sleep 0.1; done")
        self.assertIn("the cluster ends with it", started.stderr)
        head = self.hosts["m1"]
        head.run("printf '#!/bin/sh\\ntouch /root/off\\n' > off.sh; chmod +x off.sh; "
                 "mount --bind off.sh $(readlink -f /usr/sbin/shutdown); touch go-on")
        wait_until(lambda: (head.home / "off").exists(), lambda: f"the power button, have {head.processes()}")
        self.assertEqual(sorted(self.cloud.running()), ["m1"])  # its worker is gone
        head.crash()
        done = self.rubato("down", "-y", "cluster.yaml")
        self.assertIn("its machines were ended by lab_cloud.LabProvider", done.stderr)
        self.assertEqual(self.cloud.running(), {})

    def test_a_class_that_is_not_there_is_a_row_of_doctor(self):
        self.write_file("lab_cloud.Other")
        done = self.rubato("doctor", "cluster.yaml", code=1)
        self.assertRegex(done.stdout, r"program +fail .*lab_cloud.*Other")
        self.assertIn("fix", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
