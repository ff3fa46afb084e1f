"""The demo keeps its promises, notices when a training does not, and leaves nothing behind."""
import os
import signal
import subprocess
import sys
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "demo"))
import telling
import timeline

DEMO = harness.ROOT / "demo/run.sh"


def heed_interrupts():
    """Whoever runs the tests in the background of a shell ignores SIGINT, and a shell script could not trap it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Demo(harness.Case):
    def start(self):
        """The demo in a session of its own, as in a terminal, with its output in a file."""
        # Slower: the training must not be over before a busy machine has told the story.
        env = self.environment(RUBATO=harness.RUBATO, DEMO_STEP_TIME="0.08", DEMO_LIMIT="400")
        self.output = self.folder / "output"
        with open(self.output, "wb") as output:
            process = subprocess.Popen([DEMO], env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       start_new_session=True, preexec_fn=heed_interrupts)
        self._helpers.append(process)
        return process

    def test_cluster_demo_keeps_its_promises(self):
        process = self.start()
        self.assertEqual(process.wait(800), 0, self.output.read_text())
        for text in ("grew to 4", "was left after", "replaces", "has adopted the job", "resized 4→3 in place",
                     "none was restarted", "exactly once an epoch", "nothing of it is left"):
            self.assertIn(text, self.output.read_text())
        self.assertEqual(list(self.folder.glob("rubato-demo-*")), [])

    def test_interrupted_demo_cleans_up(self):
        process = self.start()
        harness.wait_until(lambda: "workers run after" in self.output.read_text(), "the start of the training")
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(harness.WAIT), 130, self.output.read_text())
        self.assert_nothing_left()
        self.assertEqual(list(self.folder.glob("rubato-demo-*")), [])


def perfect():
    """The record of an undisturbed training with two workers."""
    lines = [{"run": 1, "resumed": 0, "world": 2}]
    for step in range(1, telling.STEPS + 1):
        part = [s for s in range(telling.SAMPLES) if s % telling.EPOCH == step % telling.EPOCH]
        lines += [{"run": 1, "step": step, "rank": rank, "samples": part[rank::2]} for rank in range(2)]
        lines.append({"run": 1, "done": step, "world": 2, "loss": telling.RIGHT_LOSS})
    return lines


class Proof(unittest.TestCase):
    def test_proof_accepts_what_was_done_again(self):
        record = perfect()
        again = [line | {"run": 2} for line in record if line.get("step", line.get("done", 0)) > 10]
        record = [line for line in record if line.get("step", line.get("done", 0)) <= 14]
        starts, twice, _ = telling.prove([*record, {"run": 2, "resumed": 10, "world": 2}, *again])
        self.assertEqual((starts, twice), (2, 4))

    def test_proof_notices_what_is_wrong(self):
        lost = [line for line in perfect() if line.get("step") != 7 or line["rank"] != 1]
        twice = [*perfect(), perfect()[5]]
        skipped = [line for line in perfect() if line.get("done") != 9]
        wrong = [line | {"loss": 0.5} if line.get("done") == telling.STEPS else line for line in perfect()]
        gap = [line | {"resumed": 5} if "resumed" in line else line for line in perfect()]
        self.assertTrue(telling.prove(perfect()))
        for record in (lost, twice, skipped, wrong, gap, []):
            with self.assertRaises(telling.Broken):
                telling.prove(record)


def adaptive():
    """What two workers note in two passes over six samples, with batches of two, then of three; one step was broken."""
    lines = [{"step": 3, "generation": 1, "rank": 0, "world": 2, "pid": 7, "epoch": 0, "samples": [4, 5]}]
    steps = [(1, 1, 0, [0, 1]), (2, 1, 0, [2, 3]), (3, 2, 0, [5, 4]), (4, 2, 1, [0, 1, 5]), (5, 2, 1, [2, 3, 4])]
    for step, generation, epoch, samples in steps:
        where = {"generation": generation, "world": 2, "epoch": epoch}
        lines += [{**where, "step": step, "rank": rank, "pid": 7 + rank, "samples": samples[rank::2]}
                  for rank in range(2)]
        lines += [{"done": step, "generation": generation} for _ in range(2)]
    return [*lines, {"finished": 5, "epochs": 2, "accuracy": 0.9}]


class AdaptiveProof(unittest.TestCase):
    def test_proof_of_samples_accepts_a_step_that_was_taken_again(self):
        self.assertEqual(timeline.prove_samples(adaptive(), 6), (5, 2, 1, 2, 0.9))

    def test_steps_after_a_checkpoint_that_were_lost_do_not_count(self):
        lost = [line | {"generation": 1} for line in adaptive() if line.get("step", line.get("done", 0)) >= 4]
        self.assertEqual(timeline.prove_samples(lost + adaptive(), 6)[:3], (5, 2, 3))

    def test_proof_of_samples_notices_what_is_wrong(self):
        whole = adaptive()
        lost = [line for line in whole if line.get("step") != 2 or line["rank"] != 1]
        twice = [line | {"samples": [2, 2]} if line.get("step") == 2 and line["rank"] == 0 else line for line in whole]
        skipped = [line for line in whole if line.get("done") != 4]
        both = [line | {"generation": 1} if line.get("step", line.get("done")) == 4 else line for line in whole]
        for record in (lost, twice, skipped, both, whole[:-1], []):
            with self.assertRaises(telling.Broken):
                timeline.prove_samples(record, 6)

    def test_the_timeline_has_sizes_and_pauses(self):
        lines = [{"time": 0.1 * i, "generation": 1, "step": i, "workers": 2, "batch_size": 8 if i < 5 else 16,
                  "loss": 1.0} for i in range(10)]
        lines += [{"time": 2.0 + 0.1 * i, "generation": 2, "step": 10 + i, "workers": 3, "batch_size": 24, "loss": 0.5}
                  for i in range(5)]
        first, second = timeline.timeline(lines, {2: "resized 2→3 in place"})
        self.assertEqual((first.workers, first.batches, first.steps, first.pause), (2, [8, 16], 10, None))
        self.assertEqual((second.workers, second.batches, second.change), (3, [24], "resized 2→3 in place"))
        self.assertAlmostEqual(second.pause, 1.0)
        self.assertIn("■■■", list(timeline.render([first, second]))[2])


if __name__ == "__main__":
    unittest.main()
