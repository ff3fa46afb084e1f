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

    def start_held(self, replicas, folder, generation, script="train.py", arguments=("3", "--slow", "0.05"), **variables):
        """A group that does some steps, and no more until let_go(): it is not through before the test has its turn."""
        hold = os.path.join(folder, "hold")
        with open(hold, "w", encoding="utf-8"):
            pass
        return testing.start_group(script, replicas, folder, generation, arguments,
                                   variables={"RUBATO_TEST_HOLD": hold, **variables})

    def let_go(self, folder):
        os.unlink(os.path.join(folder, "hold"))

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

    def test_sparse_gradients(self):
        for kind in ((), ("--adam",), ("--accumulate",)):
            with self.subTest(kind):
                arguments = ("3", "--sparse", *kind)
                alone = self.run_group(1, folder=self.fresh("-".join(("alone", *kind))), arguments=arguments)
                two = self.run_group(2, folder=self.fresh("-".join(("two", *kind))), arguments=arguments)
                self.assert_close(alone, two)

    def weights_of_all(self, replicas, *arguments):
        folder = self.fresh("-".join((str(replicas), *arguments)))
        codes = self.finish(testing.start_group("eval_mode.py", replicas, folder, 0, arguments))
        outputs = [testing.output(folder, 0, rank) for rank in range(replicas)]
        self.assertEqual(codes, [0] * replicas, outputs[0])
        return [json.loads(text[text.index("weights ") + 8 :].splitlines()[0]) for text in outputs]

    def test_a_model_in_evaluation_mode_is_trained_by_all_workers_together(self):
        for kind in ("frozen", "forgotten", "second", "inline", "small", "past"):
            with self.subTest(kind):
                alone, = self.weights_of_all(1, kind)
                for weights in self.weights_of_all(3, kind):
                    self.assert_close(alone, weights)

    def test_outside_of_the_librarys_loops_too(self):
        first, second = self.weights_of_all(2, "outside")
        self.assert_close(first, second)

    def test_asked_to_go_in_the_middle_and_continued_with_other_sizes(self):
        expected = self.run_group(1, folder=self.fresh("expected"))
        folder = self.fresh("elastic")
        for generation, replicas in enumerate((2, 3, 1)):
            processes = self.start_held(replicas, folder, generation)
            self.wait_for(processes, folder, generation, "step")
            processes[-1].send_signal(signal.SIGTERM)  # one is told, all leave
            self.let_go(folder)
            codes = self.finish(processes)
            self.assertEqual(codes, [143] * replicas, testing.output(folder, generation, 0))
        self.assert_close(expected, self.run_group(2, generation=9, folder=folder))

    def test_asked_to_go_between_two_updates_of_the_script(self):
        for stop_at in (1, 2, 5):
            folder = self.fresh(f"stop-at-{stop_at}")
            arguments = ("2", "60", "6")
            stopped = testing.start_group("own_accumulation.py", 2, folder, 0, (*arguments, "--stop-at", str(stop_at)))
            self.assertEqual(self.finish(stopped), [143, 143], testing.output(folder, 0, 0))
            codes = self.finish(testing.start_group("own_accumulation.py", 3, folder, 1, arguments))
            self.assertEqual(codes, [0] * 3, testing.output(folder, 1, 0))
            self.assertEqual(json.loads(testing.output(folder, 1, 0).split("result ")[1])["counts"], [2.0] * 60)

    def test_a_worker_alone_asked_to_go_between_two_updates_of_the_script(self):
        """After fifty updates, when nothing is measured in most of its steps."""
        arguments = ("20", "60", "6")
        stopped = testing.start_group("own_accumulation.py", 1, self.folder.name, 0, (*arguments, "--stop-at", "131"))
        self.assertEqual(self.finish(stopped), [143], testing.output(self.folder.name, 0, 0))
        codes = self.finish(testing.start_group("own_accumulation.py", 1, self.folder.name, 1, arguments))
        text = testing.output(self.folder.name, 1, 0)
        self.assertEqual(codes, [0], text)
        self.assertEqual(json.loads(text.split("result ")[1])["counts"], [20.0] * 60)

    def test_the_same_lives_draw_the_same_numbers(self):
        def live(name):
            folder, drawn = self.fresh(name), []
            for generation, replicas in enumerate((2, 3)):
                codes = self.finish(testing.start_group("draws.py", replicas, folder, generation, ("3",)))
                said = [testing.output(folder, generation, rank) for rank in range(replicas)]
                self.assertEqual(codes, [143] * replicas, said[0])
                drawn.append([json.loads(text.split("drawn ")[-1]) for text in said])
            return drawn

        first, second = live("first"), live("second")
        self.assertEqual(first, second)
        later = [number for worker in first[1] for number in worker]
        self.assertEqual(len(set(later)), 9, "workers of a later life do not draw the same")
        self.assertFalse(set(later) & {number for worker in first[0] for number in worker})

    def test_workers_without_the_librarys_loops_stop_after_the_same_step(self):
        processes = testing.start_group("stop.py", 3, self.folder.name)
        self.wait_for(processes, self.folder.name, 0, "step 3")  # by then all have asked once
        processes[1].send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(processes), [143] * 3, testing.output(self.folder.name, 0, 0))
        ends = {testing.output(self.folder.name, 0, rank).splitlines()[-1] for rank in range(3)}
        self.assertEqual(len(ends), 1, ends)

    def test_killed_in_the_middle_it_goes_on_from_what_was_saved(self):
        expected = self.run_group(1, folder=self.fresh("expected"))
        folder = self.fresh("killed")
        processes = self.start_held(2, folder, 0)
        self.wait_for(processes, folder, 0, "step")
        processes[0].send_signal(signal.SIGTERM)
        self.let_go(folder)
        self.assertEqual(self.finish(processes), [143] * 2, testing.output(folder, 0, 0))
        processes = self.start_held(2, folder, 1)
        self.wait_for(processes, folder, 1, "step")
        for process in processes:
            process.kill()
        self.finish(processes)
        self.assert_close(expected, self.run_group(3, generation=2, folder=folder))


if __name__ == "__main__":
    unittest.main()
