"""Readers that stall, disks that are full, agents that stand still: training goes on, and signals end it."""
import os
import signal
import subprocess
import time

import harness
from harness import RUBATO, SCRIPTS, STEPS, wait_until

# Rank 0 floods its output, the others write a line now and then, until there is a file "finish".
FLOOD = """
import os, sys, time
folder, lines = sys.argv[1], int(sys.argv[2])
rank = os.environ["RANK"]
open(f"{folder}/pid.{rank}.{os.environ['TORCHELASTIC_RESTART_COUNT']}", "w").write(str(os.getpid()))
if rank == "0":
    for n in range(lines):
        print(f"line {n} " + "x" * 90)
    open(f"{folder}/written", "w").close()
n = 0
while not os.path.exists(f"{folder}/finish"):
    print(f"tick {n}")
    n += 1
    time.sleep(0.05)
"""


class Stalls(harness.Case):
    def piped(self, *args, stderr=None):
        """`rubato run` whose standard output is a pipe that only the test reads."""
        name = f"agent{len(self.agents)}"
        agent = harness.Agent(["true"], self.folder, name, self.environment())
        agent.process.wait()
        argv = [RUBATO, "run", "--events", str(agent.events_path), *map(str, args)]
        with open(agent._err, "wb") as err:
            agent.process = subprocess.Popen(argv, env=self.environment(), cwd=self.folder, stdin=subprocess.DEVNULL,
                                             stdout=subprocess.PIPE, stderr=stderr or err,
                                             preexec_fn=harness.die_with_parent)
        self.addCleanup(agent.process.stdout.close)
        self.agents.append(agent)
        return agent

    def flooding(self, *flags, lines=30000, **options):
        script = self.folder / "flood.py"
        script.write_text(FLOOD)
        logs = self.folder / "logs"
        return self.piped("--standalone", "--nproc-per-node", 2, "--tee", 3, "--log-dir", logs, "--heartbeat", "1s",
                          *flags, script, self.folder, lines, **options)

    def ticks(self, rank):
        text = "".join(path.read_text() for path in (self.folder / "logs").rglob(f"{rank}/stdout.log"))
        return text.count("tick")

    def wait_for_ticks(self, agent, count):
        """The second worker's log goes on: a tick takes 50 ms, so that 60 are three heartbeats."""
        goal = self.ticks(1) + count
        wait_until(lambda: self.ticks(1) >= goal, agent.story)

    def test_a_stalled_reader_slows_its_worker_alone(self):
        """Three megabytes that nobody reads for three heartbeats; then somebody does, and nothing is missing."""
        agent = self.flooding("--max-restarts", 0)
        pids = agent.worker_pids(1, 2)
        self.wait_for_ticks(agent, 60)
        self.assertFalse((self.folder / "written").exists(), "the worker did not wait for its reader")
        self.assertIsNone(agent.process.poll(), agent.story())
        self.order("finish")
        out = agent.process.stdout.read().decode()
        self.assertEqual(agent.finish(), 0, agent.story())
        self.assertEqual([line["generation"] for line in agent.events("running")], [1], agent.story())
        self.assertEqual(agent.worker_pids(1), pids)
        lines = [line for line in out.splitlines() if line.startswith("[default0]:line ")]
        self.assertEqual(lines, [f"[default0]:line {n} " + "x" * 90 for n in range(30000)])

    def test_sigterm_ends_a_run_that_nobody_reads(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            agent = self.flooding(lines=10**9)
            self.wait_for_ticks(agent, 20)
            agent.signal(number)
            self.assertEqual(agent.finish(), -number, agent.story())
            self.assert_nothing_left()

    def test_a_stalled_stderr_stalls_nobody(self):
        """What the agent itself says goes to a pipe that is full."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        agent = self.flooding("--max-restarts", 1, lines=1, stderr=writer)
        pids = agent.worker_pids(1, 2)
        wait_until(lambda: (self.folder / "pid.0.0").exists(), agent.story)
        os.kill(pids[0], signal.SIGKILL)  # the agent has much to say about it
        agent.running(2, after=1)
        self.wait_for_ticks(agent, 40)
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.finish(), -signal.SIGTERM)
        os.close(reader)
        os.close(writer)

    def test_the_end_does_not_wait_for_a_stalled_reader_for_ever(self):
        agent = self.flooding(lines=1500)
        wait_until(lambda: (self.folder / "written").exists(), agent.story)
        self.order("finish")
        self.assertEqual(agent.finish(), 0, agent.story())
        self.assertIn("were not taken by their reader", agent.stderr)
        self.assertIn(str(self.folder / "logs"), agent.stderr, "the person is told where all of it is")
        text = "".join(path.read_text() for path in (self.folder / "logs").rglob("0/stdout.log"))
        self.assertEqual(text.count("line "), 1500)

    def test_events_to_a_pipe_that_nobody_reads(self):
        fifo = self.folder / "events.fifo"
        os.mkfifo(fifo)
        agent = self._start([RUBATO, "run", "--standalone", "--events", str(fifo), STEPS, str(self.folder)], "fifo",
                            None, None)
        self.wait_for_workers(1)
        self.finish([agent])

    def small_disk(self, size):
        disk = self.folder / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)],
                                 capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            self.skipTest(f"cannot mount a small disk: {mounted.stderr}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)], check=False)
        return disk

    def test_a_full_log_disk_is_said_and_fails_the_run(self):
        """As torchrun's ends: there the worker itself meets the full disk."""
        disk = self.small_disk("256k")
        script = self.folder / "flood.py"
        script.write_text(FLOOD)
        agent = self.agent("--standalone", "--tee", 3, "--log-dir", disk, script, self.folder, 100000)
        self.assertEqual(agent.finish(), 1, agent.story())
        self.assertIn("No space left on device", agent.stderr)
        self.assertRegex(agent.stderr, r"traceback : cannot write '.*stdout.log': No space left on device")
        self.assert_nothing_left()

    def test_a_full_log_disk_and_a_signal(self):
        disk = self.small_disk("256k")
        agent = self.agent("--standalone", "--tee", 3, "--log-dir", disk, "--grace", "600s",
                           SCRIPTS / "on_signal.py", self.folder, "ignore")
        wait_until(lambda: (self.folder / "ready.0").exists(), agent.story)
        (disk / "filler").write_bytes(b"x" * (200 << 10))
        agent.signal(signal.SIGTERM)
        agent.wait_for("signal")
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.finish(), -signal.SIGTERM, agent.story())

    # Agents that stand still: nobody can have taken over, so nobody is harmed.

    def stand_still(self, agents, seconds):
        for agent in agents:
            agent.signal(signal.SIGSTOP)
        time.sleep(seconds)  # longer than the heartbeat: that is what is tried
        for agent in agents:
            agent.signal(signal.SIGCONT)

    def assert_undisturbed(self, agents, world, heartbeat_s=1):
        """They still listen: a signal to a worker is seen as one would expect, in the same generation."""
        pids = [line["pid"] for line in self.wait_for_workers(world)]
        self.assertEqual(len(pids), world, self.stories())
        time.sleep(2 * heartbeat_s)  # who was to be given up is given up by now
        for agent in agents:
            self.assertEqual([line["generation"] for line in agent.events("running")], [1], agent.story())
            self.assertEqual(agent.events("exit"), [], agent.story())
        self.finish(agents)
        self.assertEqual([line["pid"] for line in self.steps()], pids, self.stories())

    def test_a_lone_agent_that_was_stopped_goes_on(self):
        agent = self.agent("--standalone", "--nproc-per-node", 2, "--heartbeat", "1s", STEPS, self.folder)
        self.wait_for_workers(2)
        self.stand_still([agent], 3)
        self.assert_undisturbed([agent], 2)

    def test_the_default_heartbeat_and_five_seconds(self):
        agent = self.agent("--standalone", STEPS, self.folder)
        self.wait_for_workers(1)
        self.stand_still([agent], 5)
        self.assert_undisturbed([agent], 1)

    def test_all_agents_of_one_machine_that_were_stopped_go_on(self):
        # Not 1 s: on a busy machine the turn of the second may come later than that after the first one's.
        agents = self.group(2, "2", "--heartbeat", "5s")
        self.wait_for_workers(2)
        for agent in agents:
            agent.running(2)
        self.stand_still(agents, 7)
        self.assert_undisturbed(agents, 2, heartbeat_s=5)

    def test_the_only_agent_of_an_elastic_group_goes_on(self):
        agents = self.group(1, "1:4", "--heartbeat", "1s")
        self.wait_for_workers(1)
        self.stand_still(agents, 3)
        self.assert_undisturbed(agents, 1)


if __name__ == "__main__":
    harness.main()
