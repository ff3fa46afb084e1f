"""`rubato up` and `rubato down` with real heads and agents: files, changes, isolation, the journal in etcd."""
import json
import os
import subprocess
import unittest

import cluster_harness
from cluster_harness import cluster_text
from harness import SCRIPTS, wait_until


class Up(cluster_harness.ClusterCase):
    def test_without_a_file(self):
        self.up()
        (node,) = self.nodes().values()
        self.assertEqual(node["resources"]["CPU"], os.cpu_count())
        self.assertEqual(self.status()["cluster"]["name"], "local")

    def test_a_file_of_several_types(self):
        self.up(cluster_text(max_workers=5, small=(1, 2, 3), big=(4, 1, 2), spare=(2, 0, 1)))
        nodes = self.nodes()
        self.assertEqual(sorted(nodes), ["big-1", "small-1", "small-2"])
        self.assertEqual(nodes["big-1"]["resources"], {"CPU": 4})
        self.assertEqual(len({node["address"] for node in nodes.values()}), 3)
        self.assertEqual(sorted(self.node_pids()), sorted(nodes))
        self.assertEqual(self.status()["totals"]["resources"], {"CPU": 6})

    def test_twice_changes_nothing(self):
        text = cluster_text(small=(1, 2, 3), big=(2, 1, 1))
        self.up(text)
        before = self.node_pids(), self.head_pid(), self.status()["cluster"]["journal"]
        again = self.up(text)
        self.assertIn("nothing to change", again.stderr)
        self.assertEqual((self.node_pids(), self.head_pid(), self.status()["cluster"]["journal"]), before)

    def test_other_limits_change_only_what_differs(self):
        self.up(cluster_text(small=(1, 2, 4), big=(2, 1, 1)))
        before = self.node_pids()
        self.up(cluster_text(small=(1, 3, 4), big=(2, 1, 1)))
        grown = self.node_pids()
        self.assertEqual(len(grown), 4)
        self.assertEqual({node: grown[node] for node in before}, before)
        self.up(cluster_text(small=(1, 1, 1), big=(2, 1, 1)))
        left = wait_until(lambda: (lambda pids: pids if len(pids) == 2 else None)(self.node_pids()), "two nodes")
        self.assertEqual(left["big-1"], before["big-1"])
        self.assertEqual(set(left.items()) - set(grown.items()), set())

    def test_a_second_head_refuses(self):
        self.up(cluster_text(small=(1, 1, 1)))
        epoch = self.status()["cluster"]["head"]["epoch"]
        second = self.rubato("head", "--dir", self.place, code=1)
        self.assertIn(f"has a head already (pid {self.head_pid()})", second.stdout + second.stderr)
        self.assertEqual(self.status()["cluster"]["head"]["epoch"], epoch)

    def test_down_twice(self):
        self.up(cluster_text(small=(1, 1, 1)))
        self.rubato("down", "-y")
        self.assertEqual(self.rubato("down", "-y").stderr, "'local' is down already\n")

    def test_another_type_is_replaced(self):
        self.up(cluster_text(small=(1, 1, 1), big=(2, 1, 1)))
        before = self.node_pids()
        said = self.up(cluster_text(small=(1, 1, 1), big=(3, 1, 1)))
        self.assertIn("replace 1 big", said.stderr)
        nodes = self.wait_for_nodes(2)
        (big,) = [node for node in nodes.values() if node["type"] == "big"]
        self.assertEqual(big["resources"], {"CPU": 3})
        self.assertNotEqual(big["id"], "big-1")
        self.assertEqual(self.node_pids()["small-1"], before["small-1"])
        self.assert_gone(before["big-1"])

    def test_dry_run_changes_nothing(self):
        self.up(cluster_text(small=(1, 1, 2)))
        before = self.node_pids(), self.status()["cluster"]["journal"]
        said = self.up(cluster_text(small=(1, 2, 2)), "--dry-run")
        self.assertIn("add 1 small", said.stdout)
        self.assertEqual((self.node_pids(), self.status()["cluster"]["journal"]), before)

    def test_down_leaves_no_process_and_up_comes_back(self):
        text = cluster_text(small=(1, 2, 2))
        self.up(text)
        job = self.submit_steps("--grace", "5s")
        self.wait_for_workers(1)
        done = self.submit("--wait", self.script("print('before the end')"))
        self.rubato("down", "-y")
        self.assert_nothing_left()  # a guard may need a moment to see that its process is gone
        self.rubato("status", code=1)
        self.up(text)
        self.wait_for_nodes(2)
        self.assertEqual(self.job(job)["phase"], "stopped")
        self.assertEqual(self.log_texts(done), ["before the end"])
        again = self.submit("--wait", self.script("print('after it')"))
        self.assertEqual(self.log_texts(again), ["after it"])
        self.rubato("down", "-y", "--purge")
        self.assertFalse(self.place.exists())

    def test_a_running_job_grows_with_the_cluster(self):
        self.up(cluster_text(small=(1, 1, 1)))
        job = self.submit_steps("--workers", "1:3")
        self.wait_for_workers_of(job, 1)
        self.up(cluster_text(small=(1, 3, 3)))
        grown = self.wait_for_workers_of(job, 3)
        self.assertEqual(grown["restarts_used"], 0)
        lines = self.wait_for_workers(3, lambda line: line["world"] == 3)
        self.assertEqual(sorted(line["rank"] for line in lines), [0, 1, 2])
        self.order("finish")
        self.wait_for_job(job, "succeeded")

    def refused(self, text, *words):
        said = self.up(text, code=2).stderr
        for word in words:
            self.assertIn(word, said)
        self.assertEqual(list(self.state.glob("rubato/clusters/*/head")), [])

    def test_bad_files_are_refused_with_their_place(self):
        good = cluster_text(small=(1, 1, 2))
        self.refused(good.replace("    min_workers", "    min_worker"), "cluster.yaml:6:5", 'min_workers"')
        self.refused(good.replace("cluster_name", "cluster_nam"), "cluster.yaml:1:1", 'cluster_name"')
        self.refused(cluster_text(small=(1, 3, 2)), "cluster.yaml:7:18", "min_workers 3 above max_workers 2")
        self.refused(cluster_text(max_workers=1, small=(1, 2, 2)), "cluster.yaml:3:14", "add up to 2")
        self.refused(good.replace("type: local", "type: locall"), "cluster.yaml:2:18", "'locall'", "local")
        self.refused(good.replace("CPU: 1", "CPU: -1"), "cluster.yaml:5:22")
        self.refused("a: [", "cluster.yaml:")
        self.refused("", "cluster.yaml:1:1")

    def test_two_clusters_beside_each_other(self):
        self.up(cluster_text("one", small=(1, 1, 1)))
        self.up(cluster_text("two", small=(1, 2, 2)))
        self.assertIn("one", self.rubato("status", code=2).stderr)
        self.assertEqual(len(self.json("status", "--cluster", "one")["nodes"]), 1)
        self.rubato("down", "-y", "--cluster", "one")
        self.assertEqual(len(self.status()["nodes"]), 2)

    @unittest.skipUnless(os.geteuid() == 0, "network namespaces need root")
    def test_training_over_network_namespaces(self):
        self.cluster = f"net{os.getpid()}"  # namespaces are of the whole machine
        self.up(cluster_text(self.cluster, ", isolation: netns", small=(1, 2, 2)))
        bridge = self.nodes()["small-1"]["address"].rpartition(".")[0] + ".1/24"
        self.assertIn(bridge, subprocess.run(["ip", "address"], capture_output=True, text=True).stdout)
        namespaces = {os.readlink(f"/proc/{pid}/ns/net") for pid in self.node_pids().values()}
        self.assertEqual(len(namespaces | {os.readlink("/proc/self/ns/net")}), 3)
        job = self.submit("--workers", "2", "--wait", "-d", SCRIPTS, "ddp_train.py", "$RUBATO_OUTPUT", 5, 0)
        result = json.loads((self.output(job) / "result.json").read_text())
        self.assertEqual((result["steps"], result["world"]), (5, 2))
        self.rubato("down", "-y")
        self.assert_nothing_left()
        self.assertNotIn(bridge, subprocess.run(["ip", "address"], capture_output=True, text=True).stdout)
        self.assertNotIn(self.cluster, subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout)

    def test_the_journal_in_etcd(self):
        (store,) = self.etcd()
        store.wait_until_ready()
        text = cluster_text(small=(1, 2, 2))
        self.up(text, "--store", f"etcd://{store.endpoint}")
        self.assertFalse((self.place / "journal.db").exists())
        job = self.submit_steps("--workers", "2")
        workers = {line["pid"] for line in self.wait_for_workers(2)}
        agents = self.node_pids()
        self.kill_head()
        self.up()
        self.assertEqual(self.node_pids(), agents)
        self.wait_for_workers_of(job, 2)
        self.assertTrue(all(map(cluster_harness.alive, workers)))
        self.order("finish")
        self.wait_for_job(job, "succeeded")
        self.assertEqual(len(self.steps()), 2)
        before = self.rubato("jobs", "--all", "--json").stdout
        self.rubato("down", "-y")
        after = self.rubato("jobs", "--all", "--json")
        self.assertEqual(after.stdout, before)
        self.assertIn(f"what its files and etcd://{store.endpoint} tell", after.stderr)
        self.assertIn("job-ended", self.rubato("events").stdout)
        self.rubato("logs", job)
        # Reading has not taken the journal over: the next head goes on with it.
        self.up()
        self.assertEqual([one["id"] for one in self.json("jobs", "--all")["jobs"]], [job])


if __name__ == "__main__":
    cluster_harness.main()
