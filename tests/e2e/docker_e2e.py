#!/usr/bin/env python3
"""`docker:` in a cluster file: each machine has a dockerd of its own, and nodes live in containers."""
import unittest

import dockerd
from harness import RUBATO, wait_until
from machines_testing import MachinesCase
from terminal import Terminal


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

    def close_machines(self):
        for service in self.docker.values():
            service.stop()
        super().close_machines()

    def inside(self, name, *words):
        return self.docker[name].cli("exec", "box", *words).stdout

    def check_commands_inside(self):
        """exec, attach and Ray's submit: in the container unless told otherwise."""
        self.assertEqual(self.rubato("exec", "cluster.yaml", "cat /etc/image; exit 5", code=5).stdout, "rubato-test\n")
        for where, seen in (("docker", "rubato-test"), ("host", "a machine"), ("auto", "rubato-test")):
            done = self.rubato("exec", "local", "--run-env", where, "cat /etc/image 2>/dev/null || echo a machine")
            self.assertEqual(done.stdout.strip(), seen)
        self.assertIn("expected auto, host or docker", self.rubato("exec", "local", "--run-env", "moon", "true",
                                                                   code=2).stderr)
        script = self.script("cat /etc/image; echo $1\n", "job.sh")
        # The image has no python: a script of that name is enough to see where it runs, and with what.
        self.docker["head"].cli("exec", "box", "sh", "-c", "printf '#!/bin/sh\\nexec sh \"$@\"\\n' > /bin/python; "
                                "chmod +x /bin/python")
        self.assertEqual(self.rubato("submit", "cluster.yaml", script, "argument").stdout, "rubato-test\nargument\n")
        at = lambda *words: Terminal([RUBATO, "attach", "local", *words], self.environment(), self.folder)
        for words, where in (([], "rubato-test"), (["--node", "worker-1"], "rubato-test"),
                             (["--tmux"], "rubato-test"), (["--run-env", "host"], "is-a-machine")):
            with at(*words) as screen:
                screen.type("cat /etc/image || echo is-a''-machine; echo $RUBATO_CLUSTER-''ends\r")
                screen.expect(where)
                screen.expect("local-ends")
                screen.type("exit 4\r")
                self.assertEqual(screen.end(), 0 if "--tmux" in words else 4, screen.shown)
        self.assertIn("is-42-", self.rubato("exec", "local", "rubato version >/dev/null && echo is-$((40+2))-").stdout)

    def check_files_inside(self):
        """rsync-up and -down mean the container's files."""
        data = self.folder / "data"
        (data / "sub").mkdir(parents=True)
        (data / "sub/x").write_text("x")
        (data / "y y").write_text("y")
        self.rubato("rsync-up", "cluster.yaml", "data", "~/data")
        self.assertEqual(self.inside("head", "sh", "-c", "cat /root/data/sub/x '/root/data/y y'"), "xy")
        self.assertFalse((self.hosts["head"].home / "data").exists())
        (data / "y y").unlink()
        self.rubato("rsync_up", "cluster.yaml", "data", "~/data", "-A", "--delete")
        for name in self.docker:
            self.assertEqual(self.inside(name, "ls", "/root/data"), "sub\n", name)
        self.rubato("rsync-up", "cluster.yaml", "data/sub/x", "/opt/new/one")
        self.assertEqual(self.inside("head", "cat", "/opt/new/one"), "x")
        self.rubato("rsync-up", "cluster.yaml", "--run-env", "host", "data/sub/x", "~/on-the-host")
        self.assertEqual((self.hosts["head"].home / "on-the-host").read_text(), "x")
        self.docker["head"].cli("exec", "box", "sh", "-c", "echo back > /root/data/z")
        self.rubato("rsync-down", "cluster.yaml", "~/data", "back")
        self.assertEqual((self.folder / "back/z").read_text() + (self.folder / "back/sub/x").read_text(), "back\nx")
        # Without paths: the file_mounts, on every node with -A.
        self.assertEqual(self.inside("w1", "cat", "/srv/mounted/a"), "1")
        (self.mounted / "a").write_text("2")
        self.rubato("rsync-up", "cluster.yaml", "-A")
        for name in self.docker:
            self.assertEqual(self.inside(name, "cat", "/srv/mounted/a"), "2", name)
        (self.mounted / "a").write_text("1")
        self.docker["head"].cli("exec", "box", "sh", "-c", "echo made there > /srv/mounted/b")
        self.rubato("rsync-down", "cluster.yaml")
        self.assertEqual((self.mounted / "b").read_text(), "made there\n")
        self.assertEqual((self.mounted / "a").read_text(), "2")
        (self.mounted / "b").unlink()
        (self.mounted / "a").write_text("1")

    def test_nodes_live_in_containers(self):
        self.mounted = self.folder / "mounted"
        self.mounted.mkdir()
        (self.mounted / "a").write_text("1")
        head, worker = self.hosts["head"].address, self.hosts["w1"].address
        self.write_file(
            f"{{type: local, head_ip: {head}, worker_ips: [{worker}]}}",
            "docker:\n"
            f"  image: {dockerd.IMAGE}\n"
            "  container_name: box\n"
            "  pull_before_run: false\n"
            "  run_options: [-e FROM_OPTIONS=yes]\n"
            "initialization_commands: ['touch ~/on-the-machine']\n"
            f"file_mounts: {{/srv/mounted: {self.mounted}}}\n"
            "setup_commands: ['cat /etc/image > ~/inside; echo $FROM_OPTIONS >> ~/inside']\n")
        self.rubato("up", "-y", "cluster.yaml")
        nodes = self.json("status")["nodes"]
        self.assertEqual([node["phase"] for node in nodes], ["up", "up"], nodes)
        for name, service in self.docker.items():
            self.assertEqual(service.containers(), ["box"], name)
            self.assertEqual(service.cli("exec", "box", "cat", "/root/inside").stdout, "rubato-test\nyes\n")
            self.assertIn("rubato", service.cli("top", "box").stdout)  # the agent is inside
            self.assertTrue((self.hosts[name].home / "on-the-machine").exists())
        self.check_commands_inside()
        self.check_files_inside()
        before = {name: service.cli("inspect", "-f", "{{.Id}}", "box").stdout for name, service in self.docker.items()}
        self.rubato("up", "-y", "cluster.yaml")
        after = {name: service.cli("inspect", "-f", "{{.Id}}", "box").stdout for name, service in self.docker.items()}
        self.assertEqual(before, after)  # nothing has changed: nothing is made anew
        self.rubato("down", "-y", "cluster.yaml")
        for name, service in self.docker.items():
            wait_until(lambda: not service.containers(), lambda: f"the end of {service.containers()} on {name}")


    def file_with(self, container):
        head, worker = self.hosts["head"].address, self.hosts["w1"].address
        self.write_file(
            f"{{type: local, head_ip: {head}, worker_ips: [{worker}]}}",
            f"docker: {{image: {dockerd.IMAGE}, container_name: {container}, pull_before_run: false}}\n")

    def test_a_container_that_is_renamed_leaves_none_behind(self):
        self.file_with("old")
        self.rubato("up", "-y", "cluster.yaml")
        self.file_with("new")
        self.rubato("up", "-y", "cluster.yaml")
        for name, service in self.docker.items():
            wait_until(lambda: service.containers() == ["new"], lambda: f"{service.containers()} on {name}")
        wait_until(lambda: [node["phase"] for node in self.json("status")["nodes"]] == ["up", "up"],
                   lambda: f"nodes that are up: {self.json('status')['nodes']}")
        # And without a container: what runs beside it now is all that there is.
        head, worker = self.hosts["head"].address, self.hosts["w1"].address
        self.write_file(f"{{type: local, head_ip: {head}, worker_ips: [{worker}]}}", "")
        self.rubato("up", "-y", "cluster.yaml")
        for name, service in self.docker.items():
            wait_until(lambda: not service.containers(), lambda: f"the end of {service.containers()} on {name}")
        self.rubato("down", "-y", "cluster.yaml")


