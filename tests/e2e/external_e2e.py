#!/usr/bin/env python3
"""Clusters whose machines come from a program of one's own: `provider: {type: external}`."""
import json
import unittest

from harness import wait_until
from machines_testing import MachinesCase


class External(MachinesCase):
    def test_the_example_in_python_makes_a_cluster(self):
        head, worker = self.hosts["head"].address, self.hosts["w1"].address
        self.use_example("static.py")
        self.write_file(f"{{type: external, command: [./static.py], head: {head}, machines: [{worker}]}}")
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

    def test_a_program_that_is_wrong_says_so_before_anything_is_made(self):
        self.write_file("{type: external, command: [./nothing.py]}")
        self.assertIn("nothing.py is not there", self.rubato("config", "check", "cluster.yaml").stdout)
        done = self.rubato("up", "-y", "cluster.yaml", code=2)
        self.assertIn("nothing.py", done.stderr)
        self.use_example("static.py")
        self.write_file("{type: external, command: [./static.py], machines: [10.0.0.1]}")
        done = self.rubato("up", "-y", "cluster.yaml", code=2)
        self.assertIn("provider names no machine for the head", done.stderr)
        self.assertIn("add head: HOST", done.stderr)
        (self.folder / "loud.py").write_text("#!/bin/sh\nread line\necho Hello there\n")
        (self.folder / "loud.py").chmod(0o755)
        self.write_file("{type: external, command: [./loud.py]}")
        done = self.rubato("up", "-y", "cluster.yaml", code=1)
        self.assertIn("wrote a line that is not JSON: Hello there", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
