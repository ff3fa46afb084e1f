#!/usr/bin/env python3
"""Runs the tests of a build folder, and ends with one line: `N passed, N failed`, or `N passed, N failed, N skipped`.

    tools/test.py BUILD_FOLDER [-j N] [-L LABEL] [--only PATTERN] [--list | --ship-seconds]

CMake says what the tests are (`ctest` runs the same ones); this program runs them in an order in which suites end one
after the other, prints a line for each suite as it ends, and keeps all their output in BUILD_FOLDER/tests.log. Failures
come at the end, with what they printed and the command that runs each one again.

--repeat 20 --busy 2 looks for tests that fail by chance: each one twenty times, beside two loops that use up CPUs.
Properties draw the same cases each time, so that the first run of a newcomer does not meet a rare one, and others with
each repetition (RC_PARAMS is rapidcheck's, and yours if you set it).

PATTERN is a part of a name, or a pattern with * and ?; several are separated by commas:
    --only 'e2e/faults*'     --only Quorum     --only tidy,core/Task
"""
import argparse
import contextlib
import fnmatch
import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "tools/test_seconds.json"  # of each suite on two cores: for the first run
QUICK = ("tidy", "tidy_test", "links_test", "test_test", "trial_test")  # first; then unit tests, seeds, end to end
SHOWN_LINES = 150    # of a failed test's output; the log has all
TERM_MAX_S = 30      # for a test that ran out of its time to take away what it made
UNKNOWN_S = 0.1      # of a test that nobody has timed


@dataclass
class Test:
    name: str
    command: list
    timeout_s: float = 1500.0
    env: dict = field(default_factory=dict)
    cwd: str = None
    labels: list = field(default_factory=list)
    skip_code: int = None
    skip_pattern: str = ""
    seconds: float = UNKNOWN_S  # expected
    turn: int = 0  # which repetition it is

    @property
    def suite(self):
        """core/Quorum.Half -> core; e2e/faults_e2e.test_x -> e2e/faults; simulate/chaos:1..900 -> simulate."""
        if self.name.startswith("e2e/"):
            return self.name.partition(".")[0].removesuffix("_e2e")
        return self.name.partition("/")[0]

    def phase(self):
        if self.suite in QUICK:
            return 0
        if self.suite.startswith("e2e/kube"):
            return 4  # Kubernetes may still be built beside the others
        return 3 if self.suite.startswith("e2e/") else 2 if ":" in self.name else 1

    def again(self):
        """The command that runs it alone, as a person would type it."""
        env = [f"{name}={shlex.quote(short(value))}" for name, value in self.env.items()]
        return " ".join([*env, shlex.join(short(word) for word in self.command if not word.startswith("--gtest_also"))])


@dataclass
class Result:
    test: Test
    state: str  # "passed", "failed", "skipped"
    seconds: float
    output: str
    note: str = ""


def short(word):
    """A path below the checkout as seen from there, when we are there."""
    return os.path.relpath(word, ROOT) if word.startswith(f"{ROOT}/") and Path.cwd() == ROOT else word


def load(folder):
    """What CMake knows of the tests of a build folder."""
    words = ["ctest", "--test-dir", str(folder), "--show-only=json-v1"]
    listed = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    tests = []
    for one in listed["tests"]:
        told = {each["name"]: each["value"] for each in one.get("properties", ())}
        if told.get("DISABLED"):
            continue
        patterns = told.get("SKIP_REGULAR_EXPRESSION", [])
        tests.append(Test(one["name"], one.get("command", []), float(told.get("TIMEOUT", 1500)),
                          dict(each.split("=", 1) for each in told.get("ENVIRONMENT", ())),
                          told.get("WORKING_DIRECTORY"), told.get("LABELS", []), told.get("SKIP_RETURN_CODE"),
                          "|".join(patterns if isinstance(patterns, list) else [patterns])))
    return tests


def chosen(tests, only, label):
    patterns = [part.strip() for part in only.split(",") if part.strip()]
    return [test for test in tests if (not label or label in test.labels) and
            (not patterns or any(fnmatch.fnmatch(test.name, f"*{part}*") for part in patterns))]


class Seconds:
    """How long tests take: from the last run in this build folder, else what is shipped for each suite."""

    def __init__(self, path, shipped=SHIPPED):
        self._path = path
        self.known = json.loads(path.read_text()) if path.exists() else {}
        self._suites = json.loads(shipped.read_text()) if shipped.exists() else {}

    def expect(self, tests):
        self.informed = bool(self.known or self._suites)  # else nobody has timed them: nothing is promised
        for test in tests:
            total, count = self._suites.get(test.suite, (0, 0))
            test.seconds = self.known.get(test.name, total / count if count else UNKNOWN_S)

    def ship(self, tests, path=SHIPPED):
        """Writes the last run's seconds for those who have not run it yet: {suite: [seconds, tests]}."""
        suites = {}
        for test in tests:
            if test.name in self.known:
                seconds, count = suites.get(test.suite, (0, 0))
                suites[test.suite] = (seconds + self.known[test.name], count + 1)
        lines = [f"{json.dumps(suite)}: [{seconds:.1f}, {count}]" for suite, (seconds, count) in sorted(suites.items())]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    def keep(self, results):
        self.known |= {result.test.name: round(result.seconds, 3) for result in results if result.state == "passed"}
        self._path.write_text(json.dumps(self.known, indent=0, sort_keys=True))


