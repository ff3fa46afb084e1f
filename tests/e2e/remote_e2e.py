#!/usr/bin/env python3
"""Clusters of other machines, by the commands that people type: hosts.py makes the machines, this one is the laptop."""
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import harness
import hosts as machines
from harness import SCRIPTS, wait_until
from remote_testing import RemoteCase


@unittest.skipIf(machines.why_not(), machines.why_not())
class RemoteTest(RemoteCase):
    def test_up_again_exec_and_down(self):
        self.make()
        first = self.up(self.text())
        self.assertIn("'lab' is up with 3 nodes", first.stderr)
        before = {name: self.agents_on(name) for name in self.names}
        self.assertTrue(all(before.values()), before)
        again = self.up(self.text())
        self.assertEqual(again.stderr, "nothing to change: 'lab' is up with 3 nodes\n")
        self.assertEqual({name: self.agents_on(name) for name in self.names}, before)

        done = self.rubato("exec", "cluster.yaml", "echo out; echo err >&2; hostname; exit 7", code=7)
        self.assertEqual((done.stdout, done.stderr), ("out\nhead\n", "err\n"))
        self.assertEqual(self.rubato("exec", "lab", "--", "printf", "%s|", "a b", "$HOME").stdout, "a b|$HOME|")
        self.assertEqual(self.rubato("exec", "lab", "exit 255", code=255).stderr, "")
        self.assertEqual(self.rubato("get-head-ip", "cluster.yaml").stdout, self.hosts["head"].address + "\n")
        self.assertEqual(sorted(self.rubato("get_worker_ips", "lab").stdout.split()),
                         sorted(self.hosts[name].address for name in ("w1", "w2")))
        known = self.json("clusters")["clusters"]
        self.assertEqual([(one["name"], one["state"], one["nodes_up"]) for one in known], [("lab", "up", 3)])
        self.assertIn("node worker-1 joined", self.rubato("monitor", "lab", "--no-follow").stdout)

        self.rubato("down", "cluster.yaml", "-y")
        self.assertEqual([one["state"] for one in self.json("clusters")["clusters"]], ["down"])
        self.assert_hosts_are_clean()
        self.assertIn("is not running", self.rubato("down", "lab", "-y").stderr)

    def test_what_changes_is_changed_and_nothing_else(self):
        self.make()
        source = self.folder / "code"
        source.mkdir()
        (source / "a").write_text("1")
        lines = [f"file_mounts: {{/root/code: {source}}}",
                 "setup_commands: ['echo ran >> /root/ran; cat /root/code/a > /root/seen']"]
        self.up(self.text("min_workers: 1", "max_workers: 2", *lines))
        self.assertEqual(len(self.nodes()), 2)
        ran = lambda: {name: self.hosts[name].run("cat ran 2>/dev/null | wc -l").strip() for name in self.names}
        self.assertEqual(ran(), {"head": "1", "w1": "1", "w2": "0"})
        before = self.agents_on("w1")

        # Limits alone: the others are left alone.
        self.up(self.text("min_workers: 1", "max_workers: 2", *lines), "--min-workers", 2)
        self.assertEqual(ran(), {"head": "1", "w1": "1", "w2": "1"})
        self.assertEqual(self.agents_on("w1"), before)

        # Contents: everywhere, and what is gone here is gone there.
        (source / "a").write_text("2")
        (source / "b").write_text("new")
        self.up(self.text("min_workers: 2", "max_workers: 2", *lines))
        self.assertEqual(ran(), {"head": "2", "w1": "2", "w2": "2"})
        self.assertEqual(self.hosts["w2"].run("cat seen code/b"), "2new")
        (source / "b").unlink()
        updated = self.agents_on("w1")
        self.up(self.text("min_workers: 2", "max_workers: 2", *lines), "--no-restart")
        self.assertEqual(self.hosts["w2"].run("ls code"), "a\n")
        self.assertEqual(ran()["w1"], "3")
        self.assertEqual(self.agents_on("w1"), updated)

    def test_a_failing_command_says_everything(self):
        self.make("head", "w1")
        bad = self.text("worker_setup_commands: ['echo before; echo boom >&2; exit 3']")
        done = self.up(bad, code=1)
        for words in ("worker-1", "setup", "exit code 3", "boom", "rubato logs --node worker-1"):
            self.assertIn(words, done.stderr)
        self.assertIn("boom", self.rubato("logs", "--node", "worker-1").stdout)
        self.assertIn("'lab' is up with 2 nodes", self.up(self.text()).stderr)

    def test_files_go_both_ways(self):
        self.make("head", "w1")
        self.up(self.text())
        source = self.folder / "data"
        (source / "sub").mkdir(parents=True)
        (source / "sub/x").write_text("x")
        (source / "y y").write_text("y")
        self.rubato("rsync-up", "cluster.yaml", "data", "/root/data")
        self.assertEqual(self.hosts["head"].run("cat data/sub/x 'data/y y'"), "xy")
        (source / "y y").unlink()
        self.rubato("rsync_up", "cluster.yaml", "data", "/root/data", "-A")
        self.assertEqual(self.hosts["w1"].run("ls data"), "sub\n")
        self.assertEqual(self.hosts["head"].run("ls data"), "sub\ny y\n")
        self.rubato("rsync-up", "lab", "data", "/root/data", "--delete")
        self.assertEqual(self.hosts["head"].run("ls data"), "sub\n")
        self.hosts["head"].run("echo back > data/z")
        self.rubato("rsync_down", "cluster.yaml", "/root/data", "back")
        self.assertEqual((self.folder / "back/z").read_text(), "back\n")
        self.assertEqual((self.folder / "back/sub/x").read_text(), "x")

    def test_a_job_trains_on_two_machines(self):
        self.make("head", "w1")
        self.up(self.text())
        cpus = os.cpu_count()
        job = self.submit("--workers", "2", "--cpus", cpus, "-d", SCRIPTS, "ddp_train.py", "$RUBATO_OUTPUT", "5",
                          "0.01")
        detail = self.wait_for_job(job, "succeeded")
        self.assertEqual(detail["phase"], "succeeded")
        self.assertRegex(self.rubato("events").stdout, "with 2 workers on (worker-1, head|head, worker-1)")
        # Rank 0's, on whichever machine that ran.
        self.rubato("fetch", job, "results")
        self.assertTrue((self.folder / "results/result.json").exists(), list((self.folder / "results").rglob("*")))

    def test_a_machine_that_crashes_comes_back(self):
        self.make("head", "w1")
        self.up(self.text())
        self.hosts["w1"].crash()
        wait_until(lambda: len(self.nodes()) == 1, "the loss of the worker")
        self.hosts["w1"].boot().wait_for_sshd()
        wait_until(lambda: len(self.nodes()) == 2, lambda: f"the worker, have {self.status()['nodes']}")

    def test_of_two_ups_one_waits(self):
        self.make("head", "w1")
        slow = "until [ -e /root/go-on ]; do sleep 0.1; done; echo ran >> /root/ran"
        (self.folder / "cluster.yaml").write_text(self.text(f"setup_commands: ['{slow}']"))
        both = [self.follow("up", "cluster.yaml", "-y") for _ in range(2)]
        words = ["", ""]

        def read(n):
            for line in both[n].stderr:
                words[n] += line

        readers = [threading.Thread(target=read, args=(n,), daemon=True) for n in range(2)]
        for reader in readers:
            reader.start()
        waits = lambda: sum("waiting for another rubato up or down of 'lab' to end" in one for one in words)
        wait_until(waits, lambda: f"one that waits: {words}")
        for host in self.hosts:
            (host.home / "go-on").touch()
        self.assertEqual([process.wait(timeout=2 * harness.WAIT) for process in both], [0, 0], words)
        for reader in readers:
            reader.join()
        self.assertEqual(waits(), 1, words)
        self.assertEqual(self.hosts["w1"].run("cat ran"), "ran\n")

    def test_up_that_was_killed_is_finished_by_the_next(self):
        self.make("head", "w1")
        slow = "setup_commands: ['touch /root/began; sleep 3; echo ran >> /root/ran']"
        (self.folder / "cluster.yaml").write_text(self.text(slow))
        killed = self.follow("up", "cluster.yaml", "-y")
        wait_until(lambda: (self.hosts["w1"].home / "began").exists(), "the set-up's begin")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        self.assertIn("'lab' is up with 2 nodes", self.rubato("up", "cluster.yaml", "-y").stderr)
        self.assertEqual(self.hosts["w1"].run("cat ran"), "ran\n")

    def test_a_dead_head_is_started_by_up_and_ended_by_down(self):
        self.make("head", "w1")
        self.up(self.text())
        agents = self.agents_on("w1")
        # The head's guard is called the same, and may have followed it before its turn comes. The supervisor is last in
        # the list, and stopped first: it is not to start another one.
        kill = ("kill -STOP $(cat .local/state/rubato/clusters/lab/supervisor/daemon.pid) && "
                "kill -9 $(ps -eo pid=,args= -ww | awk '/ (head|supervise) --dir / && !/awk/ {print $1}') || true")
        self.hosts["head"].run(kill)
        dead = self.rubato("status", code=1)
        self.assertIn("is not running", dead.stderr)
        self.up(self.text())
        self.assertEqual(self.agents_on("w1"), agents)
        self.hosts["head"].run(kill)
        self.rubato("down", "lab", "-y")
        self.assert_hosts_are_clean()

    def test_what_cannot_work_says_why(self):
        self.make("head", "w1")
        other = self.folder / "other"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
        done = self.up(self.text(key=other), code=2)
        self.assertIn("authorized_keys", done.stderr)
        done = self.up(self.text(head="no-such-host.invalid"), code=1)
        self.assertIn("no-such-host.invalid", done.stderr)
        done = self.up(self.text(head=self.hosts.subnet + ".99"), code=1)
        self.assertIn(".99", done.stderr)

    def test_a_full_disk_is_said(self):
        self.make("head", "w1", disk_mb=64)
        self.hosts["head"].fill_disk()
        done = self.up(self.text(), code=1)
        self.assertRegex(done.stderr, "(?i)no space|room|disk")
        self.hosts["head"].free_disk()
        self.assertIn("'lab' is up with 2 nodes", self.up(self.text()).stderr)

    def test_exec_carries_what_goes_in_and_out(self):
        self.make("head")
        self.up(self.text())
        big = bytes(range(256)) * 20000
        argv = [harness.RUBATO, "exec", "lab"]
        done = subprocess.run([*argv, "cat; echo end >&2"], env=self.environment(), input=big, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b"end\n"))
        self.assertTrue(done.stdout == big, f"{len(done.stdout)} of {len(big)} bytes came back")
        # The command ends long before its output has been read: all of it comes.
        slow = subprocess.Popen([*argv, "head -c 300000 /dev/zero; exit 3"], env=self.environment(),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=harness.die_with_parent)
        first = os.read(slow.stdout.fileno(), 1)
        wait_until(lambda: "head -c" not in self.hosts["head"].run("ps -eo args= -ww"), "the command's end")
        self.assertEqual(len(first + slow.stdout.read()), 300000)
        self.assertEqual(slow.wait(), 3)
        slow.stdout.close()
        waiting = self.follow("exec", "lab", "echo begun; sleep 1000")
        self.assertEqual(waiting.stdout.readline(), "begun\n")
        waiting.send_signal(signal.SIGTERM)
        self.assertEqual(waiting.wait(), 128 + signal.SIGTERM)
        # The shared connection is gone: the next command makes another one.
        self.assertGreaterEqual(self.kill_masters(), 1)  # a client of it may be about to end
        self.assertEqual(self.rubato("exec", "lab", "hostname").stdout, "head\n")

    def test_a_killed_exec_ends_its_command(self):
        """Nobody hears it any more: SIGKILL tells the machine nothing but that its streams are closed."""
        self.make("head")
        self.up(self.text())
        here = lambda: [line for line in self.hosts["head"].run("ps -eo args= -ww").splitlines()
                        if line.startswith("sleep 1234")]
        for death in (signal.SIGKILL, signal.SIGTERM):
            begun = self.follow("exec", "lab", "echo begun; sleep 1234")
            self.assertEqual(begun.stdout.readline(), "begun\n")
            wait_until(lambda: len(here()) == 1, lambda: f"the command in {here()}")  # its shell has still to start it
            begun.send_signal(death)
            begun.wait()
            wait_until(lambda: not here(), lambda: f"the end of {here()}")

    def leftovers_on(self, name):
        """What a purge should have taken: files, sessions and agents of the cluster."""
        run = self.hosts[name].run
        return [*run("ls -d ~/.rubato ~/.local/state/rubato 2>/dev/null || true").split(),
                *run("tmux -L rubato-lab list-sessions 2>/dev/null || true").splitlines(),
                *run("screen -ls 2>/dev/null | grep rubato-lab || true").splitlines(), *self.agents_on(name)]

    def test_after_down_its_past_is_read_where_its_head_was(self):
        self.make("head", "w1")
        self.up(self.text())
        job = self.submit("--wait", "--name", "said", "--no-python", "sh", "-c",
                          "echo kept; echo result > $RUBATO_OUTPUT/a")
        before = {words: self.rubato(*words).stdout for words in (("logs", "said"), ("jobs", "--all", "--json"))}
        self.rubato("down", "lab", "-y")
        for words, printed in before.items():
            after = self.rubato(*words)
            self.assertEqual(after.stdout, printed)
            self.assertRegex(after.stderr, r"'lab' is down; this is what its files on \S+ tell")
        self.assertIn("job-ended", self.rubato("events").stdout)
        self.assertIn("succeeded", self.rubato("job", "show", job).stdout)
        self.rubato("fetch", "said", "got")
        self.assertEqual((self.folder / "got/a").read_text(), "result\n")
        self.assertEqual(self.rubato("complete", "jobs").stdout, "", "a Tab opens no way to another machine")

    def test_a_purge_after_down_leaves_nothing_anywhere(self):
        self.make("head", "w1")
        self.up(self.text())
        for program in ("tmux", "screen"):
            if shutil.which(program):
                self.rubato("exec", "lab", "sleep 1000", f"--{program}")
        self.hosts["head"].run("mkdir -p ~/.rubato && touch ~/.rubato/stop-lab.log")
        self.rubato("down", "lab", "-y")
        self.assertTrue((self.place / "machines.json").exists())
        self.assertTrue(self.leftovers_on("head"))
        done = self.rubato("down", "--purge", "-y", "lab")
        self.assertIn("nothing of 'lab' is left here, nor on 2 machines", done.stderr)
        for name in ("head", "w1"):
            self.assertEqual(self.leftovers_on(name), [])
        self.assertFalse(self.place.exists())
        self.assert_hosts_are_clean()

    def test_a_purge_says_what_it_could_not_reach_and_comes_back_for_it(self):
        self.make("head", "w1", "w2")
        self.up(self.text())
        self.hosts["w1"].cut()
        done = self.rubato("down", "--purge", "-y", "--timeout", "30s", "lab", code=1)
        address = self.hosts["w1"].address
        self.assertIn(f"{address} was not cleaned", done.stderr)
        self.assertIn("rubato down --purge lab", done.stderr)
        self.assertNotIn("nothing of 'lab' is left here", done.stderr)
        self.assertEqual(self.leftovers_on("w2"), [])
        self.hosts["w1"].mend()
        wait_until(lambda: self.rubato("down", "--purge", "-y", "lab", code=None).returncode == 0,
                   "a purge of what is left")
        self.assertEqual(self.leftovers_on("w1"), [])
        self.assertFalse(self.place.exists())

    def test_connect_from_a_second_laptop_changes_nothing(self):
        self.make("head", "w1")
        self.up(self.text())
        second = {"XDG_STATE_HOME": str(self.folder / "second")}
        (self.folder / "second").mkdir()
        for argv in (["status", "cluster.yaml"], ["exec", "cluster.yaml", "true"]):
            done = self.rubato(*argv, env=second, code=1)
            self.assertIn("rubato connect cluster.yaml", done.stderr)
            self.assertNotIn("--cluster default", done.stderr)
        done = self.rubato("connect", "cluster.yaml", env=second)
        self.assertIn("connected to 'lab'", done.stderr)
        status = json.loads(self.rubato("status", "cluster.yaml", "--json", env=second).stdout)
        self.assertEqual(len(status["nodes"]), 2)
        self.assertEqual(self.rubato("exec", "lab", "hostname", env=second).stdout, "head\n")
        told = [event["type"] for event in self.json_lines("events", "--limit", 1000)]
        self.assertEqual((told.count("head-started"), told.count("cluster-configured")), (1, 1), told)
        connected = json.loads(self.rubato("connect", "cluster.yaml", "--json", env=second).stdout)
        self.assertEqual(len(connected["nodes"]), 2)
        self.rubato("down", "-y", "lab")
        gone = self.rubato("connect", "cluster.yaml", env={"XDG_STATE_HOME": str(self.folder / "third")}, code=1)
        self.assertIn("'lab' is not up on", gone.stderr)
        self.assertIn("rubato up cluster.yaml", gone.stderr)
        self.rubato("down", "-y", "--purge", "lab", env=second, code=None)

    def kill_masters(self):
        """Of the connections that this test's commands share; how many."""
        note = Path(self.place) / "ssh/control-folder"  # where the path is too long for sockets
        words = note.read_text().strip() if note.exists() else str(note.parent)
        lines = subprocess.run(["ps", "-eo", "pid=,args=", "-ww"], capture_output=True, text=True).stdout.splitlines()
        masters = [int(line.split()[0]) for line in lines if f"{words}/" in line and line.split()[1].startswith("ssh")]
        for pid in masters:
            harness.kill_if_there(pid)
        return len(masters)

    def test_exec_with_start_and_stop_leaves_nothing(self):
        self.make("head", "w1")
        (self.folder / "cluster.yaml").write_text(self.text())
        done = self.rubato("exec", "cluster.yaml", "echo ran; exit 5", "--start", "--stop", code=5)
        self.assertIn("ran\n", done.stdout)
        self.assert_hosts_are_clean()
        # Whoever typed it dies; the cluster ends all the same.
        killed = self.follow("exec", "cluster.yaml", "touch began; sleep 2", "--start", "--stop")
        wait_until(lambda: (self.hosts["head"].home / "began").exists(), "the command's begin")
        killed.send_signal(signal.SIGKILL)
        wait_until(lambda: not self.agents_on("head") and not self.agents_on("w1"), "the end of the agents")

    def test_rays_submit_runs_the_script_on_the_head(self):
        self.make("head")
        script = self.script("import os, sys\nprint(os.uname().nodename, sys.argv[1:])\nsys.exit(4)\n")
        (self.folder / "cluster.yaml").write_text(self.text())
        done = self.rubato("submit", "cluster.yaml", "--start", script, "--epochs", "3", code=4)
        self.assertEqual(done.stdout.splitlines()[-1], "head ['--epochs', '3']")

    def test_ports_are_forwarded_while_the_command_runs(self):
        self.make("head")
        self.up(self.text())
        port = harness.free_port()
        serve = f"python3 -m http.server {port} --bind 127.0.0.1"
        process = self.follow("exec", "lab", "-p", port, f"echo hello > page; exec {serve}")
        wait_until(lambda: self.page(port) == "hello\n", "the page")
        process.send_signal(signal.SIGTERM)
        process.wait()

    def test_up_takes_the_address_of_a_file(self):
        self.make("head")
        (self.folder / "www").mkdir()
        (self.folder / "www/cluster.yaml").write_text(self.text())
        serve = ("import http.server as h\ns = h.ThreadingHTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)\n"
                 "print(s.server_port, flush=True)\ns.serve_forever()")
        server = subprocess.Popen([sys.executable, "-c", serve], cwd=self.folder / "www", stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        try:
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            self.assertIn("'lab' is up with 1 node", self.rubato("up", f"{url}/cluster.yaml", "-y").stderr)
            self.assertIn("status 404", self.rubato("up", f"{url}/other.yaml", "-y", code=2).stderr)
        finally:
            server.kill()
            server.communicate()

    def test_down_of_workers_only(self):
        self.make()
        self.up(self.text("min_workers: 1", "max_workers: 2"), "--min-workers", 2)
        self.rubato("down", "lab", "-y", "--workers-only")
        self.assertEqual(list(self.nodes()), ["head"])
        self.assertTrue(self.agents_on("head"))
        self.assertEqual(len(self.agents_on("w1")) + len(self.agents_on("w2")), 0)
        self.up(self.text("min_workers: 1", "max_workers: 2"))
        self.assertEqual(len(self.nodes()), 2)

    def test_doctor_tries_every_step(self):
        self.make("head", "w1")
        (self.folder / "cluster.yaml").write_text(self.text())
        report = self.json("doctor", "cluster.yaml")
        self.assertTrue(report["ok"], report)
        checks = {one["check"] for one in report["hosts"][0]["checks"]}
        steps = {"name", "port", "key", "user", "disk", "clock", "sudo", "docker", "Python", "PyTorch", "GPU"}
        self.assertLessEqual(steps, checks)
        self.hosts["w1"].cut()
        broken = json.loads(self.rubato("doctor", "cluster.yaml", "--json", code=1).stdout)
        self.assertEqual([one["ok"] for one in broken["hosts"]], [True, False])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