class PodmanTest(MachinesCase):
    names = ("head",)

    def setUp(self):
        super().setUp()
        reason = dockerd.Podman.why_not()
        if reason:
            self.skipTest(reason)
        self.podman = dockerd.Podman(self.hosts["head"]).__enter__()

    def close_machines(self):
        if hasattr(self, "podman"):
            self.podman.stop()
        super().close_machines()

    def test_podman_does_the_same(self):
        self.write_file(
            f"{{type: local, head_ip: {self.hosts['head'].address}, worker_ips: []}}",
            f"docker: {{image: {dockerd.IMAGE}, container_name: box, use_podman: true, pull_before_run: false}}\n"
            "setup_commands: ['cat /etc/image > ~/inside']\n")
        self.rubato("up", "-y", "cluster.yaml")
        self.assertEqual([node["phase"] for node in self.json("status")["nodes"]], ["up"])
        self.assertEqual(self.podman.containers(), ["box"])
        self.assertEqual(self.podman.cli("exec", "box", "cat", "/root/inside"), "rubato-test\n")
        self.assertEqual(self.rubato("exec", "cluster.yaml", "cat /etc/image; exit 3", code=3).stdout, "rubato-test\n")
        (self.folder / "file").write_text("sent")
        self.rubato("rsync-up", "cluster.yaml", "file", "~/file")
        self.assertEqual(self.podman.cli("exec", "box", "cat", "/root/file"), "sent")
        with Terminal([RUBATO, "attach", "local"], self.environment(), self.folder) as screen:
            screen.type("cat /etc/image; exit 6\r")
            screen.expect("rubato-test")
            self.assertEqual(screen.end(), 6, screen.shown)
        made = self.podman.cli("inspect", "-f", "{{.Id}}", "box")
        self.assertIn("nothing to change", self.rubato("up", "-y", "cluster.yaml").stderr)
        self.assertEqual(self.podman.cli("inspect", "-f", "{{.Id}}", "box"), made)
        self.rubato("down", "-y", "cluster.yaml")
        wait_until(lambda: not self.podman.containers(), lambda: f"the end of {self.podman.containers()}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
