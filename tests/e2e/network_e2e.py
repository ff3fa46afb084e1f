"""Agents on hosts of their own (network namespaces) whose cable is cut and mended."""
import harness
from harness import STEPS

PORT = 29400


class Network(harness.Case):
    def start(self, count, nnodes, *args):
        """One agent a host; the first host's agent hosts the rendezvous."""
        self.net = self.lan(count)
        self.hosts = self.net.hosts
        agents = []
        for host in self.hosts:
            agents.append(self.join(nnodes, host, "--max-restarts", 0, *args))
            agents[-1].wait_for("joined" if len(agents) > 1 else "hosting")
        before = max(agent.running(count)["generation"] for agent in agents)
        self.wait_for_workers(count, lambda line: line["world"] == count)
        return agents, before

    def join(self, nnodes, host, *args):
        # Not the usual 3 s: an agent whose turn does not come on a busy machine would be given up, too.
        return self.agent("--nnodes", nnodes, "--rdzv-endpoint", f"{self.hosts[0].address}:{PORT}", "--rdzv-id", "job",
                          "--heartbeat", "6s", *args, STEPS, self.folder, host=host)

    def address_of_master(self, agents, running):
        """The running event's master address must be the address of the agent with group rank 0."""
        first = next(n for n, agent in enumerate(agents)
                     if agent.events("running", generation=running["generation"], group_rank=0))
        self.assertEqual(running["master_addr"], self.hosts[first].address)

    def assert_stopped(self, agent, generation):
        """The agent stopped its workers of that generation by itself, and lives."""
        for pid in agent.worker_pids(generation).values():
            agent.wait_for("exit", pid=pid)
            self.assert_gone(pid)
        self.assertIsNone(agent.process.poll())

    def assert_never_two(self, agents):
        """No two workers of one rank and generation, and the generations of each agent only grow."""
        spawned = [(line["generation"], line["rank"]) for agent in agents for line in agent.events("spawn")]
        self.assertEqual(len(spawned), len(set(spawned)), self.stories())
        for agent in agents:
            generations = [line["generation"] for line in agent.events("running")]
            self.assertEqual(generations, sorted(generations))

    def test_workers_meet_across_hosts(self):
        agents, before = self.start(3, "3")
        self.address_of_master(agents, agents[2].running(3))
        self.finish(agents)

    def test_cut_member_is_dropped_and_comes_back(self):
        agents, before = self.start(3, "1:3")
        self.net.cut(self.hosts[2])
        again = agents[0].running(2, after=before)["generation"]
        agents[1].running(2, after=before)
        agents[0].wait_for("member_lost")
        self.assert_stopped(agents[2], before)
        self.assertFalse([line for line in agents[2].events("running") if line["generation"] > before])
        self.net.heal(self.hosts[2])
        for agent in agents:
            self.assertEqual(agent.running(3, after=again)["restarts"], 0)
        self.assert_never_two(agents)
        self.wait_for_workers(3 + 3, lambda line: line["world"] == 3)
        self.finish(agents)

    def test_cut_host_loses_the_majority(self):
        """The two that still see each other go on; the old host stops its worker, and comes back as a member."""
        agents, before = self.start(3, "1:3")
        self.net.cut(self.hosts[0])
        again = agents[1].running(2, after=before)["generation"]
        agents[2].running(2, after=before)
        agents[1].wait_for("host_lost", how="silent")
        self.assert_stopped(agents[0], before)
        self.assertFalse([line for line in agents[0].events("running") if line["generation"] > before])
        self.net.heal(self.hosts[0])
        for agent in agents:
            agent.running(3, after=again)
        self.assert_never_two(agents)
        self.finish(agents)

    def test_two_hosts_never_split(self):
        """A tie: the side of the host goes on, after the other one has stopped its worker."""
        agents, before = self.start(2, "1:2")
        self.net.cut(self.hosts[1])
        again = agents[0].running(1, after=before)["generation"]
        self.assert_stopped(agents[1], before)
        stopped = agents[1].events("exit", generation=before)[0]["mono"]
        self.assertLess(stopped, agents[0].wait_for("spawn", generation=again)["mono"])
        self.assertFalse([line for line in agents[1].events("running") if line["generation"] > before])
        self.net.heal(self.hosts[1])
        for agent in agents:
            agent.running(2, after=again)
        self.assert_never_two(agents)
        self.finish(agents)

    def test_short_cut_is_survived(self):
        """A cable out for a moment, shorter than the heartbeat bound, changes nothing."""
        agents, before = self.start(2, "1:2", "--heartbeat", "20s")
        self.net.cut(self.hosts[1])
        harness.time.sleep(1)
        self.net.heal(self.hosts[1])
        self.finish(agents)
        for agent in agents:
            self.assertEqual(agent.events("running")[-1]["generation"], before, agent.story())

    def test_killed_agent_on_another_host(self):
        """Its kernel closes the connection: no heartbeat has to run out."""
        agents, before = self.start(3, "1:3", "--heartbeat", "60s")
        agents[0].kill()
        for agent in agents[1:]:
            agent.wait_for("host_lost", how="closed")
            agent.running(2, after=before)
        self.finish(agents[1:])

    def test_newcomer_after_a_takeover(self):
        """Who asks at the endpoint finds the group, although another agent hosts it now."""
        agents, before = self.start(3, "1:3")
        agents[0].kill()
        again = max(agent.running(2, after=before)["generation"] for agent in agents[1:])
        newcomer = self.join("1:3", self.hosts[0])
        newcomer.running(3)
        for agent in agents[1:]:
            agent.running(3, after=again)
        self.finish([*agents[1:], newcomer])


if __name__ == "__main__":
    harness.main()
