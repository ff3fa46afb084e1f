"""A cluster that grows with what is asked of it and shrinks after its idle time, with `why` for each step."""
import json

import cluster_harness
from harness import wait_until

TEXT = """cluster_name: local
provider: {type: local}
autoscaling: {max_workers: 4, idle_timeout: %s}
node_types:
  small:
    resources: {CPU: 1}
    min_workers: 0
    max_workers: 4
    price_per_hour: 0.5
"""


class Autoscaling(cluster_harness.ClusterCase):
    def decisions(self, limit=50):
        return json.loads(self.rubato("why", "--last", "-n", limit, "--json").stdout)["decisions"]

    def kinds(self, kind):
        return [one for one in self.decisions() if one["kind"] == kind]

    def wait_for_none(self):
        """Gone altogether, not only going."""
        wait_until(lambda: not self.status()["nodes"], lambda: f"no nodes: {self.status()}")

    def test_grows_on_submit_and_shrinks_after_the_idle_time(self):
        said = self.up(TEXT % "8s")
        self.assertIn("is up", said.stderr)
        self.assertEqual(self.nodes(), {}, "nobody wants a node yet")

        job = self.submit_steps("--workers", "1:3")
        self.wait_for_workers_of(job, 3)
        nodes = sorted(self.nodes())
        self.assertEqual(nodes, ["small-1", "small-2", "small-3"])
        launches = self.kinds("launch")
        self.assertEqual(sorted(one["node"] for one in launches), nodes)
        for one in launches:
            self.assertTrue(one["wanted"], one)
        why = self.rubato("why", "small-1").stdout
        self.assertIn("node small-1: up", why)
        self.assertIn("requested", why)
        self.assertIn("its work ends", why)
        audit = self.json("audit")
        self.assertEqual((len(audit["owned"]), audit["leaked"], audit["complete"]), (3, [], True))
        self.assertEqual(audit["cost_per_hour"], 1.5)

        # A busy cluster keeps its nodes, however long it is.
        self.order("finish")
        self.wait_for_job(job, "succeeded")
        self.wait_for_none()
        removed = self.kinds("remove")
        self.assertEqual(sorted(one["node"] for one in removed), nodes)
        for one in removed:
            self.assertIn("idle_timeout", one["wanted"])
        gone = self.rubato("why", "small-2").stdout
        self.assertIn("node small-2: gone", gone)
        self.assertIn("nothing to do for", gone)
        audit = self.json("audit")
        self.assertEqual(audit["gone"][0]["nodes"], 3)
        self.assertGreater(audit["cost_so_far"], 0)

        # And again: a launch is not repeated, and a node's name is not either.
        again = self.submit("--wait", self.script("print('second')"))
        self.assertEqual(self.log_texts(again), ["second"])
        self.assertEqual(len(self.kinds("launch")), 4)

    def test_a_limit_is_named_while_work_waits(self):
        self.up(TEXT % "60s")
        job = self.submit("--workers", "5", self.script("print(1)"))
        held = wait_until(lambda: self.kinds("hold"), "a decision that nothing is launched")[-1]
        self.assertIn(job, held["wanted"])
        self.assertIn("max_workers", held["against"][0]["text"])
        self.assertTrue(held["against"][0]["where"].startswith("cluster.yaml:"), held)
        self.assertEqual(self.nodes(), {})
        status = self.rubato("status").stdout
        self.assertIn("Autoscaler", status)
        self.assertIn("not launching", status)
        self.assertIn("max_workers", self.rubato("why", "--last").stdout)
        self.rubato("stop", job, "--wait")

    def test_a_request_brings_nodes_and_keeps_them(self):
        self.up(TEXT % "2s")
        self.rubato("request", code=2)
        self.rubato("request", "--cpus", "2")
        self.wait_for_nodes(2)
        self.assertIn("explicit request", self.kinds("launch")[0]["wanted"])
        # Longer than the idle time: something else comes and goes meanwhile.
        self.submit("--wait", self.script("import time; time.sleep(4)"))
        self.assertEqual(len(self.nodes()), 2)
        self.rubato("request", "--clear")
        self.wait_for_none()

    def test_nodes_of_a_head_that_died_are_neither_lost_nor_leaked(self):
        self.up(TEXT % "8s")
        job = self.submit_steps("--workers", "2")
        self.wait_for_workers_of(job, 2)
        self.kill_head()
        self.up()
        self.wait_for_workers_of(job, 2)
        self.assertEqual(self.json("audit")["leaked"], [])
        self.order("finish")
        self.wait_for_job(job, "succeeded")
        self.wait_for_none()


if __name__ == "__main__":
    cluster_harness.main()
