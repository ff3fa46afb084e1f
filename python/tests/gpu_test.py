"""What needs a GPU; by itself, so that a machine without one skips this file and no other."""
import json
import os
import unittest

import testing
from group_test import GroupCase
from inplace_test import SameResult


# PyTorch must not be asked: a process that has touched a GPU cannot fork others that use it.
@unittest.skipUnless(os.path.exists("/dev/nvidiactl"), "needs a GPU")
class Gpu(GroupCase):
    def test_a_gpu_gives_what_a_cpu_gives(self):
        alone = self.run_group(1, folder=self.fresh("cpu"))
        self.assert_close(alone, self.run_group(1, folder=self.fresh("gpu"), arguments=("3", "--cuda", "--accumulate")))

    def found(self, name, *arguments):
        """What on_gpu.py found in this check."""
        folder = self.fresh("-".join((name, *arguments)))
        codes = self.finish(testing.start_group("on_gpu.py", 1, folder, 0, (name, *arguments)))
        said = testing.output(folder, 0, 0)
        self.assertEqual(codes, [0], said)
        return json.loads(next(line for line in said.splitlines() if line.startswith(name + " ")).split(" ", 1)[1])

    def test_pytorchs_own_scaler_and_compiler(self):
        self.found("precision")

    def test_a_model_of_shards(self):
        self.found("sharded")

    def test_the_noise_of_gradients_is_measured_alike(self):
        on_cpu, on_gpu = self.found("statistics", "--cpu"), self.found("statistics")
        for key in ("sqr", "var"):
            self.assert_close(on_cpu[key], on_gpu[key])
        self.assertAlmostEqual(on_cpu["weights"], on_gpu["weights"], places=6)


@unittest.skipUnless(os.path.exists("/dev/nvidiactl"), "needs a GPU")
class GpuInPlace(SameResult):
    """Several workers share the GPU, which gloo allows and NCCL does not."""

    def disturbed(self, *arguments):
        # A newcomer compiles for a while; the others must not be through by then.
        slow = 1.5 if "--compile" in arguments else 0.01
        return super().disturbed(*arguments, "--cuda", "--gloo", slow=slow)

    def test_mixed_precision_and_a_compiled_model(self):
        expected = self.undisturbed(6, "--clip")
        self.assert_close(expected, self.disturbed(6, "--clip", "--scaler", "--compile"))

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
