#!/usr/bin/env python3
"""A machine that will be taken away: its jobs save and leave it before the deadline, and a replacement comes."""
import cluster_harness
from cluster_harness import cluster_text
from harness import wait_until
from metadata_service import MetadataService

# Says which generation it is; saves and leaves when it is told to, after the file `hold` is gone.
SAVER = """
import os, pathlib, signal, sys, time
rank, generation = os.environ["RANK"], os.environ["RUBATO_GENERATION"]
place = pathlib.Path(sys.argv[1])

def save(*_):
    while (place / "hold").exists():
        time.sleep(0.05)
    (place / f"saved-{generation}-{rank}").write_text(os.environ["RUBATO_NODE"])
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
(place / f"begun-{generation}-{rank}").write_text(os.environ["RUBATO_NODE"])
while not (place / "done").exists():
    time.sleep(0.05)
"""


class NoticeTest(cluster_harness.ClusterCase):
    def setUp(self):
        super().setUp()
        self.service = MetadataService()
        self.addCleanup(self.service.close)
        self.files = self.folder / "files"
        self.files.mkdir()

    def environment(self, **changes):
        return super().environment(**({"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{self.service.host}",
                                       "GCE_METADATA_HOST": self.service.host} | changes))

    def start(self, notice, nodes, workers, at_most=None):
        self.up(cluster_text(small=(1, nodes, at_most or nodes)) + notice)
        self.wait_for_nodes(nodes)
        self.script(SAVER, "saver.py")
        job = self.submit("--workers", workers, "--max-restarts", 0, "-d", self.folder / "work", "saver.py",
                          self.files)
        self.wait_for_workers_of(job, int(workers.split(":")[-1]))
        return job

    def begun(self, generation):
        """{rank: node} of the workers of a generation that have begun."""
        return {path.name.rpartition("-")[2]: path.read_text() for path in self.files.glob(f"begun-{generation}-*")
                if path.read_text()}

    def events(self, kind):
        return [event for event in self.json_lines("events", "--limit", 1000) if event["type"] == kind]

    def wait_for_move(self, job):
        return wait_until(lambda: self.job(job).get("moved"), lambda: self.rubato("events").stdout)

    def test_a_spot_notice_of_ec2_shrinks_an_elastic_job_away(self):
        job = self.start("notice: {watch: ec2}\n", 2, "1:2")
        first = self.job(job)["generation"]
        wait_until(lambda: len(self.begun(first)) == 2, "both workers")
        clients = wait_until(lambda: len(self.service.clients()) >= 2 and self.service.clients(), "both agents")
        (self.files / "hold").touch()
        self.service.reclaim(clients[-1], 600)
        draining = wait_until(lambda: self.events("node-draining"), lambda: self.rubato("events").stdout)[0]
        node = draining["node"]
        self.assertIn("spot notice", draining["text"])
        self.assertIn("spot notice (goes in ", self.rubato("status").stdout)
        self.assertIn("spot notice", self.rubato("why", node).stdout)
        refused = self.rubato("drain", node, "--undo", code=None)
        self.assertIn("cannot be kept: spot notice", refused.stderr)
        # Its replacement is launched while it is still there, though the cluster may have two nodes.
        wait_until(lambda: len(self.events("node-requested")) >= 3, lambda: self.rubato("events").stdout)
        (self.files / "hold").unlink()
        self.assertRegex(self.wait_for_move(job), r"spot notice \d+ s → saved and stopped \([\d.]+ s\) → ")
        for rank in range(2):
            self.assertTrue((self.files / f"saved-{first}-{rank}").exists(), list(self.files.iterdir()))
        self.assertNotIn(node, self.begun(first + 1).values())
        self.assertIn("→ saved and stopped", self.rubato("job", "show", job).stdout)
        self.assertEqual(self.job(job)["restarts_used"], 0)
        wait_until(lambda: node not in {one["id"] for one in self.status()["nodes"]}, "the end of the node")
        self.wait_for_workers_of(job, 2)  # on the replacement
        (self.files / "done").touch()
        self.wait_for_job(job, "succeeded")

    def test_a_preemption_by_google_moves_a_job_to_the_replacement(self):
        job = self.start("notice: {watch: gcp}\n", 1, "1")
        generation = self.job(job)["generation"]
        wait_until(lambda: self.begun(generation) and self.service.waiting >= 2,
                   "a worker, and an agent that waits for news")
        self.service.preempt()
        self.assertRegex(self.wait_for_move(job), r"preemption notice \d+ s → saved and stopped .* → moved 1 workers")
        first = self.begun(generation)["0"]
        second = wait_until(lambda: self.begun(self.job(job)["generation"]), "it")["0"]
        self.assertNotEqual(first, second)
        (self.files / "done").touch()
        self.wait_for_job(job, "succeeded")

    def test_who_does_not_save_in_time_ends_with_the_deadline(self):
        job = self.start(f'notice: {{file: "{self.folder}/notice-%n"}}\n', 2, "1")
        node = wait_until(lambda: self.begun(self.job(job)["generation"]), "the worker")["0"]
        (self.files / "hold").touch()  # it never ends by itself
        (self.folder / f"notice-{node}").write_text("3s")
        self.assertIn("lost what was not saved before", self.wait_for_move(job))
        self.assertEqual(list(self.files.glob("saved-*")), [])
        self.assertNotEqual(wait_until(lambda: self.begun(self.job(job)["generation"]), "it")["0"], node)
        (self.files / "hold").unlink()

    def test_a_person_drains_a_node_and_thinks_better_of_it(self):
        job = self.start("", 1, "1", at_most=2)
        node = wait_until(lambda: self.begun(self.job(job)["generation"]), "the worker")["0"]
        (self.files / "hold").touch()
        told = self.rubato("drain", node, "--deadline", "10m")
        self.assertIn(f"rubato drain {node} --undo", told.stderr)
        wait_until(lambda: "draining" in self.rubato("status").stdout, "the drain")
        self.rubato("drain", node, "--undo")
        wait_until(lambda: node in self.nodes(), lambda: self.rubato("status").stdout)
        self.assertIn("does not drain any more", self.rubato("events", "--limit", 1000).stdout)
        (self.files / "hold").unlink()
        self.wait_for_job(job, "running")
        self.rubato("drain", node)
        wait_until(lambda: node not in {one["id"] for one in self.status()["nodes"]}, "the end of the node")
        self.assertIn("there is no node", self.rubato("drain", "nobody-1", code=None).stderr)


if __name__ == "__main__":
    cluster_harness.main()
