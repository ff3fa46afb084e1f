"""--prewarm: workers are forked from an interpreter that has the modules, and cannot tell the difference."""
import json
import os
import re
import shutil
import signal

import harness
from harness import SCRIPTS, STEPS, wait_until


class Prewarm(harness.Case):
    def restarted(self, prewarm, *program, nproc=1, flags=()):
        """Runs the program until its first restart, which must be warm if prewarm is given; the agent, those spawns."""
        warm = ["--prewarm", prewarm] if prewarm else []
        agent = self.agent("--standalone", "--nproc-per-node", nproc, "--max-restarts", 1, *warm, *flags, *program)
        if prewarm:
            agent.wait_for("prewarm", state="ready")
        self.wait_for_workers(nproc, lambda line: line["restart"] == 0 and line["pid"] in
                              [spawn["pid"] for spawn in agent.events("spawn")])
        before = agent.running(nproc)["generation"]
        self.order("exit.0", 9)
        after = agent.running(nproc, after=before)["generation"]
        wait_until(lambda: len(agent.events("spawn", generation=after)) == nproc, agent.story)
        spawns = agent.events("spawn", generation=after)
        self.assertEqual({spawn["warm"] for spawn in spawns}, {bool(prewarm)}, agent.story())
        return agent, spawns

    def seen(self, prewarm, *flags, nproc=2, program=()):
        """What the workers of a restart saw."""
        views = [self.folder / f"seen.1.{rank}" for rank in range(nproc)]
        for path in views:
            path.unlink(missing_ok=True)
        (self.folder / "finish").unlink(missing_ok=True)
        agent, _ = self.restarted(prewarm, *(program or (SCRIPTS / "seen.py", self.folder)), nproc=nproc, flags=flags)
        wait_until(lambda: all(path.exists() for path in views), agent.story)
        self.finish([agent])
        return [json.loads(path.read_text()) for path in views]

    def assert_same_views(self, cold, warm):
        for a, b in zip(cold, warm, strict=True):
            for what in a["view"]:
                self.assertEqual(a["view"][what], b["view"][what], what)

    def test_restart_is_warm(self):
        """A module that takes long to import is there at once."""
        cold, warm = self.seen(None), self.seen("decimal")
        self.assertEqual([view["json_was_there"] for view in warm], [True, True])
        self.assertEqual([view["json_was_there"] for view in cold], [False, False])

    def test_script_sees_no_difference(self):
        flags = ["-r", "3", "--log-dir", self.folder / "logs"]
        self.assert_same_views(self.seen(None, *flags), self.seen("decimal", *flags))

    def test_module_sees_no_difference(self):
        shutil.copy(SCRIPTS / "seen.py", self.folder / "seen_module.py")
        shutil.copy(SCRIPTS / "steps.py", self.folder / "steps.py")
        program = ("-m", "seen_module", self.folder)
        flags = ["-r", "3", "--log-dir", self.folder / "logs"]
        self.assert_same_views(self.seen(None, *flags, program=program), self.seen("decimal", *flags, program=program))

    def test_siblings_differ(self):
        """Random numbers that came with the interpreter must not be the same in all its children."""
        first, second = self.seen("decimal,random")
        self.assertNotEqual(first["random"], second["random"])

    def assert_ends_alike(self, how):
        ends = []
        for prewarm in (None, "decimal"):
            (self.folder / "finish").unlink(missing_ok=True)
            (self.folder / "workers.jsonl").unlink(missing_ok=True)
            agent, _ = self.restarted(prewarm, SCRIPTS / "ends.py", self.folder, how, flags=["--grace", "5s"])
            code = agent.finish()
            exit = agent.events("exit")[-1]
            words = re.findall(r"^.*(?:File \"|Error|last words|KeyboardInterrupt|on purpose).*$", agent.stderr, re.M)
            ends.append((code, exit["code"], exit["signal"], agent.stdout, words))
        self.assertEqual(*ends)

    def test_ends_fine(self):
        self.assert_ends_alike("fine")

    def test_ends_with_a_code(self):
        self.assert_ends_alike("code")

    def test_ends_with_text(self):
        self.assert_ends_alike("text")

    def test_ends_by_an_exception(self):
        self.assert_ends_alike("raise")

    def test_ends_by_a_signal(self):
        self.assert_ends_alike("signal")

    def test_ends_hard(self):
        self.assert_ends_alike("hard")

    def test_ends_after_its_threads(self):
        self.assert_ends_alike("thread")

    def test_ends_by_an_interrupt(self):
        self.assert_ends_alike("interrupt")

    def test_warm_worker_dies_with_its_agent(self):
        agent, spawns = self.restarted("decimal", STEPS, self.folder, nproc=2)
        agent.kill()
        for spawn in spawns:
            self.assert_gone(spawn["pid"])
        self.assert_nothing_left()

    def test_warm_worker_is_stopped(self):
        agent, spawns = self.restarted("decimal", STEPS, self.folder, nproc=2)
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.finish(), -signal.SIGTERM, agent.story())
        self.assert_nothing_left()

    def fallback(self, *args, reason, env=None):
        """The job runs all the same, cold, and the person is told why."""
        agent = self.agent("--standalone", *args, env=env)
        agent.wait_for("prewarm", state="fallback")
        self.finish([agent])
        told = agent.events("prewarm", state="fallback")[0]
        self.assertRegex(told["reason"], reason)
        self.assertRegex(agent.stderr, reason)
        self.assertFalse(any(spawn["warm"] for spawn in agent.events("spawn")))

    def test_module_that_is_not_there(self):
        self.fallback("--prewarm", "no_such_module", STEPS, self.folder, reason="no_such_module")

    def test_module_that_fails(self):
        (self.folder / "broken.py").write_text("raise RuntimeError('broken for a test')\n")
        self.fallback("--prewarm", "broken", STEPS, self.folder, reason="broken for a test",
                      env={"PYTHONPATH": str(self.folder)})

    def test_script_shadows_a_module(self):
        """Cold, the script would import its neighbour decimal.py; a warm start would give it the library's."""
        (self.folder / "decimal.py").write_text("WHOSE = 'neighbour'\n")
        shutil.copy(STEPS, self.folder / "steps.py")
        script = self.folder / "script.py"
        script.write_text("import decimal, steps\nassert decimal.WHOSE == 'neighbour'\nsteps.main()\n")
        self.fallback("--prewarm", "decimal", script, self.folder, reason="decimal")

    def test_interpreter_is_killed(self):
        """A prewarmed interpreter that dies is started again; the job does not depend on it."""
        agent = self.agent("--standalone", "--max-restarts", 1, "--prewarm", "decimal", STEPS, self.folder)
        agent.wait_for("prewarm", state="ready")
        self.wait_for_workers(1)
        before = agent.running(1)["generation"]
        workers = agent.worker_pids(before).values()
        (interpreter,) = [pid for pid, command in harness.marked_processes(self.mark).items()
                          if command.startswith(harness.PYTHON) and pid not in workers]
        os.kill(interpreter, signal.SIGKILL)
        self.assert_gone(interpreter)
        self.order("exit.0", 9)
        again = agent.running(1, after=before)["generation"]
        agent.wait_for("spawn", generation=again)
        self.finish([agent])


if __name__ == "__main__":
    harness.main()