def in_order(tests):
    """Quick checks, unit tests, seeds, end to end; there the suites with the longest tests first: the last ones to run
    should be short. Within a suite the same."""
    longest = {}
    for test in tests:
        longest[test.suite] = max(longest.get(test.suite, 0), test.seconds)
    return sorted(tests, key=lambda test: (test.phase(), -longest[test.suite], test.suite, -test.seconds, test.name))


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Screen:
    """What a person sees. At a terminal also a line that changes; elsewhere only lines that stay."""

    def __init__(self, tests, jobs):
        out = sys.stdout
        self._out, self._live, self._jobs = out, out.isatty(), jobs
        self._left = {}
        for test in tests:
            self._left.setdefault(test.suite, []).append(test)
        self._total, self._done, self._results = len(tests), 0, {}
        self._expected = sum(test.seconds for test in tests)
        self._expected_done = 0.0
        self._begin = time.monotonic()
        self._line = ""

    def say(self, text):
        self._erase()
        print(text, file=self._out, flush=True)

    def begin(self, log, informed):
        about = f"about {duration(self._expected / self._jobs)}" if informed else "the next run will say how long"
        self.say(f"{self._total} tests, {self._jobs} at a time; {about}. All output: {short(str(log))}")

    def running(self, names):
        if not self._live:
            return
        text = f"[{self._done}/{self._total}, {self._time_left()}] {', '.join(names)}"
        width = os.get_terminal_size(self._out.fileno()).columns - 1
        self._erase()
        self._line = text[:width]
        print(self._line, end="", file=self._out, flush=True)

    def ended(self, result):
        suite = result.test.suite
        self._done += 1
        self._expected_done += result.test.seconds
        results = self._results.setdefault(suite, [])
        results.append(result)
        if result.state == "failed":
            self.say(f"FAILED  {result.test.name} ({result.note}, {result.seconds:.1f} s)")
        if len(results) == len(self._left[suite]):
            states = ("passed", "failed", "skipped")
            counts = [(state, sum(each.state == state for each in results)) for state in states]
            words = ", ".join(f"{count} {state}" for state, count in counts if count)
            self.say(f"{suite:<22} {words:<24} {sum(each.seconds for each in results):7.1f} s   "
                     f"[{self._done}/{self._total}, {self._time_left()}]")

    def _time_left(self):
        """The expected time of the others, by how quick this machine was so far."""
        passed = time.monotonic() - self._begin
        share = self._expected_done / self._expected if self._expected else 1
        left = (self._expected - self._expected_done) / self._jobs
        if share > 0.05:
            left = passed / share * (1 - share)
        return "done" if self._done == self._total else f"about {duration(left)} left"

    def _erase(self):
        if self._line:
            print("\r" + " " * len(self._line) + "\r", end="", file=self._out)
            self._line = ""


class Running:
    """A test that runs, in a session of its own, its output in a file: what it leaves behind can hold no pipe open."""

    def __init__(self, test):
        self.test, self.begin, self.late = test, time.monotonic(), None
        self._file = tempfile.TemporaryFile()
        self.failed_to_start = ""
        try:
            env = {"RC_PARAMS": f"seed={test.turn + 1}"} | os.environ | test.env
            self.process = subprocess.Popen(test.command, env=env, cwd=test.cwd, stdout=self._file,
                                            stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True)
            self.fd = os.pidfd_open(self.process.pid)
        except OSError as error:
            self.process, self.fd, self.failed_to_start = None, None, str(error)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def check_time(self):
        """A test that is out of its time is told, and then killed."""
        if self.late is None and time.monotonic() > self.begin + self.test.timeout_s:
            self.late = time.monotonic()
            self.signal(signal.SIGTERM)
        elif self.late is not None and time.monotonic() > self.late + TERM_MAX_S:
            self.signal(signal.SIGKILL)

    def result(self):
        seconds = time.monotonic() - self.begin
        code = self.process.wait() if self.process else 127
        if self.fd is not None:
            os.close(self.fd)
        self.signal(signal.SIGKILL) if self.process else None  # nothing of it goes on
        self._file.seek(0)
        output = self._file.read().decode(errors="replace")
        self._file.close()
        if self.failed_to_start:
            return Result(self.test, "failed", seconds, output, self.failed_to_start)
        if self.late is not None:
            return Result(self.test, "failed", seconds, output, f"no end after {self.test.timeout_s:.0f} s")
        return Result(self.test, *self._judge(code, output, seconds))

    def _judge(self, code, output, seconds):
        if code == self.test.skip_code or (self.test.skip_pattern and re.search(self.test.skip_pattern, output)):
            return "skipped", seconds, output, last_line(output)
        if code == 0 and re.search(r"^OK \(skipped=\d+\)$", output, re.M):
            why = re.search(r"skipped ['\"](.*)['\"]$", output, re.M)
            return "skipped", seconds, output, why.group(1) if why else "by itself"
        if code == 0:
            return "passed", seconds, output, ""
        return "failed", seconds, output, f"signal {-code}" if code < 0 else f"exit code {code}"


