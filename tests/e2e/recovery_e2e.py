"""`kill -9` of heads and agents under a real PyTorch training, and under a queue of short jobs."""
import json
import os
import random
import signal
import subprocess
import time

import cluster_harness
import harness
from cluster_harness import cluster_text
from harness import PYTHON, SCRIPTS, read_lines, wait_until

STEPS = 60
THREE = cluster_text(small=(1, 3, 3))


class Training(cluster_harness.ClusterCase):
    """DDP over gloo on three nodes, with a checkpoint in $RUBATO_OUTPUT after each step.

    It goes as far as the test has got (`limit`, see ddp_train.py). The loss at the end tells whether each step was done
    with the state of the one before.
    """

    def start(self, workers):
        self.up(THREE)
        self.job_id = self.submit("--workers", workers, "--name", "train", "--checkpoint-timeout", "1s", "--env",
                                  "WAIT_FOR_LIMIT=1", "-d", SCRIPTS, "ddp_train.py", "$RUBATO_OUTPUT", STEPS, 0.05)
        self.limit(0)
        self.wait_for_workers_of("train", 3)
        self.reach(8, world=3)

    def limit(self, step):
        """Up to this step, and no further: nothing that follows depends on the speed of the machine."""
        output = self.output(self.job_id)
        output.mkdir(parents=True, exist_ok=True)
        (output / ".limit").write_text(str(step))
        (output / ".limit").rename(output / "limit")

    def told(self):
        return read_lines(self.output(self.job_id) / "workers.jsonl")

    def reach(self, step, world):
        """Lets it do this step, and waits for it, in a world of this size."""
        self.limit(step)
        wait_until(lambda: [line for line in self.told() if line.get("step", 0) >= step and line["world"] == world],
                   lambda: f"step {step} of {world} workers in {self.told()[-5:]}")

    def starts(self):
        return [line for line in self.told() if "pid" in line]

    def finish_training(self):
        self.limit(STEPS)
        job = self.wait_for_job(self.job_id, "succeeded")
        result = json.loads((self.output(self.job_id) / "result.json").read_text())
        reference = subprocess.run([PYTHON, SCRIPTS / "ddp_train.py", "--reference", str(STEPS)], check=True,
                                   capture_output=True).stdout
        self.assertAlmostEqual(result["loss"], float(reference), places=9)
        self.assertEqual(result["steps"], STEPS)
        self.assertEqual(job["restarts_used"], 0, job["events"])
        return result

    def wait_for_members_without(self, node):
        """Waits until it runs with three workers, none of them on this node."""

        def moved():
            job = self.job("train")
            return (job["phase"], job["workers"]) == ("running", 3) and node not in [m["node"] for m in job["members"]]

        wait_until(moved, lambda: f"the training without {node}: {self.job('train')}")

    def steps_in_log(self):
        """The numbers of the steps that the log tells of, in its order."""
        return [int(text.split()[1]) for text in self.log_texts(self.job_id) if text.startswith("step ")]

    def assert_every_step_logged(self):
        """Each step is in the log, whoever was killed; one that was repeated after a restart once for each time."""
        logged = [(line["generation"], int(line["text"].split()[1])) for line in self.json_lines("logs", self.job_id)
                  if line["text"].startswith("step ")]
        self.assertEqual(sorted({step for _, step in logged}), list(range(1, STEPS + 1)))
        self.assertEqual(len(logged), len(set(logged)), "a line is there twice")

    def test_the_head_is_killed(self):
        self.start("3")
        workers, agents = {line["pid"] for line in self.starts()}, self.node_pids()
        self.kill_head()
        self.reach(20, world=3)  # nobody leads, and the training goes on
        self.up()
        self.assertEqual(self.node_pids(), agents)
        self.wait_for_workers_of("train", 3)
        self.assertEqual(self.status()["cluster"]["head"]["epoch"], 2)
        self.finish_training()
        self.assertEqual({line["pid"] for line in self.starts()}, workers)
        self.assertEqual(self.steps_in_log(), list(range(1, STEPS + 1)))

    def test_an_agent_is_killed(self):
        self.start("2:3")
        (doomed,) = [m for m in self.job("train")["members"] if m["rank_first"] == 1]
        worker = [line["pid"] for line in self.starts() if line["rank"] == 1][-1]
        self.kill(self.node_pids()[doomed["node"]])
        self.assert_gone(worker)
        self.wait_for_nodes(3)
        self.wait_for_members_without(doomed["node"])
        self.reach(30, world=3)
        self.assertNotIn(doomed["node"], self.node_pids())
        self.assertEqual(self.finish_training()["world"], 3)
        self.assert_every_step_logged()

    def test_a_node_is_taken_away(self):
        self.start("2:3")
        self.up(cluster_text(small=(1, 2, 2)))
        self.wait_for_workers_of("train", 2)
        self.reach(30, world=2)
        self.assertEqual(len(self.nodes()), 2)
        self.assertEqual(self.finish_training()["world"], 2)

    def test_head_and_agent_are_killed_at_once(self):
        self.start("2:3")
        doomed = self.job("train")["members"][0]["node"]
        self.kill_head(self.node_pids()[doomed])
        self.up()
        self.wait_for_nodes(3)
        self.wait_for_members_without(doomed)
        self.reach(30, world=3)
        self.assertNotIn(doomed, self.node_pids())
        self.finish_training()
        self.assert_every_step_logged()

    def test_the_machine_goes_down(self):
        self.start("3")
        workers = [line["pid"] for line in self.starts()]
        before = max(line.get("step", 0) for line in self.told())
        self.kill_head(*self.node_pids().values())
        for worker in workers:
            self.assert_gone(worker)
        self.up()
        wait_until(lambda: len(self.starts()) >= 6, lambda: f"three more workers in {self.starts()}")
        self.reach(30, world=3)
        resumed = [line["first"] for line in self.starts()[3:]]
        self.assertGreaterEqual(min(resumed), before)
        self.finish_training()
        self.assert_every_step_logged()


