"""What needs a GPU; by itself, so that a machine without one skips this file and no other."""
import unittest

import torch
from group_test import GroupCase


@unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
class Gpu(GroupCase):
    def test_a_gpu_gives_what_a_cpu_gives(self):
        alone = self.run_group(1, folder=self.fresh("cpu"))
        self.assert_close(alone, self.run_group(1, folder=self.fresh("gpu"), arguments=("3", "--cuda", "--accumulate")))


if __name__ == "__main__":
    unittest.main()
