#!/usr/bin/env python3
"""What workers write and print on machines of their own reaches the head: `rubato fetch`, `rubato logs`; and what is
left on the machines afterwards: nothing. hosts.py makes the machines."""
import os
import unittest
from collections import Counter

import hosts as machines
from harness import main, wait_until
from remote_testing import RemoteCase

# Each rank writes files of its own and some that all write, and may take its time: SIZE_MB SECONDS.
WRITER = """
import os, pathlib, random, sys, time
out, rank = pathlib.Path(os.environ["RUBATO_OUTPUT"]), int(os.environ["RANK"])
(out / "logs").mkdir(exist_ok=True)
(out / "logs" / f"rank{rank}.txt").write_text(f"rank {rank}\\n")
(out / "result").write_text(f"of rank {rank}\\n")
(out / "same").write_text("equal everywhere\\n")
(out / f"big{rank}").write_bytes(random.Random(rank).randbytes(int(sys.argv[1]) << 20))
print("written by", rank, flush=True)
time.sleep(float(sys.argv[2]))
"""

# Prints numbered lines, and keeps on the machine's disk how many it has printed.
PRINTER = """
import mmap, os, struct, time
with open("/root/printed", "wb") as file:
    file.truncate(8)
count = mmap.mmap(os.open("/root/printed", os.O_RDWR), 8)
number = 0
while True:
    os.write(1, b"line %d\\n" % number)
    number += 1
    count[:8] = struct.pack("<Q", number)
    if number % 20 == 0:
        time.sleep(0.01)
"""


