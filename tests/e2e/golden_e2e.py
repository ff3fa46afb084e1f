#!/usr/bin/env python3
"""What the commands for clusters of other machines print, word for word: tests/e2e/golden/*.txt."""
import unittest

import golden
import hosts as machines
import remote_testing


@unittest.skipIf(machines.why_not(), machines.why_not())
class GoldenTest(golden.GoldenMixin, remote_testing.RemoteCase):
    def test_the_life_of_a_cluster(self):
        self.make("head", "w1")
        cluster = self.folder / "cluster.yaml"
        (self.folder / "code").mkdir()
        (self.folder / "code/a").write_text("1")
        lines = [f"file_mounts: {{~/code: {self.folder / 'code'}}}", "setup_commands: ['echo set up']"]
        cluster.write_text(self.text(*lines))
        self.assert_golden("not-up", "\n".join([
            self.say("clusters"), self.say("config", "check", "cluster.yaml"), self.say("status", "lab", code=1),
            self.say("exec", "cluster.yaml", "true", code=1), self.say("attach", "cluster.yaml", code=1),
            self.say("monitor", "cluster.yaml", code=1), self.say("get-head-ip", "cluster.yaml"),
            self.say("get-worker-ips", "cluster.yaml", code=1), self.say("rsync-up", "cluster.yaml", code=1),
            self.say("down", "cluster.yaml", "-y")]))
        self.assert_golden("doctor", self.say("doctor", "cluster.yaml"))
        self.assert_golden("up", "\n".join([
            self.say("up", "--dry-run", "cluster.yaml"), self.say("up", "-y", "cluster.yaml"),
            self.say("up", "-y", "cluster.yaml"), self.say("up", "--dry-run", "cluster.yaml")]))
        self.assert_golden("look", "\n".join([
            self.say("status", "cluster.yaml"), self.say("clusters"), self.say("get-head-ip", "lab"),
            self.say("get-worker-ips", "lab"), self.say("monitor", "lab", "--no-follow", sort=True)]))
        (self.folder / "code/a").write_text("2")
        self.assert_golden("change", "\n".join([
            self.say("up", "--dry-run", "cluster.yaml"), self.say("rsync-up", "cluster.yaml", "-A"),
            self.say("up", "--dry-run", "--min-workers", "0", "cluster.yaml")]))
        self.assert_golden("down", "\n".join([
            self.say("down", "-y", "--workers-only", "cluster.yaml"), self.say("down", "-y", "cluster.yaml"),
            self.say("down", "-y", "lab"), self.say("clusters"), self.say("status", "lab", code=1),
            self.say("get-head-ip", "lab"), self.say("attach", "lab", code=1)]))

    def test_what_is_wrong_is_said(self):
        self.make("head", "w1")
        cluster = self.folder / "cluster.yaml"
        cluster.write_text(self.text("setup_comands: [x]", "max_workers: many", "docker: {imag: x}"))
        wrong = [self.say("config", "check", "cluster.yaml", code=2), self.say("up", "-y", "cluster.yaml", code=2)]
        cluster.write_text(self.text("setup_commands: ['pip install {your_package}']"))
        wrong += [self.say("config", "check", "cluster.yaml", code=2)]
        self.assert_golden("config-check", "\n".join(wrong))
        self.hosts["w1"].cut()
        cluster.write_text(self.text())
        self.assert_golden("doctor-broken", self.say("doctor", "cluster.yaml", code=1))
        self.hosts["w1"].mend()
        self.hosts["w1"].wait_for_sshd()
        cluster.write_text(self.text("worker_setup_commands: ['echo before; echo boom >&2; exit 3']"))
        self.assert_golden("setup-fails", "\n".join([
            self.say("exec", "cluster.yaml", "echo never printed", "--start", code=1),
            self.say("exec", "cluster.yaml", "no-such-program", code=127),
            self.say("logs", "--node", "worker-1")]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
