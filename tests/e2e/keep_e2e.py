#!/usr/bin/env python3
"""The head is kept alive: whoever of the head and its supervisor is killed or stopped, the cluster goes on by itself,
and `down` ends all of it for good."""
import json
import os
import random
import signal
import threading
from pathlib import Path

import cluster_harness
import harness
from cluster_harness import alive, cluster_text
from harness import wait_until

ONE = cluster_text(small=(1, 1, 1))


class KeepCase(cluster_harness.ClusterCase):
    def daemon_pid(self):
        """The head's, as people read it. None: there is none. Another process that has its number is not meant."""
        try:
            pid = int((self.place / "head/daemon.pid").read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if alive(pid) and str(self.place).encode() in words else None

    def wait_for_new_head(self, before):
        """Waits until another head than `before` answers."""
        def new():
            pid = self.daemon_pid()
            if not pid or pid == before:
                return None
            done = self.rubato("status", "--json", code=None)
            if done.returncode != 0:
                return None
            return pid if json.loads(done.stdout)["cluster"]["head"]["pid"] == pid else None

        return wait_until(new, lambda: f"a head after {before}; {self.head_log()[-2000:]}")

    def wait_for_new_supervisor(self, before):
        return wait_until(lambda: (lambda pid: pid if pid and pid != before else None)(self.supervisor_pid()),
                          lambda: f"a supervisor after {before}")

    def supervisor(self):
        return self.status()["cluster"]["head"]["supervisor"]

    def head_log(self):
        return (self.place / "head/daemon.log").read_text(errors="replace")

    def head_starts(self):
        return [event["data"] for event in self.json_lines("events", "--limit", 1000)
                if event["type"] == "head-started"]

    def heads(self):
        """All head processes of this test's cluster, without guards (children of a head with its name)."""
        found = [pid for pid, words in self.leftovers().items() if " head --dir " in words]
        return [pid for pid in found if not self.is_child_of(pid, found)]

    @staticmethod
    def is_child_of(pid, others):
        try:
            with open(f"/proc/{pid}/stat") as file:
                return int(file.read().rpartition(")")[2].split()[1]) in others
        except OSError:
            return False


class Kills(KeepCase):
    def test_a_killed_head_is_back_by_itself(self):
        self.up(cluster_text(small=(1, 2, 2)))
        job = self.submit_steps("--workers", "2")
        before = self.wait_for_workers_of(job, 2)
        agents, head = self.node_pids(), self.head_pid()
        self.kill(head)
        second = self.wait_for_new_head(head)
        self.assertEqual(self.head_starts()[-1]["restarted_after"], "signal 9")
        self.assertIn("restarted after signal 9", self.rubato("events").stdout)
        self.assertRegex(self.head_log(), "who=supervisor.*cause=\"signal 9\"")
        # The head may answer before its supervisor has written down that it was started again.
        kept = wait_until(lambda: (lambda s: s if s["pid"] and s["restarts"] else None)(self.supervisor()),
                          "a look at it")
        self.assertEqual((kept["kind"], kept["pid"], kept["restarts"], kept["last_end"]),
                         ("rubato", self.supervisor_pid(), 1, "signal 9"))
        self.assertIn("restarted 1 time, last after signal 9", self.rubato("status").stdout)
        self.assertRegex(self.rubato("doctor", code=None).stdout,
                         rf"head of local +ok +pid {second}, kept alive by pid \d+; restarted 1 time")
        os.kill(second, signal.SIGTERM)  # tidier, but no wish to end the cluster
        self.wait_for_new_head(second)
        self.assertEqual(self.head_starts()[-1]["restarted_after"], f"exit code {128 + signal.SIGTERM}")
        self.assertEqual(self.node_pids(), agents)
        self.order("finish")
        after = self.wait_for_job(job, "succeeded")
        self.assertEqual((after["generation"], after["restarts_used"]), (before["generation"], 0))
        self.rubato("down", "-y")
        self.assert_nothing_left()

    def test_a_killed_supervisor_is_replaced_and_the_head_goes_on(self):
        self.up(ONE)
        head, supervisor = self.head_pid(), self.supervisor_pid()
        state = self.place / "supervisor/state.json"
        before = state.stat().st_mtime_ns
        self.kill(supervisor)
        second = self.wait_for_new_supervisor(supervisor)
        wait_until(lambda: state.stat().st_mtime_ns > before, "its look at the head")
        self.assertEqual(self.head_pid(), head)
        self.assertTrue(alive(head))
        self.kill(head)  # the new one has found it
        self.wait_for_new_head(head)
        self.assertEqual(self.supervisor_pid(), second)
        self.assertEqual(self.head_starts()[-1]["restarted_after"], "its end", "it was not that one's child")
        self.rubato("down", "-y")
        self.assert_nothing_left()

    def test_the_supervisor_is_killed_while_the_head_stands_still(self):
        """And then the head, before it wakes."""
        self.up(ONE)
        agents, head, supervisor = self.node_pids(), self.head_pid(), self.supervisor_pid()
        os.kill(head, signal.SIGSTOP)
        self.kill(supervisor)
        self.kill(head)
        self.wait_for_new_head(head)
        self.assertNotEqual(self.wait_for_new_supervisor(supervisor), supervisor)
        self.assertEqual(self.node_pids(), agents)
        wait_until(lambda: len(self.stand_ins()) == 1, lambda: f"one stand-in in {self.leftovers()}")
        self.kill(*self.stand_ins())
        wait_until(lambda: len(self.stand_ins()) == 1, lambda: f"one stand-in in {self.leftovers()}")
        self.rubato("down", "-y")
        self.assert_nothing_left()

    def test_all_are_killed(self):
        self.up(ONE)
        agents = self.node_pids()
        self.kill_head()
        wait_until(lambda: "is not running" in self.rubato("status", code=1).stderr, "the end of its socket")
        self.up()
        self.assertEqual(self.node_pids(), agents)
        self.assertTrue(self.supervisor_pid())
        self.assertEqual(self.head_starts()[-1]["restarted_after"], "")

    def test_either_is_stopped(self):
        self.up(ONE)
        head, supervisor = self.head_pid(), self.supervisor_pid()
        os.kill(supervisor, signal.SIGSTOP)
        self.wait_for_job(self.submit("--no-python", "true"), "succeeded")
        self.assertEqual(self.supervisor_pid(), supervisor, "one that is stopped is not replaced")
        self.kill(head)
        self.up()  # cannot be told, so it is replaced
        second = self.head_pid()
        self.assertNotEqual((second, self.supervisor_pid()), (head, supervisor))
        self.assert_gone(supervisor)
        os.kill(second, signal.SIGSTOP)
        os.kill(second, signal.SIGCONT)
        self.assertEqual(self.status()["cluster"]["head"]["pid"], second)

    def test_the_supervisor_is_told_to_end(self):
        """As systemd does, or a person who wants the head away for a while: agents and workers go on."""
        self.up(ONE)
        agents, supervisor, head = self.node_pids(), self.supervisor_pid(), self.head_pid()
        os.kill(supervisor, signal.SIGTERM)
        self.assert_gone(supervisor)
        self.assert_gone(head)
        self.assertEqual(self.node_pids(), agents)
        self.up()
        self.assertEqual(self.node_pids(), agents)

    def test_a_supervisor_is_small(self):
        self.up(ONE)
        pid = self.supervisor_pid()
        with open(f"/proc/{pid}/smaps_rollup") as file:
            kib = {line.split(":")[0]: int(line.split()[1]) for line in file if line.endswith("kB\n")}
        self.assertLess(kib["Private_Dirty"], 4096, kib)
        self.assertNotEqual(os.getsid(pid), os.getsid(0))


class Races(KeepCase):
    def test_up_races_with_the_supervisor(self):
        """Right after a kill, and after random moments: one head, and `up` says that all is well."""
        self.up(ONE)
        agents = self.node_pids()
        dice = random.Random(os.urandom(8))
        for n in range(int(os.environ.get("RUBATO_RACES", "12"))):
            os.kill(self.head_pid(), signal.SIGKILL)
            if n % 3:
                threading.Event().wait(dice.uniform(0, 0.3))
            self.rubato("up", "-y")
            heads = wait_until(lambda: (lambda found: found if len(found) == 1 else None)(self.heads()),
                               lambda: f"one head in {self.leftovers()}")
            self.assertEqual(heads, [self.head_pid()])
            self.assertEqual(heads, [self.status()["cluster"]["head"]["pid"]])
        self.assertEqual(self.node_pids(), agents)
        epochs = [start["epoch"] for start in self.head_starts()]
        self.assertEqual(epochs, sorted(set(epochs)))

    def test_two_ups_at_once(self):
        self.up(ONE)
        os.kill(self.head_pid(), signal.SIGKILL)
        for process in [self.follow("up", "-y") for _ in range(2)]:
            _, err = process.communicate(timeout=2 * harness.WAIT)
            self.assertEqual(process.returncode, 0, err)
        wait_until(lambda: len(self.heads()) == 1, lambda: f"one head in {self.leftovers()}")

    def crash_loop(self):
        """A head that dies again and again, as fast as somebody can kill it."""
        ending = threading.Event()

        def strike():
            while not ending.wait(0.005):
                pid = self.daemon_pid()
                if pid:
                    harness.kill_if_there(pid)

        thread = threading.Thread(target=strike, daemon=True)
        thread.start()

        def end():
            ending.set()
            thread.join()

        self.addCleanup(end)
        return end

    def test_up_in_the_middle_of_a_back_off_starts_the_head_at_once(self):
        self.up(ONE)
        end = self.crash_loop()
        wait_until(lambda: self.head_log().count("it is started again") >= 6, "a long back-off")
        end()
        done = self.rubato("up", "-y")
        self.assertIn("'local' is up with 1 node", done.stderr)
        self.assertTrue(alive(self.head_pid()))

    def test_down_during_a_crash_loop(self):
        self.up(ONE)
        end = self.crash_loop()
        wait_until(lambda: self.head_log().count("it is started again") >= 3, "some restarts")
        self.rubato("down", "-y", "--timeout", "20s", code=None)
        end()
        wait_until(lambda: not self.leftovers(), lambda: f"the end of {self.leftovers()}")
        self.rubato("down", "-y", "--timeout", "20s")
        self.assertEqual(self.leftovers(), {})

    def test_down_right_after_a_kill(self):
        for _ in range(3):
            self.up(ONE)
            os.kill(self.head_pid(), signal.SIGKILL)
            self.rubato("down", "-y")
            self.assert_nothing_left()


class Ends(KeepCase):
    def test_a_permanent_error_is_not_tried_again(self):
        self.up(ONE)
        head, supervisor = self.head_pid(), self.supervisor_pid()
        os.kill(supervisor, signal.SIGSTOP)
        self.kill(head)
        log = self.place / "journal.db-wal"
        os.truncate(log, log.stat().st_size // 2)
        os.kill(supervisor, signal.SIGCONT)
        self.assert_gone(supervisor)  # it has seen that there is no use in it
        status = self.rubato("status", code=1).stderr
        self.assertIn("lacks records", status)
        self.assertIn("--accept-journal-loss", status)
        self.assertEqual(self.head_log().count("it is started again"), 1)
        self.up(None, "--accept-journal-loss")
        self.kill(self.head_pid())
        self.wait_for_new_head(head)  # and from now on it is kept again

    def test_an_error_that_may_pass_is_tried_again(self):
        (store,) = self.etcd()
        store.wait_until_ready()
        self.up(ONE, "--store", f"etcd://{store.endpoint}")
        head = self.head_pid()
        os.kill(store.process.pid, signal.SIGSTOP)
        self.kill(head)
        wait_until(lambda: self.head_log().count("it is started again") >= 2, lambda: self.head_log()[-2000:],
                   2 * harness.WAIT)
        os.kill(store.process.pid, signal.SIGCONT)
        self.wait_for_new_head(head)

    def test_a_shutdown_by_the_api_is_an_end(self):
        self.up(ONE)
        supervisor = self.supervisor_pid()
        self.assertEqual(self.api("POST", "/api/v1/shutdown", "{}")[0] // 100, 2)
        self.assert_gone(supervisor)
        self.assert_nothing_left()


if __name__ == "__main__":
    cluster_harness.main()
