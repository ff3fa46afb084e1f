"""Groups of real PyTorch workers that change while they train: who lives keeps its process, each sample counts once."""
import json
import os
import signal
import sys
import threading

import harness
import inplace_testing
from harness import ROOT, free_port
from inplace_testing import PACE, TRAIN

sys.path.insert(0, str(ROOT / "python"))
from rubato import _store


class InPlace(inplace_testing.Trainings, harness.Case):
    def start(self, count, nnodes, *args, port=None):
        return self.group(count, nnodes, *args, script=(TRAIN, self.folder, PACE), port=port,
                          env={"XDG_CACHE_HOME": str(self.folder / "cache"), "OMP_NUM_THREADS": "1"})

    def worker_of(self, agent):
        """The pid of the newest worker of an agent with one."""
        return agent.events("spawn")[-1]["pid"]

    def assert_trained(self, agents):
        """It ends well, and each sample has contributed once in each pass to the state that survived."""
        self.finish(agents)
        self.assert_counts()

    def spawned(self, agents):
        """How often each has started a worker so far: more than once where one was late when the group was formed."""
        return [len(agent.events("spawn")) for agent in agents]

    def host_and_others(self, agents):
        host = next(agent for agent in agents if agent.events("hosting"))
        return host, [agent for agent in agents if agent is not host]

    def test_an_agent_joins(self):
        port = free_port()
        agents = self.start(2, "1:3", port=port)
        before = self.training(2)
        spawned = self.spawned(agents)
        agents += self.start(1, "1:3", port=port)
        after = self.training(3)
        self.assertLess(before, after)
        agents[0].wait_for("running", world_size=3, in_place=True)
        self.assertEqual(self.spawned(agents), spawned + [1], self.stories())
        self.assert_trained(agents)

    def test_an_agent_leaves(self):
        agents = self.start(3, "1:3")
        before = self.training(3)
        _, (leaver, stays) = self.host_and_others(agents)
        gone, spawned = self.worker_of(leaver), self.spawned([agent for agent in agents if agent is not leaver])
        leaver.signal(signal.SIGTERM)
        self.assertEqual(leaver.finish(), -signal.SIGTERM, leaver.story())
        self.assertEqual(leaver.wait_for("exit", pid=gone)["code"], 143, leaver.story())
        agents.remove(leaver)
        self.assertEqual(self.training(2), before - {gone})
        self.assertEqual(self.spawned(agents), spawned, self.stories())
        self.assert_trained(agents)
        self.assertEqual(stays.wait_for("end")["restarts"], 0)

    def test_a_worker_is_killed(self):
        agents = self.start(3, "1:3", "--max-restarts", 1)
        before = self.training(3)
        _, (victim, _) = self.host_and_others(agents)
        killed = self.worker_of(victim)
        with self.newcomers_held():
            os.kill(killed, signal.SIGKILL)
            self.assertEqual(self.training(2), before - {killed})  # it is not waited for
        after = self.training(3)
        self.assertLess(before - {killed}, after)
        self.assert_trained(agents)
        self.assertEqual(agents[0].wait_for("end")["restarts"], 1)

    def test_a_worker_of_several_is_killed(self):
        agent = self.agent("--standalone", "--nproc-per-node", 3, "--max-restarts", 2, TRAIN, self.folder, PACE,
                           env={"XDG_CACHE_HOME": str(self.folder / "cache"), "OMP_NUM_THREADS": "1"})
        before = self.training(3)
        for _ in range(2):
            killed = min(before)
            os.kill(killed, signal.SIGKILL)
            after = self.training(3, without={killed})
            self.assertLess(before - {killed}, after)
            before = after
        self.assert_trained([agent])
        self.assertEqual(agent.wait_for("end")["restarts"], 2)

    def test_a_failure_beyond_the_budget_ends_it(self):
        agents = self.start(2, "1:2", "--max-restarts", 0)
        self.training(2)
        os.kill(self.worker_of(agents[1]), signal.SIGKILL)
        for agent in agents:
            self.assertEqual(agent.finish(), 1, agent.story())
            self.assertIn("SIGKILL", agent.stderr)

    def test_the_store_serves_the_librarys_client_and_nobody_else(self):
        agent = self.agent("--standalone", "--max-restarts", 0, TRAIN, self.folder, PACE,
                           env={"PYTHONPATH": str(ROOT / "python")})
        self.training(1)
        plan = json.loads(next(self.folder.glob("rubato_plan_*/plan.json")).read_text())
        address, token = plan["store"]["address"], plan["store"]["token"]
        client = _store.Client(address, token, timeout_s=harness.WAIT)
        client.set("t/key", b"\0bytes\xff")
        self.assertEqual(client.get(["t/key"]), [b"\0bytes\xff"])
        self.assertTrue(client.has(["t/key"]))
        self.assertFalse(client.has(["t/key", "t/none"]))
        self.assertEqual([client.add("t/count", 2), client.add("t/count", -3)], [2, -1])
        self.assertEqual(client.get(["t/count"]), [b"-1"])
        with self.assertRaisesRegex(_store.StoreError, "nobody set 't/none'"):
            client.get(["t/none"], timeout_s=0.1)
        with self.assertRaisesRegex(_store.StoreError, "no number"):
            client.add("t/key", 1)
        client.set("t/large", bytes(2 << 20))
        self.assertEqual(len(client.get(["t/large"])[0]), 2 << 20)
        waiter = threading.Thread(target=lambda: client.get(["t/late"], timeout_s=harness.WAIT))
        waiter.start()
        client.set("t/late", b"")
        waiter.join()
        self.assertEqual(client.delete("t/"), 4)
        client.close()
        for wrong in ("", "x" * len(token)):
            with self.assertRaisesRegex(_store.StoreError, "a wrong token"):
                _store.Client(address, wrong, timeout_s=harness.WAIT).has(["t/key"])
        self.assert_trained([agent])
        self.assertEqual(list(self.folder.glob("rubato_plan_*")), [])

    def test_an_agent_is_killed(self):
        agents = self.start(3, "1:3", "--max-restarts", 0)
        before = self.training(3)
        _, (victim, _) = self.host_and_others(agents)
        killed = self.worker_of(victim)
        agents.remove(victim)
        spawned = self.spawned(agents)
        victim.kill()
        self.assertEqual(self.training(2), before - {killed})
        self.assertEqual(self.spawned(agents), spawned, self.stories())
        self.assert_trained(agents)

    def test_the_host_is_killed(self):
        agents = self.start(3, "1:3", "--max-restarts", 0)
        before = self.training(3)
        host, others = self.host_and_others(agents)
        killed, spawned = self.worker_of(host), self.spawned(others)
        host.kill()
        self.assertEqual(self.training(2), before - {killed})
        self.assertEqual(self.spawned(others), spawned, self.stories())
        self.assert_trained(others)

    def test_a_paused_agent_is_left_behind_and_comes_back_with_new_workers(self):
        agents = self.start(3, "1:3", "--max-restarts", 0, "--heartbeat", 6)  # the others are slow, too, now and then
        before = self.training(3)
        _, (paused, stays) = self.host_and_others(agents)
        silent = self.worker_of(paused)
        os.kill(silent, signal.SIGSTOP)
        paused.signal(signal.SIGSTOP)
        self.assertEqual(self.training(2), before - {silent})
        paused.signal(signal.SIGCONT)
        self.assert_gone(silent)
        after = self.training(3)
        self.assertLess(before - {silent}, after)
        self.assert_trained(agents)
        self.assertEqual(stays.wait_for("end")["restarts"], 0)


if __name__ == "__main__":
    harness.main()
