"""The rendezvous in a real etcd: one, and a cluster of three that loses its leader."""
import os
import signal

import harness
from harness import STEPS


class EtcdRendezvous(harness.Case):
    def start(self, members, count, nnodes, *args):
        for member in members:
            member.wait_until_ready()
        endpoint = ",".join(member.endpoint for member in members)
        silence = [] if "--heartbeat" in args else ["--heartbeat", "15s"]  # see Case.group
        return [self.agent("--rdzv-backend", "etcd", "--rdzv-endpoint", endpoint, "--rdzv-id", "job",
                           "--nnodes", nnodes, *silence, *args, STEPS, self.folder) for _ in range(count)]

    def test_two_agents_meet(self):
        agents = self.start(self.etcd(), 2, "2", "--nproc-per-node", 2)
        lines = self.wait_for_workers(4)
        self.assertEqual(sorted(line["rank"] for line in lines), [0, 1, 2, 3])
        self.assertEqual(len({line["master"] for line in lines}), 1)
        self.finish(agents)

    def test_two_jobs_share_one_etcd(self):
        members = self.etcd()
        agents = [self.start(members, 1, "1", "--rdzv-id", job)[0] for job in ("one", "two")]
        for agent in agents:
            agent.running(1)
        self.finish(agents)

    def test_failure_restarts_all(self):
        agents = self.start(self.etcd(), 2, "2", "--max-restarts", 1)
        self.wait_for_workers(2)
        self.order("exit.1", 5)
        self.wait_for_workers(2, lambda line: line["restart"] == 1)
        self.finish(agents)

    def test_joins_and_losses(self):
        members = self.etcd()
        agents = self.start(members, 2, "1:3", "--heartbeat", "5s")
        before = agents[0].running(2)["generation"]
        agents[1].running(2)
        agents += self.start(members, 1, "1:3", "--heartbeat", "5s")
        before = agents[0].running(3, after=before)["generation"]
        for agent in agents:
            agent.running(3)
        agents.pop(0).kill()
        for agent in agents:
            self.assertEqual(agent.running(2, after=before)["restarts"], 0)
        self.wait_for_workers(2, lambda line: line["world"] == 2)
        self.finish(agents)

    def test_the_group_can_come_again(self):
        """A job that ended leaves nothing in etcd that would confuse the next one of the same name."""
        members = self.etcd()
        self.finish(self.start(members, 2, "2"))
        (self.folder / "finish").unlink()
        agents = self.start(members, 2, "2")
        for agent in agents:
            agent.running(2)
        self.finish(agents)

    def test_cluster_loses_its_leader(self):
        members = self.etcd(3)
        agents = self.start(members, 2, "1:3", "--max-restarts", 1)
        before = agents[0].running(2)["generation"]
        agents[1].running(2)
        self.wait_for_workers(2, lambda line: line["world"] == 2)
        leader = harness.wait_until(lambda: self.leader_of(members), "a leader")
        leader.kill()
        # The group works with the two that are left: a failure, then a newcomer.
        self.order("exit.1", 5)
        for agent in agents:
            after = agent.running(2, after=before)["generation"]
        agents += self.start([member for member in members if member is not leader], 1, "1:3", "--max-restarts", 1)
        for agent in agents:
            agent.running(3, after=after)
        self.finish(agents)

    @staticmethod
    def leader_of(members):
        """None during an election."""
        try:
            return next((member for member in members if member.is_leader()), None)
        except OSError:
            return None

    def test_etcd_comes_back(self):
        """While etcd is away the workers go on; afterwards the group can change again."""
        members = self.etcd()
        agents = self.start(members, 1, "1:2")
        before = agents[0].running(1)["generation"]
        self.wait_for_workers(1)
        os.kill(members[0].process.pid, signal.SIGSTOP)
        harness.time.sleep(1)
        os.kill(members[0].process.pid, signal.SIGCONT)
        agents += self.start(members, 1, "1:2")
        for agent in agents:
            agent.running(2, after=before)
        self.finish(agents)

    def test_dead_etcd(self):
        """Nothing listens there: the error names the address and the time that was waited."""
        port = harness.free_port()
        agent = self.agent("--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job",
                           "--rdzv-conf", "join_timeout=2", STEPS, self.folder)
        self.assertEqual(agent.finish(), 1, agent.story())
        self.assertIn(f"127.0.0.1:{port}", agent.stderr)
        self.assertIn("etcd", agent.stderr)

    def test_not_an_etcd(self):
        """Something answers, but it is no etcd."""
        port = harness.free_port()
        self.helper([harness.PYTHON, "-m", "http.server", "--bind", "127.0.0.1", str(port)], cwd=self.folder)
        agent = self.agent("--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job",
                           "--rdzv-conf", "join_timeout=2", STEPS, self.folder)
        self.assertEqual(agent.finish(), 1, agent.story())
        self.assertIn(f"127.0.0.1:{port}", agent.stderr)


if __name__ == "__main__":
    harness.main()
