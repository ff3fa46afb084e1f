"""Adaptive jobs: AdaptDL's protocol, sizes that follow what a job tells of itself, workers that save and leave."""
import json
import os
import re
import signal

import cluster_harness
import harness
from cluster_harness import cluster_text
from harness import ROOT, SCRIPTS, wait_until

SUPERVISED = SCRIPTS / "supervised.py"
TRAINER = SCRIPTS / "adaptdl_trainer.py"
ADAPTDL = ROOT / "python/tests/scripts/adaptdl_train.py"


def hints(net):
    """Of a job whose steps take 0.1 s of computation and `net` seconds of exchange."""
    return {"initBatchSize": 128, "localBszBounds": [None, 256], "globalBatchSize": 128, "maxBatchSize": 4096,
            "maxProfiledReplicas": 4, "gradientAccumulation": False, "gradParams": {"norm": 0.001, "var": 1.0},
            "perfParams": {"alpha_c": 0.05, "beta_c": 0.001, "alpha_n": net, "beta_n": net / 10, "alpha_r": net,
                           "beta_r": net / 10, "gamma": 1.0}}


class Adaptive(cluster_harness.ClusterCase):
    def setUp(self):
        super().setUp()
        self.up(cluster_text(small=(2, 2, 2)))

    def tell(self, net):
        draft = self.folder / "draft"
        draft.write_text(json.dumps(hints(net)))
        os.replace(draft, self.folder / "hints.json")

    def test_the_size_follows_what_a_job_tells(self):
        job = self.submit("--workers", "1:4", "--max-restarts", 0, SUPERVISED, self.folder)
        self.wait_for_workers_of(job, 4)
        wait_until(lambda: sum(" of 4" in line for line in self.log_texts(job)) >= 4, "all four have found each other")
        self.assertNotIn("adaptive", self.job(job))
        (self.folder / "flood").touch()
        self.tell(net=500)
        alone = self.wait_for_workers_of(job, 1)
        self.assertEqual(alone["adaptive"]["workers"], 1)
        self.assertEqual(alone["adaptive"]["worthwhile"], 1)
        self.assertEqual(alone["adaptive"]["profile"]["initBatchSize"], 128)
        self.assertIn(alone["adaptive"]["reason"], self.rubato("job", "show", job).stdout)
        self.assertEqual(alone["restarts_used"], 0)
        types = [event["type"] for event in self.json_lines("events", "--limit", 200)]
        self.assertIn("job-profiled", types)
        self.assertIn("job-sized", types)
        self.assertLess(types.count("job-profiled"), 10, "a job that talks much does not fill the journal")
        # What it has decided is decided by the next head too: it does not grow again.
        self.kill_head()
        self.up()
        self.assertEqual(self.wait_for_workers_of(job, 1)["adaptive"]["workers"], 1)
        (self.folder / "done").touch()
        self.assertEqual(self.wait_for_job(job, "succeeded")["restarts_used"], 0)
        lines = self.log_texts(job)
        last = [line for line in lines if " of 4" in line][-1].split()[1].rstrip(":")
        self.assertRegex("\n".join(lines), rf"of 1, after \[(.*, )?{last}\]", "it goes on where the four were")

    def test_workers_that_save_and_leave_are_started_anew(self):
        job = self.submit("--workers", 2, "--max-restarts", 0, SUPERVISED, self.folder)
        for group in (0, 1):
            wait_until(lambda: sum(f"group {group}:" in line for line in self.log_texts(job)) >= 2, f"group {group}")
            (self.folder / f"leave.{group}").touch()
        wait_until(lambda: sum("group 2:" in line for line in self.log_texts(job)) == 2, "group 2")
        self.assertTrue(any("of 2, after [0, 1]" in line for line in self.log_texts(job)), self.log_texts(job))
        (self.folder / "done").touch()
        self.assertEqual(self.wait_for_job(job, "succeeded")["restarts_used"], 0)
        self.assertIn("saved and left (exit code 143)", self.rubato("events", "--limit", 100).stdout)

    def saved_steps(self, job):
        """{group: the step that it saved}"""
        saved = (re.match(r"group (\d+): saved step (\d+)", line) for line in self.log_texts(job))
        return {int(found[1]): int(found[2]) for found in saved if found}

    def newest_group(self, job, workers):
        begun = (re.match(rf"group (\d+): rank \d+ of {workers} begins", line) for line in self.log_texts(job))
        return max((int(found[1]) for found in begun if found), default=None)

    def wait_for_group(self, job, group, workers):
        """Until all of them have begun; returns at which step."""
        begins = rf"group {group}: rank \d+ of {workers} begins at step (\d+)"
        wait_until(lambda: sum(bool(re.match(begins, line)) for line in self.log_texts(job)) == workers,
                   lambda: f"group {group} with {workers} workers, of {self.log_texts(job)}")
        steps = {int(found[1]) for found in (re.match(begins, line) for line in self.log_texts(job)) if found}
        self.assertEqual(len(steps), 1)
        return steps.pop()

    def test_a_trainer_of_adaptdl_whose_loader_has_processes_saves_before_it_is_resized(self):
        """Behind a proxy that does not answer: the supervisor is asked without it."""
        job = self.submit("--workers", "1:2", "--max-restarts", 0, "--env", "http_proxy=http://127.0.0.1:9", TRAINER,
                          self.folder)
        wait_until(lambda: self.newest_group(job, 2) is not None, "two workers")
        group = self.newest_group(job, 2)
        self.wait_for_group(job, group, 2)
        self.tell(net=500)
        self.wait_for_workers_of(job, 1)
        alone = wait_until(lambda: (self.newest_group(job, 1) or 0) > group and self.newest_group(job, 1), "one worker")
        self.assertEqual(self.wait_for_group(job, alone, 1), self.saved_steps(job)[group])
        self.assertGreater(self.saved_steps(job)[group], 0)
        (self.folder / "done").touch()
        self.assertEqual(self.wait_for_job(job, "succeeded")["restarts_used"], 0)

    def test_workers_that_leave_early_do_not_cut_short_the_one_that_still_saves(self):
        (self.folder / "slow").write_text("4")
        job = self.submit("--workers", 3, "--max-restarts", 0, TRAINER, self.folder)
        self.wait_for_group(job, 0, 3)
        process = self.folder / "pid.0.2"
        wait_until(lambda: process.exists() and process.read_text(), "its process")
        os.kill(int(process.read_text()), signal.SIGTERM)  # as a notice on one of the machines
        self.assertEqual(self.wait_for_group(job, 1, 3), wait_until(lambda: self.saved_steps(job).get(0), "saved"))
        (self.folder / "done").touch()
        self.assertEqual(self.wait_for_job(job, "succeeded")["restarts_used"], 0)

    def test_a_script_of_adaptdls_users(self):
        # With modules of one's own on the path: the library is still behind them.
        job = self.submit("--workers", "1:2", "--env", f"PYTHONPATH={self.folder}", ADAPTDL, 3)
        self.wait_for_job(job, "succeeded")
        self.assertTrue(any(line.startswith("epoch 2:") for line in self.log_texts(job)))
        self.assertEqual(self.job(job)["adaptive"]["profile"]["initBatchSize"], 8)


if __name__ == "__main__":
    harness.main()