@unittest.skipIf(machines.why_not(), machines.why_not())
class OutputsTest(RemoteCase):
    def setUp(self):
        super().setUp()
        (self.folder / "writer.py").write_text(WRITER)
        (self.folder / "printer.py").write_text(PRINTER)

    def outputs(self, job):
        return {one["node"]: one["state"] for one in self.json("job", "show", job)["outputs"]}

    def fetched(self, job, name="results"):
        done = self.rubato("fetch", job, name)
        folder = self.folder / name
        return done, {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def submit_writer(self, workers, megabytes, seconds):
        """A worker on each machine."""
        return self.submit("--workers", workers, "--cpus", os.cpu_count(), "writer.py", megabytes, seconds)

    def slow_link(self, name, rate):
        self.hosts[name].run(f"tc qdisc replace dev eth0 root tbf rate {rate} burst 64kb latency 200ms")

    def fast_link(self, name):
        self.hosts[name].run("tc qdisc del dev eth0 root")

    def kill_agent(self, name):
        """Not its guard, which saves what is in the workers' pipes."""
        self.hosts[name].run("kill -9 $(cat .rubato/clusters/lab/nodes/worker-1/daemon.pid)")

    def assert_big(self, files, megabytes):
        for rank in range(2):
            self.assertEqual(len(files[f"big{rank}"]), megabytes << 20)

    def test_files_of_all_machines_come_together(self):
        self.make()
        self.up(self.text())
        waited = self.rubato("submit", "--wait", "--workers", "3", "--cpus", os.cpu_count(), "--name", "all",
                             "writer.py", "3", "0")
        self.assertIn("succeeded", waited.stderr)
        job = waited.stdout.strip()
        self.assertEqual(self.outputs(job), {"worker-1": "kept", "worker-2": "kept"})
        done, files = self.fetched(job)
        self.assertIn("several machines wrote the same files", done.stderr)
        for rank in range(3):
            self.assertEqual(files[f"logs/rank{rank}.txt"], b"rank %d\n" % rank)
            self.assertEqual(len(files[f"big{rank}"]), 3 << 20)
        self.assertEqual(files["result"], b"of rank 0\n")
        self.assertEqual(files["same"], b"equal everywhere\n")
        others = sorted(text for name, text in files.items() if name.startswith("rubato-others/"))
        self.assertEqual(others, [b"of rank 1\n", b"of rank 2\n"])
        self.assertEqual(self.rubato("events").stdout.count("output-kept"), 2)
        # What was brought is not kept twice.
        for name in ("w1", "w2"):
            wait_until(lambda: not self.hosts[name].run("find /root/.rubato -name 'big*'"), f"an empty disk on {name}")

    def test_a_stopped_job_and_a_drained_node_bring_theirs(self):
        self.make("head", "w1")
        self.up(self.text())
        job = self.submit_writer(2, 1, 600)
        wait_until(lambda: self.rubato("logs", job).stdout.count("written by") == 2, "files")
        early = self.rubato("fetch", job, "early")
        self.assertIn("comes when its workers there have ended", early.stderr)
        self.rubato("stop", job, "--wait")
        # At once: what is there is brought before the node goes.
        self.rubato("down", "lab", "-y", "--workers-only")
        _, files = self.fetched(job)
        self.assertIn("logs/rank0.txt", files)
        self.assertIn("logs/rank1.txt", files)

    def test_a_broken_connection_costs_time_only(self):
        self.make("head", "w1")
        self.up(self.text())
        self.slow_link("w1", "8mbit")
        job = self.submit_writer(2, 40, 0)
        self.wait_for_job(job, "succeeded")
        part = f".local/state/rubato/clusters/lab/jobs/{job}/nodes/worker-1.part"
        wait_until(lambda: int(self.hosts["head"].run(f"stat -c %s {part} 2>/dev/null || echo 0")) > 2 << 20,
                   "the first bytes")
        self.hosts["w1"].cut()
        wait_until(lambda: "worker-1" not in self.nodes(), "the loss of the node")
        self.assertLess(int(self.hosts["head"].run(f"stat -c %s {part}")), 40 << 20)
        self.fast_link("w1")
        self.hosts["w1"].mend()
        # Of the node that was given up, or, if that was final before the cable was mended, found by the next node.
        wait_until(lambda: self.outputs(job) == {"worker-1": "kept"}, lambda: str(self.outputs(job)))
        _, files = self.fetched(job)
        self.assert_big(files, 40)

    def test_an_agent_that_dies_after_the_job_leaves_its_output(self):
        self.make("head", "w1")
        self.up(self.text())
        self.slow_link("w1", "4mbit")
        job = self.submit_writer(2, 30, 0)
        self.wait_for_job(job, "succeeded")
        self.kill_agent("w1")
        self.assertEqual(self.outputs(job), {"worker-1": "held"})
        self.fast_link("w1")
        done, files = self.fetched(job)
        self.assertNotIn("is missing", done.stderr)
        self.assert_big(files, 30)

    def test_a_machine_that_is_gone_is_named(self):
        self.make("head", "w1")
        self.up(self.text())
        self.slow_link("w1", "4mbit")
        job = self.submit_writer(2, 30, 0)
        self.wait_for_job(job, "succeeded")
        self.hosts["w1"].crash()
        done = self.rubato("fetch", job, "results")
        self.assertRegex(done.stderr, "waiting for the output of worker-1")
        self.assertRegex(done.stderr, "warning: what .* wrote on node worker-1 is missing: the node is gone")
        self.assertEqual(len(list((self.folder / "results").glob("big*"))), 1)

    def test_the_head_dies_while_it_takes_an_output(self):
        self.make("head", "w1")
        self.up(self.text())
        self.slow_link("w1", "20mbit")
        job = self.submit_writer(2, 30, 0)
        self.wait_for_job(job, "succeeded")
        self.hosts["head"].run("kill -9 $(cat .local/state/rubato/clusters/lab/head/daemon.pid)")
        self.up(self.text())
        done, files = self.fetched(job)
        self.assertNotIn("is missing", done.stderr)
        self.assert_big(files, 30)

    def test_lines_of_a_killed_agent_are_all_there_once(self):
        self.make("head", "w1")
        self.up(self.text())
        job = self.submit("--workers", "2", "--cpus", os.cpu_count(), "printer.py")
        worker = self.hosts["w1"]
        wait_until(lambda: "worker-1" in {line["node"] for line in self.json_lines("logs", job, "-n", "100")}, "lines")
        self.kill_agent("w1")
        wait_until(lambda: "printer.py" not in "\n".join(worker.processes()), "the end of its workers")
        printed = int.from_bytes((worker.home / "printed").read_bytes(), "little")
        wait_until(lambda: "worker-1" not in self.nodes(), "the loss of the node")
        wait_until(lambda: "node worker-1 is gone" in self.rubato("events", "--limit", "500").stdout, "its removal")
        self.rubato("stop", job, "--wait")
        lines = [line for line in self.json_lines("logs", job) if line["node"] == "worker-1"]
        numbers = Counter(int(line["text"].split()[1]) for line in lines if line["text"].startswith("line "))
        self.assertEqual([number for number, count in numbers.items() if count > 1], [])
        self.assertEqual(sorted(numbers), list(range(len(numbers))))
        self.assertGreaterEqual(len(numbers), printed)

    def test_old_programs_and_empty_folders_go(self):
        self.make("head", "w1")
        before = {host.name: self.files_of(host) for host in self.hosts}
        old, used = "rubato-0123456789abcdef", "rubato-fedcba9876543210"
        for host in self.hosts:
            host.run(f"mkdir -p .rubato/bin && cp /bin/true .rubato/bin/{old} && cp /bin/sleep .rubato/bin/{used} && "
                     "touch -d '2 days ago' .rubato/bin/rubato-* && "
                     f"{{ setsid .rubato/bin/{used} 600 </dev/null >/dev/null 2>&1 & echo $! >/run/used.pid; }}")
        self.up(self.text())

        def programs(host):
            """Beside the link for people. Only names are read: files go meanwhile."""
            return sorted(name for name in os.listdir(host.home / ".rubato/bin") if name.startswith("rubato-"))

        for host in self.hosts:
            # The agent may have joined before its machine is tidied.
            wait_until(lambda: old not in programs(host) and len(programs(host)) == 2,
                       lambda: f"the end of {old} in {programs(host)}")
            self.assertIn(used, programs(host), "a process is using it")
        self.rubato("down", "lab", "-y")
        left = self.hosts["w1"].home / ".rubato"
        wait_until(lambda: os.listdir(left) == ["bin"], lambda: f"nothing but bin in {os.listdir(left)}")
        self.assertEqual(len(programs(self.hosts["w1"])), 2)
        for host in self.hosts:
            host.run("kill $(cat /run/used.pid)")
        self.up(self.text())
        self.rubato("down", "lab", "-y", "--purge")
        for host in self.hosts:
            may_stay = {".local", ".local/state"}
            wait_until(lambda: not self.files_of(host) - before[host.name] - may_stay,
                       lambda: f"the end of {self.files_of(host) - before[host.name]} on {host.name}")

    @staticmethod
    def files_of(host):
        """All below its home. os.walk passes over folders that go meanwhile."""
        return {os.path.relpath(os.path.join(folder, name), host.home)
                for folder, folders, names in os.walk(host.home) for name in [*folders, *names]}


if __name__ == "__main__":
    main()
