"""Real DDP training over gloo goes through every fault and ends with the loss of an undisturbed training."""
import json
import os
import signal
import subprocess

import harness
from harness import PYTHON, SCRIPTS, free_port, wait_until

TRAIN = SCRIPTS / "ddp_train.py"
STEPS = 60
PACE = 0.01


class Training(harness.Case):
    def start(self, count, nnodes, *args, port=None):
        return self.group(count, nnodes, *args, script=(TRAIN, self.folder, STEPS, PACE), port=port)

    def setUp(self):
        super().setUp()
        self.order("limit", 0)  # the training goes as far as the test has got, on the quickest and the slowest machine

    def done(self):
        return max((line["step"] for line in self.steps() if "step" in line), default=0)

    def wait_for_step(self, more=5, **fields):
        """Lets it do some more steps, and waits for them, with these fields (world=3); the last of them."""
        wanted = self.done() + more
        self.order("limit", wanted)

        def found():
            lines = [line for line in self.steps() if line.get("step", 0) >= wanted
                     and all(line[k] == v for k, v in fields.items())]
            return lines and lines[-1]

        return wait_until(found, lambda: f"step {wanted} {fields}, have {self.steps()[-3:]}\n{self.stories()}")

    def regrouped(self, agents, world, before):
        """Waits until all of them run a generation of this size above `before`; its number."""
        return max(agent.running(world, after=before)["generation"] for agent in agents)

    def assert_trained(self, agents):
        self.order("limit", STEPS)
        for agent in agents:
            self.assertEqual(agent.finish(), 0, self.stories())
        loss = json.loads((self.folder / "result.json").read_text())["loss"]
        reference = subprocess.run([PYTHON, TRAIN, "--reference", str(STEPS)], check=True, capture_output=True).stdout
        self.assertAlmostEqual(loss, float(reference), places=9)
        resumed = [line["first"] for line in self.steps() if line.get("rank") == 0]
        self.assertEqual(resumed, sorted(resumed), "no start went back behind an earlier one")
        return resumed

    def test_worker_is_killed(self):
        agent = self.agent("--standalone", "--nproc-per-node", 2, "--max-restarts", 1, TRAIN, self.folder, STEPS, PACE)
        self.wait_for_step()
        os.kill(next(iter(agent.worker_pids(agent.running(2)["generation"]).values())), signal.SIGKILL)
        resumed = self.assert_trained([agent])
        self.assertEqual(len(resumed), 2)
        self.assertGreater(resumed[1], 0)
        self.assertEqual(agent.wait_for("end")["restarts"], 1)

    def test_agent_joins(self):
        port = free_port()
        agents = self.start(1, "1:2", port=port)
        self.wait_for_step(world=1)
        agents += self.start(1, "1:2", port=port)
        self.regrouped(agents, 2, 0)
        self.wait_for_step(world=2)
        self.assert_trained(agents)

    def test_agent_is_killed(self):
        """The survivors' workers fail when their peer is gone; that must not cost a restart."""
        agents = self.start(3, "1:3", "--max-restarts", 0)
        before = self.regrouped(agents, 3, 0)
        self.wait_for_step(world=3)
        lost = next(agent for agent in agents if not agent.events("hosting"))
        lost.kill()
        agents.remove(lost)
        self.regrouped(agents, 2, before)
        self.wait_for_step(world=2)
        self.assert_trained(agents)

    def test_host_is_killed(self):
        agents = self.start(3, "1:3", "--max-restarts", 0)
        before = self.regrouped(agents, 3, 0)
        self.wait_for_step(world=3)
        host = next(agent for agent in agents if agent.events("hosting"))
        host.kill()
        agents.remove(host)
        self.regrouped(agents, 2, before)
        self.wait_for_step(world=2)
        self.assert_trained(agents)

    def test_everything_in_one_life(self):
        """Grow, lose a worker, lose the host, grow again."""
        port = free_port()
        agents = self.start(1, "1:3", "--max-restarts", 1, port=port)
        self.wait_for_step(world=1)
        agents += self.start(1, "1:3", "--max-restarts", 1, port=port)
        generation = self.regrouped(agents, 2, 0)
        self.wait_for_step(world=2)
        os.kill(next(iter(agents[1].worker_pids(generation).values())), signal.SIGKILL)
        generation = self.regrouped(agents, 2, generation)
        self.wait_for_step(world=2)
        agents.pop(0).kill()
        generation = self.regrouped(agents, 1, generation)
        self.wait_for_step(world=1)
        agents += self.start(1, "1:3", "--max-restarts", 1, port=port)
        self.regrouped(agents, 2, generation)
        self.wait_for_step(world=2)
        self.assert_trained(agents)

    def test_warm_training(self):
        """The prewarmed interpreter trains as well, and a restart is forked from it."""
        agent = self.agent("--standalone", "--nproc-per-node", 2, "--max-restarts", 1, "--prewarm", "torch",
                           TRAIN, self.folder, STEPS, PACE)
        agent.wait_for("prewarm", state="ready")
        self.wait_for_step()
        generation = agent.running(2)["generation"]
        os.kill(next(iter(agent.worker_pids(generation).values())), signal.SIGKILL)
        again = agent.running(2, after=generation)["generation"]
        self.assert_trained([agent])
        self.assertEqual([line["warm"] for line in agent.events("spawn", generation=again)], [True, True])


if __name__ == "__main__":
    harness.main()
