"""Real groups of processes with gloo."""
import json
import os
import signal
import time
import unittest

import testing
import rubato.torch  # noqa: F401  before processes are forked

LIMIT_S = 150  # only a broken library reaches it


class GroupCase(testing.LibraryTest):
    def finish(self, processes):
        deadline = time.monotonic() + LIMIT_S
        codes = []
        for process in processes:
            try:
                codes.append(process.wait(max(deadline - time.monotonic(), 0.1)))
            except Exception:
                for other in processes:
                    other.kill()
                raise
        return codes

    def run_group(self, replicas, generation=0, arguments=("3",), folder=None):
        folder = folder or self.folder.name
        codes = self.finish(testing.start_group("train.py", replicas, folder, generation, arguments))
        self.assertEqual(codes, [0] * replicas, testing.output(folder, generation, 0))
        return self.weights(folder, generation)

    def weights(self, folder, generation):
        lines = testing.output(folder, generation, 0).splitlines()
        return json.loads(next(line for line in lines if line.startswith("weights")).split(" ", 1)[1])

    def assert_close(self, one, other):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertAlmostEqual(a, b, places=6)

    def fresh(self, name):
        folder = os.path.join(self.folder.name, name)
        os.makedirs(folder)
        return folder

    def wait_for(self, processes, folder, generation, text):
        deadline = time.monotonic() + LIMIT_S
        while text not in testing.output(folder, generation, 0):
            alive = time.monotonic() < deadline and all(process.poll() is None for process in processes)
            self.assertTrue(alive, testing.output(folder, generation, 0))
            time.sleep(0.02)


class Group(GroupCase):
    def test_the_result_does_not_depend_on_the_number_of_workers(self):
        alone = self.run_group(1, folder=self.fresh("alone"))
        self.assert_close(alone, self.run_group(2, folder=self.fresh("two")))
        self.assert_close(alone, self.run_group(3, folder=self.fresh("three")))
        self.assert_close(alone, self.run_group(1, folder=self.fresh("in-small-steps"), arguments=("3", "--accumulate")))

    def test_adam_sees_the_same_gradients_whatever_the_number_of_workers(self):
        alone = self.run_group(1, folder=self.fresh("alone"), arguments=("3", "--adam"))
        self.assert_close(alone, self.run_group(2, folder=self.fresh("two"), arguments=("3", "--adam")))

    def test_asked_to_go_in_the_middle_and_continued_with_other_sizes(self):
        expected = self.run_group(1, folder=self.fresh("expected"))
        folder = self.fresh("elastic")
        for generation, replicas in enumerate((2, 3, 1)):
            processes = testing.start_group("train.py", replicas, folder, generation, ("3", "--slow", "0.05"))
            self.wait_for(processes, folder, generation, "step")
            processes[-1].send_signal(signal.SIGTERM)  # one is told, all leave
            codes = self.finish(processes)
            if codes == [0] * replicas:
                break  # it was through before the signal came
            self.assertEqual(codes, [143] * replicas, testing.output(folder, generation, 0))
        self.assert_close(expected, self.run_group(2, generation=9, folder=folder))

    def test_killed_in_the_middle_it_goes_on_from_what_was_saved(self):
        expected = self.run_group(1, folder=self.fresh("expected"))
        folder = self.fresh("killed")
        processes = testing.start_group("train.py", 2, folder, 0, ("3", "--slow", "0.05"))
        self.wait_for(processes, folder, 0, "step")
        processes[0].send_signal(signal.SIGTERM)
        self.finish(processes)
        processes = testing.start_group("train.py", 2, folder, 1, ("3", "--slow", "0.05"))
        self.wait_for(processes, folder, 1, "step")
        for process in processes:
            process.kill()
        self.finish(processes)
        self.assert_close(expected, self.run_group(3, generation=2, folder=folder))


if __name__ == "__main__":
    unittest.main()
