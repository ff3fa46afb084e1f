#!/usr/bin/env python3
"""What a demanding new user types, and what he must not stumble over."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import harness
import hosts as machines
from cluster_harness import ClusterCase, cluster_text
from completion_e2e import Zsh
from harness import RUBATO, wait_until
from remote_testing import RemoteCase

ONE_CPU = cluster_text(small=(1, 1, 1))


class CommandsTest(ClusterCase):
    def test_an_import_error_is_not_run_four_times(self):
        self.up(ONE_CPU)
        script = self.script("import no_such_module_at_all\n")
        # On a busy machine Python may need more than the 5 s that count as the start: such a crash is one more, before
        # the two that are alike.
        for _ in range(3):
            done = self.rubato("submit", "--wait", script, code=1)
            job = self.job(done.stdout.strip())
            if job["cause"] == "same-crash":
                break
        self.assertEqual((job["phase"], job["cause"]), ("failed", "same-crash"))
        used = job["restarts_used"]
        self.assertIn(used, (1, 2))
        left = "the 2 restarts left are" if used == 1 else "the restart left is"
        self.assertIn("No module named 'no_such_module_at_all'", done.stderr)
        self.assertIn(f"the same error twice, right after the start, so {left} not used", done.stderr)
        self.assertEqual(self.rubato("logs", job["id"]).stdout.count("ModuleNotFoundError"), used + 1)
        events = [event for event in self.json_lines("events", "--limit", 1000) if event.get("job") == job["id"]]
        (ended,) = [event for event in events if event["type"] == "job-ended"]
        self.assertEqual(ended["data"]["cause"], 2)
        causes = [event["data"]["cause"] for event in events if event["type"] == "restart-charged"]
        self.assertEqual(len(causes), used)
        for cause in causes:
            self.assertIn("No module named 'no_such_module_at_all'", cause)

    def test_a_crash_that_ends_otherwise_the_next_time_is_restarted(self):
        self.up(ONE_CPU)
        mark = self.folder / "tries"
        script = self.script(f"import pathlib, sys\np = pathlib.Path({str(mark)!r})\n"
                             "n = len(p.read_text()) if p.exists() else 0\np.write_text('x' * (n + 1))\n"
                             "sys.exit(f'try {n} failed' if n < 2 else 0)\n")
        self.rubato("submit", "--wait", script)
        self.assertEqual(mark.read_text(), "xxx")

    def test_following_ends_with_the_verdict(self):
        self.up(ONE_CPU)
        good = self.submit(self.script("print('fine')\n"))
        done = self.rubato("logs", good, "-f")
        self.assertIn("fine", done.stdout)
        self.assertIn(f"({good}) succeeded", done.stderr)
        bad = self.submit("--max-restarts", 0, self.script("raise SystemExit(7)\n", "bad.py"))
        done = self.rubato("logs", bad, "-f", code=1)
        self.assertIn(f"bad ({bad}) failed", done.stderr)
        self.assertIn("exit code 7", done.stderr)
        self.assertIn("has no rank 99", self.rubato("logs", bad, "--rank", 99, code=1).stderr)

    def test_the_queue_is_shown_in_its_order(self):
        self.up(ONE_CPU)
        running = self.submit("--name", "holder", "--no-python", "sleep", 600)
        self.wait_for_job(running, "running")
        low = self.submit("--name", "low", "--no-python", "true", env={"USER": "ann"})
        high = self.submit("--name", "high", "--priority", 5, "--no-python", "true", env={"USER": "bob"})
        listed = [line.split() for line in self.rubato("jobs").stdout.splitlines()]
        self.assertEqual(listed[0][:5], ["ID", "NAME", "OWNER", "PRIO", "PHASE"])
        self.assertEqual([line[:4] for line in listed[1:]], [[running, "holder", "tester", "0"],
                                                             [high, "high", "bob", "5"], [low, "low", "ann", "0"]])
        self.assertEqual([line[4:6] for line in listed[2:]], [["queued", "#1"], ["queued", "#2"]])
        shown = self.rubato("status").stdout
        self.assertLess(shown.index(high), shown.index(low))
        self.assertIn(f"queue: place 2 of 2; ahead: {high} (high, bob, priority 5)", self.rubato("why", low).stdout)
        self.assertIn("queue: it is the next of 2", self.rubato("why", high).stdout)
        self.rubato("stop", running, "--wait")
        for job in (high, low):
            self.wait_for_job(job, "succeeded")

    def test_after_down_everything_that_happened_can_be_read(self):
        self.up(ONE_CPU)
        job = self.submit("--name", "said", self.script("print('kept')\n"))
        self.wait_for_job(job, "succeeded")
        before = {words: self.rubato(*words).stdout for words in (("logs", "said"), ("jobs", "--all", "--json"))}
        ended = next(event["offset"] for event in self.json_lines("events", "--limit", 1000)
                     if event["type"] == "job-ended")
        self.rubato("down", "-y")
        for words, printed in before.items():
            after = self.rubato(*words)
            self.assertEqual(after.stdout, printed)
            self.assertIn("'local' is down; this is what its files tell", after.stderr)
        self.assertIn("succeeded", self.rubato("job", "show", "said").stdout)
        self.assertIn("job-ended", self.rubato("events").stdout)
        self.assertIn("said", self.rubato("replay", "--offset", ended).stdout)
        self.assertEqual(self.rubato("logs", "said", "-f").stdout, before["logs", "said"])
        self.assertIn("no cluster is running", self.rubato("stop", "said", code=1).stderr)
        # Reading has not taken the journal over: the next head goes on with it.
        self.up(ONE_CPU)
        self.assertEqual([one["id"] for one in self.json("jobs", "--all")["jobs"]], [job])

    def test_names_are_completed(self):
        self.up(ONE_CPU)
        job = self.submit("--name", "finished", "--no-python", "true")
        self.wait_for_job(job, "succeeded")
        script = self.folder / "completion.bash"
        script.write_text(self.rubato("completion", "bash").stdout)

        def complete(*words):
            quoted = " ".join(f"'{word}'" for word in words)
            done = subprocess.run(["bash", "--norc", "-c", f"source {script}; COMP_WORDS=({quoted}); "
                                   f"COMP_CWORD={len(words) - 1}; _rubato; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
                                  capture_output=True, text=True, env=self.environment(), cwd=self.folder,
                                  timeout=harness.WAIT)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout.split()

        self.assert_completed(complete, (RUBATO, "logs", "fini"), ["finished"])
        self.assert_completed(complete, (RUBATO, "job", "show", job[:4]), [job])
        self.assert_completed(complete, (RUBATO, "why", "small"), ["small-1"])
        self.assert_completed(complete, (RUBATO, "logs", "--node", "sm"), ["small-1"])
        self.assert_completed(complete, (RUBATO, "jobs", "--cluster", "lo"), ["local"])
        self.assertEqual(complete(RUBATO, "logs", "--cluster", "none", "x"), [])
        self.kill_head()
        self.assertEqual(complete(RUBATO, "logs", "fini"), [], "silent without a head")

    def assert_completed(self, complete, words, wanted):
        """Nobody waits longer than a second for a Tab: on a busy machine another one is needed."""
        wait_until(lambda: complete(*words) == wanted, lambda: f"{wanted} for {words}, not {complete(*words)}")

    def completion_of(self, shell):
        """The script, where `rubato` is ours; a cluster with a finished job."""
        os.symlink(RUBATO, self.folder / "rubato")
        self.up(ONE_CPU)
        self.wait_for_job(self.submit("--name", "finished", "--no-python", "true"), "succeeded")
        script = self.folder / f"completion.{shell}"
        script.write_text(self.rubato("completion", shell).stdout)
        return script

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_names_are_completed_in_fish(self):
        script = self.completion_of("fish")

        def complete(line):
            done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], text=True,
                                  env=self.environment(PATH=f"{self.folder}:{os.environ['PATH']}"), cwd=self.folder,
                                  capture_output=True, timeout=harness.WAIT)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return [answer.split("\t")[0] for answer in done.stdout.splitlines()]

        self.assert_completed(complete, ["rubato logs fini"], ["finished"])
        self.assert_completed(complete, ["rubato why small"], ["small-1"])
        self.assert_completed(complete, ["rubato logs --node sm"], ["small-1"])
        self.assert_completed(complete, ["rubato jobs --cluster lo"], ["local"])

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_names_are_completed_in_zsh(self):
        script = self.completion_of("zsh")
        with Zsh(self.folder, script, {"XDG_STATE_HOME": str(self.state)}) as zsh:
            for line, wanted in (("rubato logs fini", "rubato logs finished "),
                                 ("rubato why small", "rubato why small-1 "),
                                 ("rubato logs --node sm", "rubato logs --node small-1 "),
                                 ("rubato jobs --cluster lo", "rubato jobs --cluster local ")):
                self.assert_completed(lambda typed, wanted=wanted: wanted in zsh.tab(typed), [line], True)

    def test_up_tells_of_settings_and_plans_as_json(self):
        text = ONE_CPU + "idle_timeout_minutes: 5\n"
        (self.folder / "cluster.yaml").write_text(text)
        plan = json.loads(self.rubato("up", "--dry-run", "--json", "cluster.yaml").stdout)
        self.assertEqual((plan["starts_head"], plan["changes"][0]["action"]), (True, "add"))
        self.up(text)
        changed = text.replace("idle_timeout_minutes: 5", "idle_timeout_minutes: 1")
        (self.folder / "cluster.yaml").write_text(changed)
        plan = json.loads(self.rubato("up", "--dry-run", "--json", "cluster.yaml").stdout)
        self.assertEqual([one["node_type"] for one in plan["changes"]], ["idle_timeout"])
        told = self.up(changed).stderr
        self.assertTrue(told.startswith("  ~ idle_timeout  ("), told)
        self.assertIn("nothing to change", self.up(changed).stderr)
        self.assertIn("~ take the file's new text", self.up("# a comment\n" + changed).stderr)

    def test_the_owner_is_known_without_variables(self):
        self.up(ONE_CPU)
        job = self.submit("--no-python", "true", env={"USER": None, "LOGNAME": None})
        who = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
        self.assertEqual(self.job(job)["owner"], who)

    def test_up_warns_of_what_config_check_warns_of(self):
        text = ONE_CPU.replace("cluster_name: local\n", "")
        self.assertNotIn("cluster_name", text)
        self.assertIn("cluster.yaml:1:1: warning: the file has no cluster_name; 'local' is taken", self.up(text).stderr)
        self.assertNotIn("warning", self.rubato("up", "-y").stderr)

    def test_an_empty_argument_is_not_the_default_cluster(self):
        self.up(ONE_CPU)
        for words in (("down", "-y", ""), ("exec", "", "true"), ("status", "--cluster", "")):
            self.rubato(*words, code=2)
        self.assertEqual(self.json("status")["nodes"][0]["phase"], "up")

    def test_own_machines_cost_nothing_anywhere(self):
        self.up(cluster_text(small=(1, 0, 2)))
        job = self.submit("--no-python", "sleep", 600)
        self.wait_for_job(job, "running")
        audit = self.json("audit")
        self.assertEqual((audit["cost_per_hour"], audit["cost_so_far"]), (0, 0))
        self.assertNotIn("$0.0", self.rubato("why", "small-1").stdout)
        plan = self.rubato("plan", "cluster.yaml").stdout
        self.assertIn("$0.00/h for the launches, $0.00/h for the cluster then", plan)


@unittest.skipIf(machines.why_not(), machines.why_not())
class RemoteCommandsTest(RemoteCase):
    def home_of(self, name):
        """Every file below the home folder with its size and times."""
        return self.hosts[name].run("find . -printf '%p %s %T@ %m\\n' | sort")

    def test_doctor_changes_nothing_on_any_host(self):
        self.make()
        (self.folder / "cluster.yaml").write_text(self.text())
        before = {name: self.home_of(name) for name in self.names}
        self.rubato("doctor", "cluster.yaml", code=None)
        self.rubato("doctor", "cluster.yaml", "--json", code=None)
        self.assertEqual({name: self.home_of(name) for name in self.names}, before)

    def test_doctor_asks_all_hosts_at_once(self):
        """No host lets anybody in before all have been called."""
        self.make()
        called = Path(tempfile.mkdtemp(dir="/dev/shm"))  # the machines have a /tmp of their own
        self.addCleanup(shutil.rmtree, called)
        for host in self.hosts:
            (host.home / ".ssh/rc").write_text(
                f"touch {called}/{host.name}; n=0\n"
                f"while [ $(ls {called} | wc -l) -lt {len(self.names)} ] && [ $n -lt 600 ]\n"
                "do sleep 0.1; n=$((n+1)); done\n"
                f"[ $n -lt 600 ] || touch {called}/{host.name}-waited-alone\n")
        (self.folder / "cluster.yaml").write_text(self.text())
        report = self.json("doctor", "cluster.yaml")
        self.assertEqual(sorted(path.name for path in called.iterdir()), sorted(self.names), report)

    def test_a_job_that_starts_at_once_is_not_warned_of(self):
        self.make("head", "w1")
        self.up(self.text())
        done = self.rubato("submit", "--workers", 2, "--no-python", "true")
        self.assertNotIn("warning", done.stderr)
        self.wait_for_job(done.stdout.strip(), "succeeded")
        never = self.rubato("submit", "--gpus", 64, "--no-python", "true")
        self.assertIn("warning: it cannot start: no node type can hold one worker", never.stderr)

    def test_a_second_cluster_on_the_same_hosts_is_noticed(self):
        self.make("head", "w1")
        self.assertNotIn("warning", self.up(self.text()).stderr)
        other = self.text().replace("cluster_name: lab", "cluster_name: other")
        (self.folder / "other.yaml").write_text(other)
        done = self.rubato("up", "-y", "other.yaml")
        self.assertIn("have nodes of the cluster 'lab' too: both give the same CPUs and GPUs", done.stderr)
        for name in ("lab", "other"):
            job = self.submit("--cluster", name, "--workers", 2, "--no-python", "true")
            wait_until(lambda: self.json("job", "show", job, "--cluster", name)["phase"] == "succeeded",
                       f"the job of {name}")

    def test_bytes_of_files_are_shown(self):
        self.make("head", "w1")
        (self.folder / "code").mkdir()
        (self.folder / "code/a").write_bytes(b"x" * 3000)
        told = self.up(self.text(f"file_mounts: {{~/code: {self.folder / 'code'}}}")).stderr
        self.assertIn("1 path of file_mounts: new contents on", told)
        self.assertIn("(1 file, 2.9 KiB)", told)
        (self.folder / "code/b").write_bytes(b"y" * 5000)
        told = self.rubato("rsync-up", "cluster.yaml", self.folder / "code", "~/code").stderr
        self.assertIn("(1 file, 4.9 KiB)", told)
        self.assertIn("(nothing new to send)",
                      self.rubato("rsync-up", "cluster.yaml", self.folder / "code", "~/code").stderr)


if __name__ == "__main__":
    harness.main()
