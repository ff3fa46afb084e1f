"""The end of a worker's interpreter."""
import os
import subprocess
import sys
import threading
import unittest
from unittest import mock

import testing
import torch.distributed as dist
from rubato import collective
from rubato.torch import ending, init_process_group

LIMIT_S = 120  # only a worker that waits for ever reaches it


class Ending(testing.LibraryTest):
    def run_two(self, script):
        """(code, output, errors) of both workers."""
        workers, port = [], testing.free_port()
        for rank in range(2):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "PYTHONPATH": testing.LIBRARY}
            path = os.path.join(testing.HERE, "scripts", script)
            workers.append(subprocess.Popen([sys.executable, path], env=env, text=True, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE))
            self.addCleanup(workers[-1].kill)
        ends = [worker.communicate(timeout=LIMIT_S) for worker in workers]
        return [(worker.returncode, *end) for worker, end in zip(workers, ends)]

    def test_threads_of_gloo_do_not_take_the_process_down(self):
        for code, out, err in self.run_two("lingers.py"):
            self.assertEqual((code, out), (0, "trained\n"), err)

    def test_of_one_that_fails_does_not_wait_for_the_others(self):
        """Who wait for it."""
        (other, _, of_other), (failed, _, of_failed) = self.run_two("raises.py")
        self.assertIn("ValueError: the script's own", of_failed)
        self.assertNotEqual(failed, 0)
        self.assertNotEqual(other, 0, of_other)

    def test_a_group_that_nobody_waits_for_any_more_is_not_taken_from_the_script(self):
        """It may have begun another `with rubato.elastic(…)` by then."""
        init_process_group("gloo")
        self.addCleanup(dist.destroy_process_group)
        self.addCleanup(collective.teardown)
        others = threading.Event()
        with mock.patch.object(ending, "_LEAVE_S", 0.0), \
                mock.patch.object(collective, "teardown", others.wait):
            ending.leave(failed=False)
            left = [one for one in threading.enumerate() if one.name == "rubato-ending"]
            others.set()
            for one in left:
                one.join()
        self.assertTrue(dist.is_initialized())


if __name__ == "__main__":
    unittest.main()
