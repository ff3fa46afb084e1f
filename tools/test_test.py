#!/usr/bin/env python3
"""tools/test.py on small tests of its own: what it prints, counts, keeps, and how it ends."""
import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PATH = Path(__file__).with_name("test.py")
spec = importlib.util.spec_from_file_location("runner", PATH)
runner = importlib.util.module_from_spec(spec)
sys.modules["runner"] = runner
spec.loader.exec_module(runner)


def shell(name, script, **options):
    return runner.Test(name, ["sh", "-c", script], **options)


class Runner(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = Path(self._folder.name)

    def run_tests(self, *tests, words=(), code=0):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(runner.main([str(self.folder), *words], list(tests)), code, out.getvalue())
        return out.getvalue().splitlines()

    def test_counts_are_the_last_line_and_suites_have_one_each(self):
        three = shell("core/A.a", "true"), shell("core/A.b", "true"), shell("e2e/x_e2e.test_y", "true")
        lines = self.run_tests(*three, words=["-j", "1"])  # two at a time end in any order
        self.assertEqual(lines[-1], "3 passed, 0 failed")
        self.assertIn("3 tests, 1 at a time; ", lines[0])
        again = self.run_tests(shell("core/A.a", "true"))
        self.assertIn("1 tests, 2 at a time; about 0 s.", again[0])
        self.assertRegex(lines[1], r"^core +2 passed +[\d.]+ s +\[2/3, about .* left\]$")
        self.assertRegex(lines[2], r"^e2e/x +1 passed .*\[3/3, done\]$")

    def test_a_failure_is_shown_at_once_and_at_the_end_with_its_command(self):
        bad, good = shell("core/A.bad", "echo words of it; exit 3"), shell("os/B.good", "echo quiet")
        lines = self.run_tests(bad, good, code=1)
        self.assertEqual(lines[-1], "1 passed, 1 failed")
        self.assertTrue(any(line.startswith("FAILED  core/A.bad (exit code 3") for line in lines), lines)
        self.assertIn("words of it", lines)
        self.assertNotIn("quiet", lines)
        self.assertIn("  sh -c 'echo words of it; exit 3'", lines)
        log = (self.folder / "tests.log").read_text()
        self.assertIn("=== passed os/B.good", log)
        self.assertIn("quiet", log)

    def test_skipped_ones_are_counted_and_say_why(self):
        lines = self.run_tests(shell("e2e/chroot", "echo skipped: no rights; exit 77", skip_code=77),
                               shell("e2e/a_e2e.test_b",
                                     "echo \"test ... skipped 'needs root'\"; echo 'OK (skipped=1)'"),
                               shell("core/C.c", "echo '[  SKIPPED ] C.c'", skip_pattern=r"\[  SKIPPED \]"))
        self.assertEqual(lines[-1], "0 passed, 0 failed, 3 skipped")
        self.assertTrue(any("e2e/a_e2e.test_b: needs root" in line for line in lines), lines)

    def test_a_test_without_an_end_is_told_and_ended_with_its_children(self):
        script = f"trap 'touch {self.folder}/told; exit 1' TERM; sleep 1000 & echo $! >{self.folder}/child; wait"
        child = self.folder / "child"

        class Hangs(runner.Test):
            """Its time is over once it has begun, however long that takes."""
            timeout_s = property(lambda _: 0.0 if child.exists() and child.read_text() else 1500.0, lambda *_: None)

        lines = self.run_tests(Hangs("os/A.hangs", ["sh", "-c", script]), code=1)
        self.assertTrue(any("no end after 0 s" in line for line in lines), lines)
        self.assertTrue((self.folder / "told").exists())
        child = int(child.read_text())
        deadline = time.monotonic() + 30
        while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.01)
        self.assertLess(time.monotonic(), deadline, "its child goes on")

    def test_a_program_that_is_missing_has_failed(self):
        lines = self.run_tests(runner.Test("core/A.a", ["/no/such/program"]), code=1)
        self.assertEqual(lines[-1], "0 passed, 1 failed")

    def test_only_some(self):
        tests = [shell("core/Quorum.Half", "true"), shell("core/Task.Ends", "true"), shell("e2e/f_e2e.test_a", "true")]
        self.assertEqual(self.run_tests(*tests, words=["--only", "Quorum"])[-1], "1 passed, 0 failed")
        self.assertEqual(self.run_tests(*tests, words=["--only", "core/*.E*,e2e/f"])[-1], "2 passed, 0 failed")
        self.assertEqual(self.run_tests(*tests, words=["--only", "nothing"], code=1)[-1], "0 passed, 1 failed")
        self.assertEqual(sorted(self.run_tests(*tests, words=["--list"])), sorted(test.name for test in tests))

    def test_again_and_again_beside_busy_loops(self):
        script = f"echo x >>{self.folder}/ran; [ $(wc -l <{self.folder}/ran) != 3 ]"
        lines = self.run_tests(shell("core/A.a", script), words=["-j", "1", "--repeat", "5", "--busy", "1"],
                               code=1)
        self.assertEqual(lines[-1], "4 passed, 1 failed")

    def test_the_order_is_quick_checks_units_seeds_end_to_end(self):
        names = ["e2e/short_e2e.test_a", "e2e/long_e2e.test_b", "simulate/chaos:1..9", "core/A.a", "tidy"]
        tests = [runner.Test(name, [], seconds=9 if "long" in name else 1) for name in names]
        self.assertEqual([test.name for test in runner.in_order(tests)], ["tidy", "core/A.a", "simulate/chaos:1..9",
                                                                         "e2e/long_e2e.test_b", "e2e/short_e2e.test_a"])

    def test_the_next_run_knows_how_long_it_takes(self):
        self.run_tests(shell("core/A.slow", "sleep 0.3"))
        self.assertGreater(json.loads((self.folder / "test-seconds.json").read_text())["core/A.slow"], 0.2)
        shipped = self.folder / "shipped.json"
        shipped.write_text('{"e2e/x": [30, 3]}')
        tests = [shell("e2e/x_e2e.test_a", "true"), shell("core/A.slow", "true"), shell("new/A.b", "true")]
        runner.Seconds(self.folder / "test-seconds.json", shipped).expect(tests)
        self.assertEqual(tests[0].seconds, 10)
        self.assertGreater(tests[1].seconds, 0.2)
        self.assertEqual(tests[2].seconds, runner.UNKNOWN_S)
        again = runner.Seconds(self.folder / "test-seconds.json", shipped)
        again.ship(tests, shipped)
        (seconds, count), = json.loads(shipped.read_text()).values()
        self.assertEqual((seconds > 0.2, count), (True, 1))

    def test_an_interrupt_ends_it_with_the_counts_so_far(self):
        program = ("import importlib.util, sys\n"
                   f"spec = importlib.util.spec_from_file_location('runner', {str(PATH)!r})\n"
                   "runner = importlib.util.module_from_spec(spec); sys.modules['runner'] = runner\n"
                   "spec.loader.exec_module(runner)\n"
                   "tests = [runner.Test('core/A.a', ['true']), runner.Test('os/B.b', ['sleep', '1000'])]\n"
                   f"sys.exit(runner.main([{str(self.folder)!r}], tests))")
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        lines = [process.stdout.readline(), process.stdout.readline()]
        self.assertIn("core", lines[1])
        os.kill(process.pid, signal.SIGTERM)
        rest, _ = process.communicate()
        self.assertEqual((process.returncode, rest.splitlines()[-1]), (1, "1 passed, 0 failed"))

    def test_real_builds_are_understood(self):
        """What ctest lists of a small build."""
        (self.folder / "CTestTestfile.cmake").write_text(
            'add_test(e2e/a_e2e.test_x "/bin/true" "-k")\n'
            'set_tests_properties(e2e/a_e2e.test_x PROPERTIES TIMEOUT "7" LABELS "e2e" ENVIRONMENT "RUBATO=/x;B=c=d" '
            'SKIP_RETURN_CODE "77")\n')
        (test,) = runner.load(self.folder)
        self.assertEqual((test.name, test.command, test.timeout_s, test.env, test.labels, test.skip_code),
                         ("e2e/a_e2e.test_x", ["/bin/true", "-k"], 7.0, {"RUBATO": "/x", "B": "c=d"}, ["e2e"], 77))


if __name__ == "__main__":
    unittest.main()
