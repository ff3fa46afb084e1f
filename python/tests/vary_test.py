"""Batch sizes that change with each plan and between plans: each sample still counts once.

RUBATO_PROCESSES=1 gives loaders processes of their own, too. Of 319 such runs on a very busy machine one hung in a fork of
a process with threads (rubato/torch/forking.py), so that this is not a part of `make test`.
"""
import os
import random
import signal
import unittest

from inplace_test import InPlaceCase, RandomSchedules

FIRST, COUNT = (int(os.environ.get(name, default)) for name, default in (("RUBATO_FIRST", "0"), ("RUBATO_VARIED", "8")))
PROCESSES = float(os.environ.get("RUBATO_PROCESSES", "0"))


class Varied(InPlaceCase):
    strike = RandomSchedules.strike

    def play(self, seed):
        draw = random.Random(seed)
        epochs, length, batch = draw.randint(1, 3), draw.randint(20, 70), draw.randint(2, 7)
        arguments = [epochs, length, batch, seed, "--slow", 0.004]
        for chance, more in ((0.3, ["--stream"]), (0.4, ["--accumulate"]), (0.3, ["--saves", 0.03]),
                             (PROCESSES, ["--processes", draw.randint(1, 2)])):
            arguments += more if draw.random() < chance else []
        agent = self.agent("vary.py", *arguments)
        self.start_members(agent, draw.randint(1, 3))
        stopped = []
        for _ in range(draw.randint(1, 4)):
            first = agent.members[0]
            agent.wait_for_step(first, agent.step(first)[1] + draw.randint(0, 5))
            if any(agent.workers[name].poll() == 0 for name in agent.members):
                break  # it was through before
            self.strike(agent, draw, stopped)
        for name in stopped:
            agent.workers[name].send_signal(signal.SIGCONT)
        for name in list(agent.members):
            if name in agent.members:
                agent.wait_for_end(name)
        # Whoever was killed when the others had ended is in the last plan still.
        agent.members = [name for name in agent.members if agent.workers[name].poll() != -signal.SIGKILL]
        for name in agent.members:
            counts = self.result(agent, name)["counts"]
            if counts != [float(epochs)] * length:
                self.fail(f"{arguments}: {counts}\n{agent.story()}")

    def test_each_sample_counts_once(self):
        for seed in range(FIRST, FIRST + COUNT):
            with self.subTest(seed=seed):
                self.play(seed)
                self.doCleanups()


del InPlaceCase, RandomSchedules  # they are tested where they are

if __name__ == "__main__":
    unittest.main()
