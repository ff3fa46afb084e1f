"""What the demos share: telling, waiting, and the proof from the training's record that it went as it should."""
import collections
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUBATO = os.path.abspath(os.environ.get("RUBATO", ROOT / "build/rubato"))
PYTHON = "/usr/bin/python3"  # Debian's, with PyTorch
TRAIN = ROOT / "demo/train.py"
TORCHRUN_TRAIN = ROOT / "demo/torchrun_train.py"
STEPS = 600
RIGHT_LOSS = 0.020575  # of torchrun_train.py, undisturbed, after so many steps, of any size; it begins at 0.74
SAMPLES, EPOCH = 240, 5  # as in torchrun_train.py: samples, and steps that see each of them once
LIMIT = int(os.environ.get("DEMO_LIMIT", 90))  # seconds for any one thing to happen

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


class Broken(Exception):
    """Something is not as promised; the words go to the reader."""


def read_lines(path):
    """The whole JSON lines of a file that is still being written."""
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


class Story:
    """A demo: play() tells and checks, evidence() is shown when it breaks, close() cleans up however it ends."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rubato-demo-"))
        self.begin = time.monotonic()

    def say(self, text, colour="0"):
        print(f"{paint('2', f'{time.monotonic() - self.begin:5.1f} s')}  {paint(colour, text)}", flush=True)

    def title(self, text):
        self.say(text, "1")

    def type(self, command):
        self.say(f"$ {command}", "1;36")

    def good(self, text):
        self.say(f"   {text}", "32")

    def wait(self, what, condition):
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.03)
        raise Broken(f"{what} did not happen within {LIMIT} s")

    def record(self):
        """What the training wrote down so far."""
        raise NotImplementedError

    def steps(self):
        return max((line["done"] for line in self.record() if "done" in line), default=0)

    def trains(self, world, more=60):
        """Waits for some more steps in that world; tells the last."""
        done = self.steps()
        last = self.wait(f"training with {world} workers", lambda: next(
            (line for line in self.record() if line.get("done", 0) >= done + more and line["world"] == world), None))
        self.good(f"step {last['done']:3d} of {STEPS}, {world} workers, loss {last['loss']:.3f}")

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def evidence(self):
        return ""


def prove(record):
    """Every step counted once, every sample once an epoch, the right loss; (starts, steps done again, loss).

    A start of the group goes on from a checkpoint. What an earlier start did after that checkpoint is lost and done
    again: it does not count. What counts must be complete.
    """
    starts = sorted((line["run"], line["resumed"]) for line in record if "resumed" in line)
    if not starts:
        raise Broken("the training left no record")
    if [resumed for _, resumed in starts] != sorted(resumed for _, resumed in starts):
        raise Broken(f"a start went back behind an earlier one: {starts}")
    counts = {}  # step -> the start in which it counts
    for (run, resumed), (_, until) in zip(starts, [*starts[1:], (None, STEPS)]):
        counts.update({step: run for step in range(resumed + 1, until + 1)})
    if sorted(counts) != list(range(1, STEPS + 1)):
        raise Broken("some steps were never done")
    done = [(line["run"], line["done"]) for line in record if "done" in line]
    if sorted(step for run, step in done if counts.get(step) == run) != list(range(1, STEPS + 1)):
        raise Broken("the steps that count were not all done exactly once")

    seen = collections.defaultdict(collections.Counter)
    for line in record:
        if "samples" in line and counts.get(line["step"]) == line["run"]:
            seen[(line["step"] - 1) // EPOCH].update(line["samples"])
    for number in range(STEPS // EPOCH):
        if seen[number] != collections.Counter(range(SAMPLES)):
            raise Broken(f"epoch {number + 1} did not see each of the {SAMPLES} samples exactly once")
    loss = next(line["loss"] for line in record if line.get("done") == STEPS)
    if abs(loss - RIGHT_LOSS) > 0.01 * RIGHT_LOSS:
        raise Broken(f"the loss is {loss:.6f}, not that of an undisturbed training, {RIGHT_LOSS}")
    return len(starts), len(done) - STEPS, loss


def tell(make):
    """Plays a story and ends the process with its result. Ctrl-C and SIGTERM clean up, too."""
    if not os.access(RUBATO, os.X_OK):
        raise SystemExit(f"{RUBATO} is not there: run `make` first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    story = make()
    code = 1
    try:
        story.play()
        code = 0
    except Broken as broken:
        print(paint("1;31", f"demo failed: {broken}"), flush=True)
        print(story.evidence())
    except KeyboardInterrupt:
        print("stopped; cleaning up", flush=True)
        code = 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            story.close()
        except Broken as broken:
            print(paint("1;31", f"demo failed: {broken}"), flush=True)
            code = code or 1
    sys.exit(code)
