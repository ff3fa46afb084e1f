#!/usr/bin/env python3
"""Agents and heads under the user's systemd where there is one: a real `systemd --user` and logind on machines of
hosts.py.

head: neither. w1: both, as after a login on any distribution. w2: a manager, but no logind, so nobody could say whether
what runs under it stays when the last login ends.
"""
import json
import shutil
import subprocess
import time
import unittest
from pathlib import Path

import dockerd
import hosts as machines
import remote_testing
from harness import wait_until

SYSTEMD = "/lib/systemd/systemd"
LOGIND = "/lib/systemd/systemd-logind"
CGROUPS = "/sys/fs/cgroup/systemd" if Path("/sys/fs/cgroup/systemd").exists() else "/sys/fs/cgroup"


def why_not():
    for program in (SYSTEMD, LOGIND, "dbus-daemon", "systemd-run"):
        if shutil.which(program) is None:
            return f"{program} is not installed: tools/install-packages.sh test"
    return machines.why_not()


def start_logind(host):
    host.run("mkdir -p /run/systemd/system /run/dbus /root/.var-systemd && "
             "mount --bind /root/.var-systemd /var/lib/systemd && setsid dbus-daemon --system --nopidfile --fork && "
             f"(setsid {LOGIND} </dev/null >/root/.logind.log 2>&1 &)")
    wait_until(lambda: "seat0" in host.run("loginctl list-seats 2>&1", check=False), "logind")


def start_manager(host, cgroup, target="basic.target"):
    """The user's systemd, in a cgroup of its own as logind would give it. "default.target": as after a boot."""
    host.run("mkdir -m 0700 -p /run/user/0 /run/systemd/system\n" + dockerd.MOUNT_CGROUPS.replace('exec "$@"', "") +
             f"mkdir -p {CGROUPS}/{cgroup} && echo $$ >{CGROUPS}/{cgroup}/cgroup.procs\n"
             "export XDG_RUNTIME_DIR=/run/user/0 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus\n"
             f"setsid {SYSTEMD} --user --unit={target} </dev/null >/root/.systemd.log 2>&1 &\n")
    ready = "XDG_RUNTIME_DIR=/run/user/0 systemctl --user is-system-running"
    wait_until(lambda: host.run(ready, check=False).strip() in ("running", "degraded"),
               lambda: (host.home / ".systemd.log").read_text())


