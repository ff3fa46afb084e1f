"""What the group does when a worker, an agent or the host of the rendezvous dies, and when an agent joins.

The workers do not talk to each other: whatever happens, the agents must notice it themselves.
"""
import os
import signal

import harness
from harness import SCRIPTS, STEPS, free_port, wait_until


class Faults(harness.Case):
    def start(self, count, nnodes, *args):
        """Agents whose first common generation runs; the host is first, the others in the order of their ranks."""
        agents = self.group(count, nnodes, *args)
        ranks = {agent.running(count)["group_rank"]: agent for agent in agents}
        agents = [ranks[n] for n in sorted(ranks)]
        host = wait_until(lambda: [a for a in agents if a.events("hosting")], self.stories)[0]
        self.wait_for_workers(count, lambda line: line["world"] == count)
        return [host] + [agent for agent in agents if agent is not host]

    def wait_for_dense(self, world, seen):
        """Waits for a generation of that size that begins after so many lines, for a group may have had this size while
        its agents came; it has the ranks 0..world-1."""

        def begun():
            lines = [line for line in self.steps()[seen:] if line["world"] == world]
            return lines if len(lines) >= world else None

        lines = wait_until(begun, lambda: f"{world} workers after {seen} lines, have {self.steps()}\n" + self.stories())
        self.assertEqual(sorted(line["rank"] for line in lines), list(range(world)))
        self.assertEqual(len({line["master"] for line in lines}), 1)

    def test_killed_worker_restarts_all(self):
        agent = self.agent("--standalone", "--nproc-per-node", 2, "--max-restarts", 1, STEPS, self.folder)
        before = agent.running(2)["generation"]
        self.wait_for_workers(2)
        os.kill(agent.worker_pids(before, 2)[1], signal.SIGKILL)
        after = agent.running(2, after=before)
        self.assertEqual(after["restarts"], 1)
        lines = self.wait_for_workers(4)[2:]
        self.assertEqual(sorted((line["rank"], line["restart"]) for line in lines), [(0, 1), (1, 1)])
        killed = agent.events("exit", generation=before, rank=1)[0]
        self.assertEqual(killed["signal"], signal.SIGKILL)
        self.finish([agent])

    def test_failure_restarts_other_nodes(self):
        agents = self.start(2, "2", "--max-restarts", 1)
        self.order("exit.0", 5)
        lines = self.wait_for_workers(4)[2:]
        self.assertEqual(sorted((line["rank"], line["restart"]) for line in lines), [(0, 1), (1, 1)])
        self.finish(agents)

    def test_budget_is_one_for_the_job(self):
        """Two failures on two nodes: a budget per agent would let both pass."""
        agents = self.start(2, "2", "--max-restarts", 1)
        self.order("exit.0", 5)
        self.wait_for_workers(2, lambda line: line["restart"] == 1)
        self.order("exit.1", 6)
        for agent in agents:
            self.assertEqual(agent.finish(), 1, agent.story())
            self.assertRegex(agent.stderr, r"(?i)exit ?code\W+6\b", "the report names the last cause on every node")
        self.assertEqual(len(self.steps()), 4, "nobody started a third time")

    def test_crash_loop_uses_up_the_budget(self):
        agent = self.agent("--standalone", "--max-restarts", 3, SCRIPTS / "fail.py", 0, "quiet")
        self.assertEqual(agent.finish(), 1, agent.story())
        self.assertEqual(len(agent.events("spawn")), 4)
        self.assertEqual(agent.wait_for("end")["restarts"], 3)
        self.assertRegex(agent.stderr, r"3 (of 3 )?restarts|restarts?\W+3|--max-restarts",
                         "the person is told that the budget is used up")

    def test_joiner_is_admitted(self):
        port = free_port()
        (first,) = self.group(1, "1:2", port=port)
        before = first.running(1)
        self.wait_for_workers(1)
        seen = len(self.steps())
        (second,) = self.group(1, "1:2", port=port)
        after = first.running(2, after=before["generation"])
        self.assertEqual(second.running(2)["generation"], after["generation"])
        self.assertEqual(after["group_rank"], 0, "the older one keeps its rank")
        self.assertEqual(after["restarts"], 0, "a membership change costs nothing")
        self.wait_for_dense(2, seen)
        self.finish([first, second])

    def test_a_group_in_steps(self):
        """Two of three run, four of four; when one of them is lost, two again."""
        port = free_port()
        agents = self.group(3, "2:4:2", port=port)
        self.wait_for_workers(2)
        wait_until(lambda: sum("this one waits for more" in agent.stderr for agent in agents) == 1, self.stories)
        agents += self.group(1, "2:4:2", port=port)
        self.wait_for_workers(4, lambda line: line["world"] == 4)
        for agent in agents:
            agent.running(4)
        agents.pop().kill()
        self.wait_for_workers(4, lambda line: line["world"] == 2)
        self.assertEqual({line["world"] for line in self.steps()}, {2, 4})
        self.finish(agents)

    def test_saving_workers_are_not_done(self):
        """They save and exit with 0 when they are told to stop: the job goes on with them in the larger group."""
        port = free_port()
        script = (SCRIPTS / "on_signal.py", self.folder, "save", 0)
        (first,) = self.group(1, "1:2", port=port, script=script)
        before = first.running(1)["generation"]
        wait_until((self.folder / "ready.0").exists, first.story)
        (second,) = self.group(1, "1:2", port=port, script=script)
        first.running(2, after=before)
        second.running(2)
        self.assertEqual((self.folder / "saved.0").read_text(), "SIGTERM")
        self.assertEqual([agent.events("end") for agent in (first, second)], [[], []])
        wait_until((self.folder / "ready.1").exists, second.story)
        for agent in (first, second):
            agent.signal(signal.SIGTERM)
            self.assertEqual(agent.finish(), -signal.SIGTERM, agent.story())

    def test_too_many_wait(self):
        """One above MAX waits as a spare, and takes the place of one that is lost."""
        port = free_port()
        agents = self.group(2, "2", port=port)
        for agent in agents:
            agent.running(2)
        (spare,) = self.group(1, "2", port=port)
        spare.wait_for("joined")
        self.wait_for_workers(2)
        generation = agents[0].events("running")[-1]["generation"]
        agents[1].kill()
        survivor = agents[0].running(2, after=generation)
        self.assertEqual(spare.running(2)["generation"], survivor["generation"])
        self.finish([agents[0], spare])

    def test_killed_agent_is_left_behind(self):
        host, second, third = self.start(3, "1:3", "--max-restarts", 0)
        before = third.running(3)["generation"]
        pids, seen = third.worker_pids(before), len(self.steps())
        third.kill()
        for pid in pids.values():
            self.assert_gone(pid)
        for agent in (host, second):
            self.assertEqual(agent.running(2, after=before)["restarts"], 0)
        host.wait_for("member_lost")
        self.wait_for_dense(2, seen)
        self.finish([host, second])

    def test_killed_host_is_replaced(self):
        host, second, third = self.start(3, "1:3", "--max-restarts", 0)
        before, seen = host.running(3)["generation"], len(self.steps())
        host.kill()
        for agent in (second, third):
            agent.wait_for("host_lost", how="closed")
            self.assertEqual(agent.running(2, after=before)["restarts"], 0)
        self.assertEqual(len(second.events("hosting")) + len(third.events("hosting")), 1, self.stories())
        self.wait_for_dense(2, seen)
        self.finish([second, third])

    def test_killed_host_of_two(self):
        """No majority is left, but the dead one's kernel says that it is dead: the survivor goes on."""
        host, second = self.start(2, "1:2", "--max-restarts", 0)
        before = host.running(2)["generation"]
        host.kill()
        self.assertEqual(second.running(1, after=before)["restarts"], 0)
        self.finish([second])

    def test_hosts_are_killed_one_after_another(self):
        """Each survivor takes over in turn, and a newcomer still finds the group."""
        port = free_port()
        agents = self.group(3, "1:3", port=port)
        for agent in agents:
            agent.running(3)
        alive = list(agents)
        for world in (2, 1):
            before = alive[0].events("running")[-1]["generation"]
            host = max((a for a in alive if a.events("hosting")), key=lambda a: a.events("hosting")[-1]["epoch"])
            host.kill()
            alive.remove(host)
            for agent in alive:
                agent.running(world, after=before)
        (newcomer,) = self.group(1, "1:3", port=port)
        newcomer.running(2)
        self.finish([*alive, newcomer])

    def test_below_the_minimum_waits(self):
        """Too few to go on: the workers stop and the survivor waits, until somebody comes."""
        port = free_port()
        agents = self.group(2, "2", port=port)
        before = agents[0].running(2)["generation"]
        agents[1].running(2)
        self.wait_for_workers(2)
        pids = agents[0].worker_pids(before)
        agents[1].kill()
        for pid in pids.values():
            self.assert_gone(pid)
        self.assertIsNone(agents[0].process.poll())
        (newcomer,) = self.group(1, "2", port=port)
        agents[0].running(2, after=before)
        self.wait_for_workers(4)
        self.finish([agents[0], newcomer])

    def test_frozen_agent_is_dropped(self):
        """An agent that is there but does nothing (SIGSTOP) is as good as lost; it comes back when it runs again."""
        host, second, third = self.start(3, "1:3", "--heartbeat", "6s")
        before = third.running(3)["generation"]
        third.signal(signal.SIGSTOP)
        again = host.running(2, after=before)["generation"]
        second.running(2, after=before)
        third.signal(signal.SIGCONT)
        for agent in (host, second, third):
            agent.running(3, after=again)
        self.wait_for_workers(3 + 3, lambda line: line["world"] == 3)
        self.finish([host, second, third])

    def test_no_worker_outlives_its_agent(self):
        """Nor does a worker's child or grandchild."""
        agent = self.agent("--standalone", "--nproc-per-node", 2, SCRIPTS / "family.py", self.folder)
        families = [wait_until(lambda: (self.folder / f"family.{rank}").exists() and
                               (self.folder / f"family.{rank}").read_text().split(), agent.story) for rank in range(2)]
        agent.kill()
        for pid in sum(families, []):
            self.assert_gone(pid)

    def test_restart_ends_the_whole_family(self):
        """When one worker dies, the children of all go with it."""
        agent = self.agent("--standalone", "--nproc-per-node", 2, "--max-restarts", 1,
                           SCRIPTS / "family.py", self.folder)
        families = [wait_until(lambda: (self.folder / f"family.{rank}").exists() and
                               (self.folder / f"family.{rank}").read_text().split(), agent.story) for rank in range(2)]
        generation = agent.running(2)["generation"]
        os.kill(int(families[0][0]), signal.SIGKILL)
        agent.running(2, after=generation)
        for pid in sum(families, []):
            self.assert_gone(pid)

    def test_leaving_agent_costs_nothing(self):
        """SIGTERM to one agent: it leaves in order, the others go on without it."""
        host, second = self.start(2, "1:2", "--max-restarts", 0)
        before = host.running(2)["generation"]
        second.signal(signal.SIGTERM)
        self.assertEqual(second.finish(), -signal.SIGTERM, second.story())
        self.assertEqual(host.running(1, after=before)["restarts"], 0)
        self.wait_for_workers(1, lambda line: line["world"] == 1)
        self.finish([host])

    def test_leaving_host_hands_over(self):
        host, second = self.start(2, "1:2", "--max-restarts", 0)
        before = second.running(2)["generation"]
        host.signal(signal.SIGTERM)
        self.assertEqual(host.finish(), -signal.SIGTERM, host.story())
        self.assertEqual(second.running(1, after=before)["restarts"], 0)
        self.finish([second])

    def test_exit_barrier(self):
        """An agent whose workers are done waits for the others."""
        host, second = self.start(2, "2", "--max-restarts", 0)
        self.order("exit.0", 0)
        first = next(agent for agent in (host, second) if agent.running(2)["group_rank"] == 0)
        first.wait_for("exit", rank=0, code=0)
        self.assertIsNone(first.process.poll(), "it waits")
        self.assertFalse(first.events("end"))
        self.finish([host, second])
        ends = [agent.wait_for("end")["mono"] for agent in (host, second)]
        last_exit = max(line["mono"] for agent in (host, second) for line in agent.events("exit"))
        self.assertGreaterEqual(min(ends), last_exit)

    def test_killed_after_its_work_is_done(self):
        """The exit barrier survives the loss of an agent that had finished."""
        host, second = self.start(2, "1:2", "--max-restarts", 0)
        rank = second.running(2)["group_rank"]
        self.order(f"exit.{rank}", 0)
        second.wait_for("exit", rank=rank, code=0)
        second.kill()
        self.finish([host])

    def test_same_node_rank_is_refused(self):
        flags = ["--rdzv-backend", "static", "--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", free_port(),
                 "--heartbeat", "15s"]  # see Case.group
        first = self.agent(*flags, "--node-rank", 0, STEPS, self.folder)
        first.wait_for("hosting")
        twin = self.agent(*flags, "--node-rank", 0, STEPS, self.folder)
        self.assertEqual(twin.finish(), 1, twin.story())
        self.assertRegex(twin.stderr, "node.rank")
        self.assertFalse(twin.events("spawn"))
        second = self.agent(*flags, "--node-rank", 1, STEPS, self.folder)
        first.running(2)  # it was not disturbed
        self.finish([first, second])

    def test_several_at_once(self):
        """Eight agents start together, two are killed together, one joins."""
        port = free_port()
        agents = self.group(8, "2:8", port=port)
        before = max(agent.running(8)["generation"] for agent in agents)
        host = next(agent for agent in agents if agent.events("hosting"))
        other = next(agent for agent in agents if agent is not host)
        host.process.kill()
        other.kill()
        host.process.wait()
        survivors = [agent for agent in agents if agent not in (host, other)]
        before = max(agent.running(6, after=before)["generation"] for agent in survivors)
        seen = len(self.steps())
        survivors += self.group(1, "2:8", port=port)
        for agent in survivors:
            agent.running(7, after=before)
        self.wait_for_dense(7, seen)
        self.finish(survivors)


if __name__ == "__main__":
    harness.main()
