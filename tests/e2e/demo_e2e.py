"""The demo keeps its promises, notices when a training does not, and leaves nothing behind."""
import os
import signal
import subprocess
import sys
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "demo"))
import telling

DEMO = harness.ROOT / "demo/run.sh"


def heed_interrupts():
    """Whoever runs the tests in the background of a shell ignores SIGINT, and a shell script could not trap it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Demo(harness.Case):
    def start(self):
        """The demo in a session of its own, as in a terminal, with its output in a file."""
        env = self.environment(RUBATO=harness.RUBATO)
        self.output = self.folder / "output"
        with open(self.output, "wb") as output:
            process = subprocess.Popen([DEMO], env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       start_new_session=True, preexec_fn=heed_interrupts)
        self._helpers.append(process)
        return process

    def test_cluster_demo_keeps_its_promises(self):
        process = self.start()
        self.assertEqual(process.wait(450), 0, self.output.read_text())
        for words in ("grew to 4", "replaces", "has adopted the job", "exactly once an epoch", "nothing of it is left"):
            self.assertIn(words, self.output.read_text())
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


if __name__ == "__main__":
    unittest.main()