def last_line(text):
    return (text.strip().splitlines() or [""])[-1]


def run(tests, jobs, screen, log):
    """All results; those so far when it is interrupted."""
    waiting, running, results = list(reversed(tests)), {}, []
    watch = selectors.DefaultSelector()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                one = Running(waiting.pop())
                if one.fd is None:
                    finish(one, results, screen, log)
                    continue
                running[one.fd] = one
                watch.register(one.fd, selectors.EVENT_READ)
            screen.running([one.test.name for one in running.values()])
            for key, _ in watch.select(1.0) if running else ():
                watch.unregister(key.fd)
                finish(running.pop(key.fd), results, screen, log)
            for one in running.values():
                one.check_time()
    except KeyboardInterrupt:
        screen.say("interrupted")
        for one in running.values():
            one.signal(signal.SIGTERM)
        end = time.monotonic() + TERM_MAX_S
        for one in running.values():
            try:
                one.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            one.signal(signal.SIGKILL)
        return results, False
    return results, True


def finish(one, results, screen, log):
    result = one.result()
    results.append(result)
    log.write(f"=== {result.state} {result.test.name} ({result.seconds:.2f} s) {result.note}\n{result.output}\n")
    log.flush()
    screen.ended(result)


def report(results, screen):
    failed = [result for result in results if result.state == "failed"]
    skipped = [result for result in results if result.state == "skipped"]
    for result in failed:
        lines = result.output.rstrip().splitlines()
        screen.say(f"\n--- {result.test.name}: {result.note}")
        if len(lines) > SHOWN_LINES:
            screen.say(f"… {len(lines) - SHOWN_LINES} lines more in the log")
        screen.say("\n".join(lines[-SHOWN_LINES:]))
    if skipped:
        reasons = {}
        for result in skipped:
            reasons.setdefault(result.note, []).append(result.test.name)
        screen.say("")
        for reason, names in reasons.items():
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            screen.say(f"skipped: {', '.join(names[:3])}{more}: {reason}")
    if failed:
        screen.say("\nRun one again:")
        for result in failed:
            screen.say(f"  {result.test.again()}")
    count = lambda state: sum(result.state == state for result in results)
    more = f", {count('skipped')} skipped" if skipped else ""
    screen.say(f"{count('passed')} passed, {count('failed')} failed{more}")


@contextlib.contextmanager
def busy_loops(count):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-j", type=int, default=2, help="tests at a time")
    parser.add_argument("-L", default="", metavar="LABEL", help="only tests with this label: unit, e2e")
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="each test so often")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="beside so many loops that use up a CPU each")
    parser.add_argument("--list", action="store_true", help="the names, and run nothing")
    parser.add_argument("--ship-seconds", action="store_true", help="write the last run's times to tools/, run nothing")
    return parser.parse_args(words)


def main(words=None, tests=None):
    options = parse(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    all_tests = load(options.folder) if tests is None else tests
    wanted = chosen(all_tests, options.only, options.L)
    if not wanted:
        near = f"; {len(all_tests)} tests are there, see --list" if all_tests else ""
        print(f"no test is called like '{options.only}'{near}\n0 passed, 1 failed")
        return 1
    seconds = Seconds(options.folder / "test-seconds.json")
    seconds.expect(wanted)
    wanted = in_order(wanted)
    if options.ship_seconds:
        seconds.ship(all_tests)
        return 0
    if options.list:
        print("\n".join(test.name for test in wanted))
        return 0
    wanted = [replace(test, turn=turn) for turn in range(options.repeat) for test in wanted]
    screen = Screen(wanted, options.j)
    log_path = options.folder / "tests.log"
    screen.begin(log_path, seconds.informed)
    with open(log_path, "w") as log, busy_loops(options.busy):
        results, whole = run(wanted, options.j, screen, log)
    seconds.keep(results)
    report(results, screen)
    return 0 if whole and all(result.state != "failed" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
