#!/usr/bin/env python3
"""A machine that is cut off ends its workers before the others go on without it; with real cables and processes."""
import os

import hosts as machines
from harness import main, wait_until
from remote_testing import RemoteCase

# Writes down when it was alive. All machines of the test have one clock.
BEATS = """
import os, time
with open(os.path.expanduser("~/beats"), "a") as file:
    while True:
        print(os.environ["RUBATO_GENERATION"], time.monotonic(), file=file, flush=True)
        time.sleep(0.02)
"""


class FenceTest(RemoteCase):
    def setUp(self):
        super().setUp()
        reason = machines.why_not()
        if reason:
            self.skipTest(reason)

    def beats(self, host):
        """{generation: (first, last)} of the workers on a machine."""
        seen = {}
        path = host.home / "beats"
        for line in path.read_text().splitlines() if path.exists() else []:
            words = line.split()
            if len(words) == 2:  # the last one may be half written
                generation, time = int(words[0]), float(words[1])
                seen[generation] = (seen.get(generation, (time,))[0], time)
        return seen

    def assert_no_two_generations_at_once(self):
        lives = {}
        for host in self.hosts:
            for generation, (first, last) in self.beats(host).items():
                before = lives.get(generation, (first, last))
                lives[generation] = (min(before[0], first), max(before[1], last))
        for generation in sorted(lives)[1:]:
            ended = max(last for older, (_, last) in lives.items() if older < generation)
            self.assertLess(ended, lives[generation][0], lives)
        return lives

    def start(self, *names, workers, flags=()):
        self.make(*names)
        self.up(self.text())
        self.script(BEATS, "beats.py")
        job = self.submit("--workers", workers, "--cpus", os.cpu_count(), *flags, "-d", self.folder / "work",
                          "beats.py")
        self.wait_for_workers_of(job, int(workers.split(":")[-1]))
        wait_until(lambda: all(self.beats(host) for host in self.hosts if host.name in self.with_workers(job)),
                   "the first beats")
        return job

    def with_workers(self, job):
        names = {seat["node"] for seat in self.job(job)["members"]}
        return {"head" if name == "head" else name.replace("worker-", "w") for name in names}

    def test_a_machine_that_is_cut_off_ends_its_workers_first(self):
        job = self.start("head", "w1", "w2", workers="2:3")
        before = self.job(job)["generation"]
        self.hosts["w1"].cut()
        wait_until(lambda: self.job(job)["generation"] > before and self.job(job)["phase"] == "running",
                   lambda: self.rubato("events").stdout)
        newest = self.job(job)["generation"]
        wait_until(lambda: any(newest in self.beats(host) for host in self.hosts), "the next generation")
        lives = self.assert_no_two_generations_at_once()
        self.assertIn(before, self.beats(self.hosts["w1"]), lives)
        self.assertEqual(self.job(job)["restarts_used"], 0)
        # It is told what has become of it, and is used again.
        self.hosts["w1"].mend()
        self.wait_for_workers_of(job, 3)
        self.assert_no_two_generations_at_once()

    def test_a_silent_job_of_one_machine_waits_for_a_word(self):
        self.make("head", "w1")
        self.up(self.text())
        self.script(BEATS, "beats.py")
        # One for each machine: the second one is on w1 alone.
        jobs = [self.submit("--cpus", os.cpu_count(), "-d", self.folder / "work", "beats.py") for _ in range(2)]
        for job in jobs:
            self.wait_for_job(job, "running")
        there = next(job for job in jobs if self.with_workers(job) == {"w1"})
        wait_until(lambda: self.beats(self.hosts["w1"]), "the first beats")
        refused = self.rubato("node", "lost", "worker-1", code=None)
        self.assertIn("its agent is connected", refused.stderr)
        self.hosts["w1"].crash()
        wait_until(lambda: "is silent" in self.rubato("why", there).stdout, lambda: self.rubato("why", there).stdout)
        self.assertEqual(self.job(there)["phase"], "running")
        self.rubato("node", "lost", "worker-1")
        wait_until(lambda: self.job(there)["phase"] == "queued", lambda: self.rubato("events").stdout)


if __name__ == "__main__":
    main()
