"""What needs a GPU; by itself, so that a machine without one skips this file and no other."""
import os
import unittest

from group_test import GroupCase
from inplace_test import SameResult


# PyTorch must not be asked: a process that has touched a GPU cannot fork others that use it.
@unittest.skipUnless(os.path.exists("/dev/nvidiactl"), "needs a GPU")
class Gpu(GroupCase):
    def test_a_gpu_gives_what_a_cpu_gives(self):
        alone = self.run_group(1, folder=self.fresh("cpu"))
        self.assert_close(alone, self.run_group(1, folder=self.fresh("gpu"), arguments=("3", "--cuda", "--accumulate")))


@unittest.skipUnless(os.path.exists("/dev/nvidiactl"), "needs a GPU")
class GpuInPlace(SameResult):
    """Several workers share the GPU, which gloo allows and NCCL does not."""

    def disturbed(self, *arguments):
        return super().disturbed(*arguments, "--cuda", "--gloo")

    def test_nccl_with_one_worker(self):
        agent = self.agent("train.py", 6, "--cuda")
        expected = self.undisturbed(6)
        for one, other in zip(expected, self.weights(agent, self.start_members(agent, 1)[0])):
            self.assertAlmostEqual(one, other, places=6)

    def test_nccl_moves_to_another_worker(self):
        """Each one has the GPU for itself: the first saves and leaves, the second goes on."""
        agent = self.agent("train.py", 6, "--cuda", "--slow", 0.01)
        first = self.start_members(agent, 1)[0]
        agent.wait_for_step(first, 3)
        second = agent.start()
        agent.wait_for_state(second, "ready")
        agent.publish([first])  # the group is left and formed again
        agent.wait_for_state(first, "training", 2)
        self.assertIsNotNone(self.weights(agent, first))


del SameResult, GroupCase  # they are tested where they are

if __name__ == "__main__":
    unittest.main()
