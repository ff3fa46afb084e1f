#!/usr/bin/env python3
"""`docker:` in a cluster file: each machine has a dockerd of its own, and nodes live in containers."""
import unittest

import dockerd
from harness import wait_until
from machines_testing import MachinesCase


class Docker(MachinesCase):
    def setUp(self):
        super().setUp()
        self.docker = {}
        for host in self.hosts:
            service = dockerd.Dockerd.on(host)
            try:
                self.docker[host.name] = service.__enter__()
            except dockerd.Unusable as reason:
                self.skipTest(str(reason))
            self.addCleanup(service.stop)  # before the machines go

    def test_nodes_live_in_containers(self):
        head, worker = self.hosts["head"].address, self.hosts["w1"].address
        self.write_file(
            f"{{type: local, head_ip: {head}, worker_ips: [{worker}]}}",
            "docker:\n"
            f"  image: {dockerd.IMAGE}\n"
            "  container_name: box\n"
            "  pull_before_run: false\n"
            "  run_options: [-e FROM_OPTIONS=yes]\n"
            "initialization_commands: ['touch ~/on-the-machine']\n"
            "setup_commands: ['cat /etc/image > ~/inside; echo $FROM_OPTIONS >> ~/inside']\n")
        self.rubato("up", "-y", "cluster.yaml", timeout=170)
        nodes = self.json("status")["nodes"]
        self.assertEqual([node["phase"] for node in nodes], ["up", "up"], nodes)
        for name, service in self.docker.items():
            self.assertEqual(service.containers(), ["box"], name)
            self.assertEqual(service.cli("exec", "box", "cat", "/root/inside").stdout, "rubato-test\nyes\n")
            self.assertIn("rubato", service.cli("top", "box").stdout)  # the agent is inside
            self.assertTrue((self.hosts[name].home / "on-the-machine").exists())
        # A command runs inside as well.
        self.assertEqual(self.rubato("exec", "cluster.yaml", "cat /etc/image").stdout.strip(), "rubato-test")
        before = {name: service.cli("inspect", "-f", "{{.Id}}", "box").stdout for name, service in self.docker.items()}
        self.rubato("up", "-y", "cluster.yaml", timeout=170)
        after = {name: service.cli("inspect", "-f", "{{.Id}}", "box").stdout for name, service in self.docker.items()}
        self.assertEqual(before, after)  # nothing has changed: nothing is made anew
        self.rubato("down", "-y", "cluster.yaml")
        for name, service in self.docker.items():
            wait_until(lambda: not service.containers(), lambda: f"the end of {service.containers()} on {name}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
