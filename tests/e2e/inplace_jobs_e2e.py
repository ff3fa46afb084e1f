"""Jobs of a cluster with the training library: its nodes come, go and die, who lives keeps its process."""
import os
import signal
from pathlib import Path

import cluster_harness
import harness
import inplace_testing
from cluster_harness import cluster_text
from harness import wait_until
from inplace_testing import PACE, TRAIN


class InPlaceJobs(inplace_testing.Trainings, cluster_harness.ClusterCase):
    def begin(self, nodes, *flags):
        """A cluster of so many nodes with room for one worker each, and a training on all of them: job, pids."""
        self.up(cluster_text(small=(1, nodes, nodes)))
        self.wait_for_nodes(nodes)
        job = self.submit("--workers", "1:3", *flags, TRAIN, self.folder, PACE)
        return job, self.training(nodes)

    def resize_cluster(self, nodes):
        self.up(cluster_text(small=(1, nodes, nodes)))

    def changes(self, job):
        """How its rounds were formed: ["", "resized 2→3 in place"]."""
        events = [event for event in self.json_lines("events", "--limit", 500) if event["type"] == "job-started"]
        return [event["data"]["change"] for event in events if event["job"] == job]

    def agent_of(self, job, pid):
        """(node, pid of its agent) of a worker."""
        words = Path(f"/proc/{pid}/environ").read_text().split("\0")
        node = next(word.split("=")[1] for word in words if word.startswith("RUBATO_NODE="))
        return node, self.node_pids()[node]

    def assert_ends_well(self, job, restarts=0):
        (self.folder / "finish").touch()
        self.assertEqual(self.wait_for_job(job, *cluster_harness.ENDED)["phase"], "succeeded")
        self.assertEqual(self.job(job)["restarts_used"], restarts)
        self.assert_counts()

    def test_it_grows_and_gives_a_worker_up(self):
        job, two = self.begin(2)
        self.resize_cluster(3)
        three = self.training(3)
        self.assertLess(two, three)
        # The queue's turn: one worker leaves, and comes back when there is room again.
        seen = len(self.steps())
        other = self.submit_steps("--workers", 1, where=self.script("", folder="other").parent)
        self.wait_for_job(other, "running")
        left = self.training(2, since=seen)
        self.assertLess(left, three)
        self.rubato("stop", other)
        self.assertLess(left, self.training(3))
        # Workers train before the head has heard that all of them do.
        wanted = ["resized 2→3 in place", "resized 3→2 in place", "resized 2→3 in place"]
        wait_until(lambda: self.changes(job)[-3:] == wanted, lambda: f"{wanted} at the end of {self.changes(job)}")
        self.assert_ends_well(job)

    def test_a_node_is_drained(self):
        job, three = self.begin(3)
        node, _ = self.agent_of(job, min(three))
        seen = len(self.steps())
        left = three - {min(three)}
        with self.newcomers_held():
            self.rubato("drain", node, "--deadline", "10m")
            self.assertEqual(self.training(2, since=seen), left)
        self.assertLess(left, self.training(3))  # its replacement joins them
        self.assertIn("in place", self.rubato("job", "show", job).stdout)
        self.assert_ends_well(job)

    def test_a_worker_and_an_agent_are_killed(self):
        job, three = self.begin(3, "--max-restarts", 1)
        seen = len(self.steps())
        left = three - {min(three)}
        with self.newcomers_held():
            os.kill(min(three), signal.SIGKILL)
            self.assertEqual(self.training(2, since=seen), left)  # it is not waited for
        three = self.training(3, without={min(three)})
        self.assertLess(left, three)
        victim = max(left)
        _, agent = self.agent_of(job, victim)
        seen = len(self.steps())
        left = three - {victim}
        with self.newcomers_held():
            self.kill(agent)
            self.assertEqual(self.training(2, since=seen), left)
        self.assertLess(left, self.training(3, without={victim}))
        self.assert_ends_well(job, restarts=1)

    def devices_of(self, pids):
        """The device that each of these workers takes, as torch.cuda.set_device(LOCAL_RANK) does."""
        found = []
        for pid in pids:
            words = Path(f"/proc/{pid}/environ").read_text().split("\0")
            values = dict(word.split("=", 1) for word in words if "=" in word)
            found.append(values["CUDA_VISIBLE_DEVICES"].split(",")[int(values["LOCAL_RANK"])])
        return found

    def test_workers_with_gpus_of_one_node_come_and_go(self):
        self.up(cluster_text(big=(4, 1, 1)).replace("{CPU: 4}", "{CPU: 4, GPU: 3}"))
        self.wait_for_nodes(1)
        other = self.submit_steps("--workers", 1, "--gpus", 1, where=self.script("", folder="other").parent)
        self.wait_for_job(other, "running")
        job = self.submit("--workers", "1:3", "--gpus", 1, TRAIN, self.folder, PACE)
        two = self.training(2)
        self.rubato("stop", other)
        three = self.training(3)
        self.assertLess(two, three)  # on the same node, beside those that train
        self.assertEqual(len(set(self.devices_of(three))), 3)
        seen = len(self.steps())
        other = self.submit_steps("--workers", 1, "--gpus", 1, "--priority", 5,
                                  where=self.script("", folder="other").parent)
        left = self.training(2, since=seen)
        self.assertLess(left, three)
        self.wait_for_job(other, "running")
        self.rubato("stop", other)
        three = self.training(3)
        self.assertLess(left, three)
        self.assertEqual(len(set(self.devices_of(three))), 3)
        self.assert_ends_well(job)

    def test_the_head_is_killed_while_it_changes(self):
        job, two = self.begin(2)
        self.resize_cluster(3)
        wait_until(lambda: len(self.nodes()) == 3, "the third node")
        self.kill(self.head_pid())  # its supervisor starts it again
        self.assertLess(two, self.training(3))
        self.assert_ends_well(job)


if __name__ == "__main__":
    harness.main()
