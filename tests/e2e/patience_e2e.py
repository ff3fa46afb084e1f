"""A head that was dead or stopped acts on what its agents report, and `down` ends jobs for good without a head."""
import os
import signal
import time

import cluster_harness
from cluster_harness import alive, cluster_text
from harness import WAIT, read_lines, wait_until

# Notes each start and each end; ends with 0 when the test says so.
WAITS = """
import json, os, time
out = os.environ["RUBATO_OUTPUT"]
def note(what):
    with open(out + "/told.jsonl", "a") as file:
        file.write(json.dumps({what: os.getpid(), "generation": int(os.environ["RUBATO_GENERATION"])}) + "\\n")
note("start")
while not os.path.exists(out + "/go"):
    time.sleep(0.02)
note("end")
"""


class Patience(cluster_harness.ClusterCase):
    def submit_waiting(self, *flags):
        job = self.submit(*flags, self.script(WAITS))
        self.wait_for_job(job, "running")
        return job

    def told(self, job, what):
        return [line[what] for line in read_lines(self.output(job) / "told.jsonl") if what in line]

    def wait_for_starts(self, job, count):
        return wait_until(lambda: (lambda pids: pids if len(pids) >= count else None)(self.told(job, "start")),
                          lambda: f"{count} workers in {self.told(job, 'start')}")

    def end_well(self, job, pids):
        """Lets the workers of the job end with 0, while nobody leads."""
        (self.output(job) / "go").touch()
        wait_until(lambda: set(self.told(job, "end")) >= set(pids) and not any(map(alive, pids)),
                   lambda: f"the end of {pids}")

    def types(self):
        return [event["type"] for event in self.json_lines("events", "--limit", 1000)]

    def test_a_job_that_ended_while_the_head_was_dead_is_not_run_again(self):
        self.up(cluster_text(small=(1, 3, 3)))
        others = [self.submit_waiting("--workers", "1") for _ in range(2)]
        job = self.submit_waiting("--workers", "1:3")
        pids = {one: self.wait_for_starts(one, 1) for one in (*others, job)}
        self.kill_head()
        for one in (*others, job):  # the next head finds room for all of its workers
            self.end_well(one, pids[one])
        self.up()
        for one in (*others, job):
            self.wait_for_job(one, "succeeded")
            self.assertEqual(self.told(one, "start"), pids[one], "it was run again")

    def test_a_job_that_ended_in_time_is_not_timed_out_by_the_next_head(self):
        self.up(cluster_text(small=(1, 1, 1)))
        job = self.submit_waiting("--timeout", "40s")  # until it has begun, and its head is killed
        (pid,) = self.wait_for_starts(job, 1)
        self.kill_head()
        self.end_well(job, [pid])
        wait_until(lambda: time.time() > (self.output(job) / "told.jsonl").stat().st_mtime + 41,
                   lambda: "its timeout")
        self.up()
        self.wait_for_job(job, "succeeded")
        self.assertEqual(self.told(job, "start"), [pid])

    def test_a_head_that_is_stopped_right_after_its_start_gives_nobody_up(self):
        self.up(cluster_text(small=(1, 2, 2)))
        job = self.submit_waiting("--workers", "2")
        pids = self.wait_for_starts(job, 2)
        agents, old = self.node_pids(), self.head_pid()
        self.kill_head()
        up = self.follow("up", "-y")
        daemon = self.place / "head/daemon.pid"

        def new_head():
            try:
                pid = int(daemon.read_text())
            except (OSError, ValueError):
                return None
            return pid if pid != old and alive(pid) else None

        head = wait_until(new_head, lambda: "a new head")
        os.kill(head, signal.SIGSTOP)
        time.sleep(16)  # longer than agents have to come back
        os.kill(head, signal.SIGCONT)
        self.assertEqual(up.wait(timeout=2 * WAIT), 0)
        time.sleep(1)  # it has looked around by now
        self.assertEqual(self.node_pids(), agents)
        self.assertNotIn("node-lost", self.types())
        self.end_well(job, pids)
        self.wait_for_job(job, "succeeded")
        self.assertEqual(self.told(job, "start"), pids)

    def test_a_head_that_is_stopped_for_a_while_gives_nobody_up(self):
        self.up(cluster_text(small=(1, 2, 2)))
        job = self.submit_waiting("--workers", "2")
        pids = self.wait_for_starts(job, 2)
        agents, head = self.node_pids(), self.head_pid()
        for span in (2, 5):
            os.kill(head, signal.SIGSTOP)
            time.sleep(span)
            os.kill(head, signal.SIGCONT)
            time.sleep(1)
        self.assertEqual(self.node_pids(), agents)
        self.assertNotIn("node-lost", self.types())
        self.end_well(job, pids)
        self.wait_for_job(job, "succeeded")
        self.assertEqual(self.told(job, "start"), pids)

    def test_down_with_a_dead_head_ends_jobs_for_good(self):
        self.up(cluster_text(small=(1, 1, 1)))
        runs = self.submit_waiting()
        (pid,) = self.wait_for_starts(runs, 1)
        queued = self.submit(self.script(WAITS))
        self.kill_head()
        self.rubato("down", "-y")
        self.assert_nothing_left()
        self.assertFalse(alive(pid))
        self.up()
        for job in (runs, queued):
            self.wait_for_job(job, "stopped")
        self.wait_for_nodes(1)
        self.assertEqual(self.told(runs, "start"), [pid])
        self.assertEqual(self.told(queued, "start"), [])


if __name__ == "__main__":
    cluster_harness.main()
