"""The end of a worker's interpreter."""
import os
import subprocess
import sys
import unittest

import testing


class Ending(testing.LibraryTest):
    def test_threads_of_gloo_do_not_take_the_process_down(self):
        workers = []
        port = testing.free_port()
        for rank in range(2):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "PYTHONPATH": testing.LIBRARY}
            script = os.path.join(testing.HERE, "scripts", "lingers.py")
            workers.append(subprocess.Popen([sys.executable, script], env=env, text=True, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE))
        for worker in workers:
            out, err = worker.communicate()
            self.assertEqual((worker.returncode, out), (0, "trained\n"), err)


if __name__ == "__main__":
    unittest.main()
