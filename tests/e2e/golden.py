"""Golden texts: what a command printed, compared with a file under tests/e2e/golden that a person has read.

    self.assert_golden("up", transcript)        in a Case with GoldenMixin; transcript: what say() returned, joined

RUBATO_GOLDEN=rewrite writes the files anew instead; read the difference in git before you commit it. What differs from
run to run is masked: times, ages, pids, sizes, versions, addresses, folders. Runs of blanks inside a line count as two,
for the width of a column follows what is masked in it. A line of a file that begins with "~ " may be missing: steps of
nodes are looked at now and then, and a quick one is not seen; they are in no order.
"""
import difflib
import os
import re
import subprocess
from pathlib import Path

from harness import RUBATO

FOLDER = Path(__file__).resolve().parent / "golden"
REWRITE = os.environ.get("RUBATO_GOLDEN") == "rewrite"

MASKS = [(re.compile(pattern), put) for pattern, put in (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
    (r"\bpid \d+", "pid N"),
    (r"\bjournal \d+", "journal N"),
    (r"\b\d+(\.\d+)? ([KMGT]iB|B)\b", "SIZE"),
    (r"\b\d+(/\d+)? CPU\b", "N CPU"),
    (r"(?<![\w.])\d+(m \d+)?[smhd]\b", "AGE"),
    (r"^(Python|PyTorch)  ok  .*", r"\1  ok  VERSION"),
    (r"^(PyTorch)  warn  .*", r"\1  ok  VERSION"),
    (r"^GPU  ok  .*", "GPU  ok  COUNT"),
    (r"(TIME  head-started  head) \d+", r"\1 N"),
)]
STEP = re.compile(r"  (head|worker-\d+)  (\d/6 |requested)|TIME  node-stepped")


def masked(text, words):
    """`words`: what else to replace, longest first."""
    lines = []
    for line in text.splitlines():
        for word in sorted(words, key=len, reverse=True):
            line = line.replace(word, words[word])
        line = re.sub(r"(?<=\S)  +", "  ", line.rstrip())
        for pattern, put in MASKS:
            line = pattern.sub(put, line)
        lines.append(line)
    return lines


class GoldenMixin:
    """For a RemoteCase: its machines are called as in the documentation, 10.0.0.1 and so on."""

    def say(self, *args, code=0, sort=False):
        """A command as typed, and what it shows on a terminal that is not one: both outputs in their order."""
        done = subprocess.run([RUBATO, *map(str, args)], env=self.environment(), cwd=self.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}")
        words = {host.address: f"10.0.0.{number}" for number, host in enumerate(self.hosts, 1)}
        words |= {self.hosts.subnet + ".99": "10.0.0.99", str(self.folder): "FOLDER"}
        lines = masked(done.stdout, words)
        if sort:
            lines.sort()
        shown = " ".join(f"'{word}'" if " " in word else word for word in map(str, args))
        return "\n".join([f"$ rubato {shown}", *lines, *([f"[exit code {code}]"] if code else []), ""])

    def assert_golden(self, name, text):
        path = FOLDER / f"{name}.txt"
        before = path.read_text().splitlines() if path.exists() else []
        may_miss = {line[2:] for line in before if line.startswith("~ ")}
        actual = self._without_events(text.splitlines())
        if REWRITE:
            self._rewrite(path, actual, may_miss)
            return
        seen = [line for line in actual if line not in may_miss]
        wanted = [line for line in before if not line.startswith("~ ")]
        if seen == wanted:
            return
        lines = difflib.unified_diff(wanted, seen, f"golden/{name}.txt", "what was printed", lineterm="")
        difference = "\n".join(lines)
        self.fail(f"the words have changed:\n{difference}\n\n"
                  f"if they are better now: RUBATO_GOLDEN=rewrite {os.path.basename(__file__)[:-3]}_e2e.py, "
                  "and read the difference in git")

    @staticmethod
    def _without_events(lines):
        """The last events of `status` are those of steps, mostly: which, depends on how quick they were."""
        return [line for line in lines if not re.match(r"  AGE  node ", line)]

    @staticmethod
    def _rewrite(path, actual, may_miss):
        out, steps = [], []
        for line in [*actual, None]:
            if line is not None and STEP.match(line):
                steps.append(line)
                continue
            if steps:
                out += [f"~ {step}" for step in sorted({*steps, *(may_miss if len(may_miss) else ())})]
                steps = []
            if line is not None:
                out.append(line)
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(out) + "\n")