def remove_cgroup(name):
    """What a manager leaves behind when its machine is gone."""
    top = Path(CGROUPS) / name
    end = time.monotonic() + 20
    while top.exists() and time.monotonic() < end:
        subprocess.run(["find", str(top), "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], capture_output=True)
        time.sleep(0.05)


@unittest.skipIf(why_not(), why_not())
class SystemdTest(remote_testing.RemoteCase):
    def assert_nothing_left(self):
        super().assert_nothing_left()
        for name in getattr(self, "cgroups", ()):
            remove_cgroup(name)

    def how(self, node):
        """What the set-up's log says of how the agent was started: once, perhaps after the agent has joined."""
        words = []

        def told():
            words[:] = self.rubato("logs", "--node", node).stdout.split("rubato-agent started ")
            return len(words) > 1

        wait_until(told, lambda: f"the start of the agent in {words}")
        self.assertEqual(len(words), 2, words)
        return words[1].split()[0]

    def units(self, name):
        return self.hosts[name].run("XDG_RUNTIME_DIR=/run/user/0 systemctl --user list-units 'rubato-*' --plain "
                                    "--no-legend | cut -d' ' -f1").split()

    def test_agents_live_in_the_users_systemd(self):
        self.make()
        self.cgroups = [f"{self.hosts.tag}-{name}" for name in ("w1", "w2")]
        start_logind(self.hosts["w1"])
        for name, cgroup in zip(("w1", "w2"), self.cgroups):
            start_manager(self.hosts[name], cgroup)
        self.assertIn("'lab' is up with 3 nodes", self.up(self.text()).stderr)
        nodes = {node["address"]: node["id"] for node in self.status()["nodes"]}
        self.assertEqual({name: self.how(nodes[self.hosts[name].address]) for name in ("w1", "w2")},
                         {"w1": "systemd", "w2": "daemon"})
        self.assertEqual(self.how("head"), "daemon")

        node = nodes[self.hosts["w1"].address]
        (unit,) = self.units("w1")
        self.assertRegex(unit, rf"^rubato-lab-{node}-\d+\.scope$")
        for pid in self.agents_on("w1"):
            self.assertIn(unit, self.hosts["w1"].run(f"cat /proc/{pid}/cgroup"))
        self.assertEqual(self.units("w2"), [])
        # It was made to stay when nobody is logged in.
        self.assertEqual(self.hosts["w1"].run("loginctl show-user root --property=Linger --value"), "yes\n")

        before = self.agents_on("w1")
        self.assertIn("nothing to change", self.up(self.text()).stderr)
        self.assertEqual((self.agents_on("w1"), self.units("w1")), (before, [unit]))
        # A new agent has a new scope. (With cgroups of version 1 a manager is not told that the old one is empty.)
        self.up(self.text(), "--restart-only")
        (newer,) = set(self.units("w1")) - {unit}
        self.assertNotEqual(self.agents_on("w1"), before)
        for pid in self.agents_on("w1"):
            self.assertIn(newer, self.hosts["w1"].run(f"cat /proc/{pid}/cgroup"))
        self.rubato("down", "lab", "-y")
        self.assertEqual([self.agents_on(name) for name in ("w1", "w2", "head")], [[], [], []])

    def head_document(self):
        """None while no head answers."""
        done = self.rubato("status", "--json", code=None)
        return json.loads(done.stdout)["cluster"]["head"] if done.returncode == 0 else None

    def wait_for_head(self, condition, what):
        def found():
            head = self.head_document()
            return head if head and head["supervisor"]["pid"] and condition(head) else None

        return wait_until(found, lambda: f"{what}: {self.head_document()}")

    def unit_files(self):
        return self.hosts["head"].run("find .config/systemd/user -name 'rubato-head-*' 2>/dev/null || true").split()

    def test_the_head_is_a_service_and_comes_back_after_a_reboot(self):
        self.make("head")
        machine = self.hosts["head"]
        self.cgroups = [f"{self.hosts.tag}-head"]
        start_logind(machine)
        start_manager(machine, self.cgroups[0])
        self.assertIn("'lab' is up with 1 node", self.up(self.text()).stderr)
        first = self.wait_for_head(lambda head: head["supervisor"]["kind"] == "systemd", "a service")
        (unit,) = [unit for unit in self.units("head") if unit.startswith("rubato-head-lab-")]
        self.assertIn(unit, machine.run(f"cat /proc/{first['supervisor']['pid']}/cgroup"))
        self.assertEqual(len(self.unit_files()), 2, "the unit, and a link for the next boot")

        machine.run(f"kill -9 {first['supervisor']['pid']}")
        second = self.wait_for_head(lambda head: head["supervisor"]["pid"] != first["supervisor"]["pid"], "another one")
        self.assertEqual(second["pid"], first["pid"], "the head went on")
        machine.run(f"kill -9 {first['pid']}")
        third = self.wait_for_head(lambda head: head["pid"] != first["pid"], "another head")
        self.assertEqual(third["epoch"], first["epoch"] + 1)
        self.assertIn("nothing to change", self.up(self.text()).stderr)

        machine.crash()
        machine.boot().wait_for_sshd()
        start_logind(machine)
        start_manager(machine, self.cgroups[0], "default.target")
        self.wait_for_head(lambda head: head["epoch"] > third["epoch"], "a head after the boot")
        self.rubato("down", "lab", "-y")
        self.assertEqual(self.unit_files(), [])
        left = machine.run("ps -eo args= -ww | grep -E ' (head|supervise|agent) --dir ' | grep -v grep || true")
        self.assertEqual(left, "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
