#!/usr/bin/env python3
"""Nodes over SSH on machines of their own (hosts.py): the provider's HostsTest, with the real binary for agents.

The tests in src/provider/hosts_test.cc ask for faults through files; `serve` carries them out.
"""
import json
import os
import subprocess
import threading
import time
import unittest
from pathlib import Path

import harness
import hosts as machines
from harness import RUBATO

PROVIDER_TEST = Path(RUBATO).with_name("provider_test")


@unittest.skipIf(machines.why_not(), machines.why_not())
class SshTest(harness.Case):
    def obey(self, hosts, words):
        verb, name = words.split()
        host = hosts[name]
        if verb == "newkey":
            host.crash()
            host.new_host_key()
            host.boot().wait_for_sshd()
        elif verb == "boot":
            host.boot().wait_for_sshd()
        elif verb == "slow":
            host.slow_sshd(2)
        else:
            {"cut": host.cut, "mend": host.mend, "crash": host.crash, "fill": host.fill_disk,
             "free": host.free_disk}[verb]()

    def serve(self, hosts, requests, ended):
        done = set()
        while not ended.is_set():
            for path in sorted(requests.iterdir()):
                if not path.name.isdigit() or path.name in done:
                    continue
                done.add(path.name)
                self.obey(hosts, path.read_text())
                path.with_suffix(".done").touch()
            time.sleep(0.02)

    def check(self, test, names=("w1", "w2"), disk_mb=0):
        folder = self.folder / "hosts"
        with machines.Hosts(folder, names, disk_mb=disk_mb) as hosts:
            requests = folder / "requests"
            requests.mkdir()
            ended = threading.Event()
            server = threading.Thread(target=self.serve, args=(hosts, requests, ended))
            server.start()
            told = {"requests": str(requests), "key": str(hosts.key), "rubato": RUBATO,
                    "hosts": {host.name: host.address for host in hosts}}
            try:
                environment = os.environ | {"RUBATO_TEST_HOSTS": json.dumps(told)}
                done = subprocess.run([PROVIDER_TEST, f"--gtest_filter=HostsTest.{test}", "--gtest_brief=1"],
                                      capture_output=True, text=True, env=environment)
            finally:
                ended.set()
                server.join()
        words = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, words)
        self.assertIn("1 test from 1 test suite ran", words)
        self.assertNotIn("SKIPPED", words)

    def test_nodes_come_up_at_once_and_end_with_nothing_left(self):
        self.check("NodesComeUpAtOnceAndEndWithNothingLeft", ("w1", "w2", "w3"))

    def test_agents_outlive_the_connection(self):
        self.check("AgentsOutliveTheConnection")

    def test_a_cut_cable_costs_an_attempt(self):
        self.check("ACutCableDuringSetUpCostsAnAttempt")

    def test_a_crashed_host_is_passed_over(self):
        self.check("ACrashedHostIsPassedOverAndCleanedWhenItIsBack")

    def test_a_full_disk_is_said(self):
        self.check("AFullDiskIsSaidAndThenOvercome", disk_mb=40)

    def test_a_slow_sshd_and_a_new_host_key(self):
        self.check("ASlowSshdIsWaitedForAndANewHostKeyIsNot")


if __name__ == "__main__":
    harness.main()