class Lines(cluster_harness.ClusterCase):
    """What a worker has printed reaches `rubato logs`, whoever is killed the moment after."""

    # It notes how many lines are written when they are, so that the test knows what must not be lost.
    PRINTS = """
import os, sys, time
out = os.environ["RUBATO_OUTPUT"]
generation = int(os.environ["RUBATO_GENERATION"])
if generation > 1:
    print("again", flush=True)
    sys.exit()
for n in range(1, 1 << 30):
    os.write(1, b"line %d\\n" % n)
    if n % 7 == 0:
        os.write(2, b"error %d\\n" % n)
    with open(out + "/written.new", "w") as file:
        file.write(str(n))
    os.rename(out + "/written.new", out + "/written")
    if n % 500 == 0:
        time.sleep(0.01)
"""

    def start(self, nodes=1):
        self.up(cluster_text(small=(1, nodes, nodes)))
        return self.submit(self.script(self.PRINTS))

    def written(self, job):
        try:
            return int((self.output(job) / "written").read_text())
        except (OSError, ValueError):
            return 0

    def assert_all_there(self, job):
        self.wait_for_job(job, "succeeded")
        texts = self.log_texts(job)
        lines = [int(text.split()[1]) for text in texts if text.startswith("line ")]
        errors = [int(text.split()[1]) for text in texts if text.startswith("error ")]
        self.assertEqual(lines, list(range(1, len(lines) + 1)))  # in order, and none twice
        self.assertGreaterEqual(len(lines), self.written(job))
        self.assertEqual(errors, list(range(7, 7 * len(errors) + 1, 7)))
        self.assertGreaterEqual(len(errors), self.written(job) // 7)
        self.assertEqual(texts.count("again"), 1)

    def test_an_agent_is_killed_after_a_burst(self):
        job = self.start()
        wait_until(lambda: self.written(job) > 3000, "3000 lines")
        self.kill(*self.node_pids().values())
        self.assert_all_there(job)

    def test_head_and_agent_are_killed_after_a_burst(self):
        job = self.start()
        wait_until(lambda: self.written(job) > 1000, "1000 lines")
        self.kill_head()
        before = self.written(job)
        wait_until(lambda: self.written(job) > before + 1000, "1000 lines that no head has heard")
        self.kill(*self.node_pids().values())
        self.up()
        self.assert_all_there(job)

    def test_a_stopped_agent_is_replaced(self):
        """It reads nothing any more: what fits into the pipe is there when it is given up at last."""
        job = self.start()
        wait_until(lambda: self.written(job) > 100, "100 lines")
        (pid,) = self.node_pids().values()
        os.kill(pid, signal.SIGSTOP)
        before = self.written(job)
        # Few: on a slow machine its node is given up before there are many.
        wait_until(lambda: self.written(job) > before + 10, "lines in the pipe")
        self.kill(pid)
        self.assert_all_there(job)


class Queue(cluster_harness.ClusterCase):
    def test_the_head_is_killed_again_and_again(self):
        """Each job ends once, and each of its ranks ran once."""
        seed = random.SystemRandom().randrange(1 << 32)
        dice = random.Random(seed)
        print(f"seed {seed}", flush=True)
        self.up(cluster_text(small=(1, 2, 2)))
        jobs = [self.submit("--workers", "2", "--name", f"short{n}", "-d", SCRIPTS, "job_tool.py", "mark", 0.4)
                for n in range(5)]
        agents = self.node_pids()
        for _ in range(10):
            time.sleep(dice.uniform(0, 0.4))
            self.kill_head()
            self.up()
        for job in jobs:
            self.wait_for_job(job, "succeeded")
            marks = sorted(path.name.partition(".")[0] for path in self.output(job).iterdir() if path.is_file())
            self.assertEqual(marks, ["0", "1"], f"seed {seed}")
        self.assertEqual(self.node_pids(), agents)
        events = self.json_lines("events", "--limit", 2000)
        self.assertEqual(sorted(event["job"] for event in events if event["type"] == "job-ended"), sorted(jobs))
        self.assertEqual([event["offset"] for event in events], list(range(1, len(events) + 1)))
        self.assertEqual(self.status()["cluster"]["head"]["epoch"], 11)

    def test_the_head_is_killed_while_people_submit(self):
        """Each submission becomes one job, or says that it failed; none becomes two, none is forgotten."""
        self.up(cluster_text(small=(1, 2, 2)))
        made = []
        for n in range(4):
            submitting = [self.follow("submit", "--name", f"s{n}", "-d", SCRIPTS, "job_tool.py", "mark")
                          for _ in range(3)]
            time.sleep(0.01 * n)
            self.kill_head()
            self.up()
            for process in submitting:
                out, err = process.communicate(timeout=harness.WAIT)
                if process.returncode == 0:
                    made.append(out.strip())
                else:
                    self.assertRegex(err, "does not answer|rubato up")
        self.assertEqual(sorted(job["id"] for job in self.json("jobs", "--all")["jobs"]), sorted(made))
        for job in made:
            self.wait_for_job(job, "succeeded")
            self.assertEqual(len([path for path in self.output(job).iterdir() if path.is_file()]), 1)


if __name__ == "__main__":
    cluster_harness.main()
