#!/usr/bin/env python3
"""A journal that is deleted, cut or damaged: nothing that was acknowledged is gone without a word."""
import os
import shutil
import signal
import unittest

import cluster_harness
import harness
from cluster_harness import alive, cluster_text
from harness import wait_until

ONE = cluster_text(small=(1, 1, 1))
PARTS = ("journal.db", "journal.db-wal", "journal.db-shm")


class JournalTest(cluster_harness.ClusterCase):
    def start(self):
        """A job that trains until the file `go` is there."""
        self.up(ONE)
        script = self.script("import os, time\nprint('begun', flush=True)\n"
                             f"while not os.path.exists('{self.folder}/go'): time.sleep(0.05)\n")
        job = self.submit("--name", "long", str(script))
        self.wait_for_workers_of("long", 1)
        return job

    def end_job(self, job):
        (self.folder / "go").touch()
        return self.wait_for_job(job, "succeeded")

    def set_aside(self):
        """The files as the dead head left them."""
        kept = self.folder / "kept"
        kept.mkdir()
        for part in PARTS:
            if (self.place / part).exists():
                shutil.copy2(self.place / part, kept / part)
        return kept

    def put_back(self, kept):
        for part in PARTS:
            (self.place / part).unlink(missing_ok=True)
            if (kept / part).exists() and part != "journal.db-shm":
                shutil.copy2(kept / part, self.place / part)

    def assert_refused(self, *needles):
        done = self.up(code=1)
        for needle in (*needles, "--accept-journal-loss"):
            self.assertIn(needle, done.stderr)
        status = self.rubato("status", code=1).stderr
        self.assertIn("--accept-journal-loss", status)
        return done.stderr

    def test_deleted_while_up_is_noticed_said_and_ended(self):
        job = self.start()
        head, agents = self.head_pid(), self.node_pids()
        (self.place / "journal.db").unlink()
        wait_until(lambda: not alive(head), "the head's end")
        said = self.rubato("status", code=1).stderr
        self.assertIn("was deleted while it was in use", said)
        self.assertEqual(self.node_pids(), agents)  # they train on
        self.assert_refused("the file is gone")
        self.assertEqual(self.node_pids(), agents)
        # What it held was saved: with it the cluster goes on as if nothing had been.
        (saved,) = self.place.glob("journal.db.saved-*")
        for part in PARTS:
            (self.place / part).unlink(missing_ok=True)
        saved.rename(self.place / "journal.db")
        self.up()
        self.assertEqual(self.node_pids(), agents)
        self.end_job(job)

    def test_replaced_while_up_is_noticed(self):
        self.start()
        head = self.head_pid()
        shutil.copy2(self.place / "journal.db", self.folder / "copy")
        os.rename(self.folder / "copy", self.place / "journal.db")
        wait_until(lambda: not alive(head), "the head's end")
        self.assertIn("was replaced by another file while it was in use", self.rubato("status", code=1).stderr)

    def test_a_journal_that_is_gone_cut_or_damaged_is_refused(self):
        job = self.start()
        self.kill_head()
        kept = self.set_aside()
        log = (kept / "journal.db-wal").read_bytes()
        self.assertGreater(len(log), 8192)
        damaged = bytearray(log)
        damaged[len(log) // 2] ^= 0xFF
        for other in (b"", log[:len(log) // 2], bytes(damaged)):
            self.put_back(kept)
            (self.place / "journal.db-wal").write_bytes(other)
            self.assert_refused("lacks records")
            self.assertEqual((self.place / "journal.db-wal").read_bytes(), other, "a refusal changes nothing")
        for part in PARTS:
            (self.place / part).unlink(missing_ok=True)
        self.assert_refused("lacks records 1 to", "the file is gone")
        (self.place / "journal.db").touch()
        self.assert_refused("the file is empty")
        (self.place / "journal.db").write_bytes(b"nonsense" * 1000)
        self.assert_refused("no SQLite database")
        self.put_back(kept)
        self.up()
        self.end_job(job)

    def test_a_cluster_goes_on_without_what_is_lost_when_told_to(self):
        job = self.start()
        self.kill_head()
        log = self.place / "journal.db-wal"
        os.truncate(log, log.stat().st_size // 2)
        self.assert_refused("lacks records")
        self.up(None, "--accept-journal-loss")
        (lost,) = [event["data"] for event in self.json_lines("events", "--limit", 1000)
                   if event["type"] == "journal-lost"]
        self.assertGreaterEqual(lost["last"], lost["first"])
        self.assertTrue(os.path.exists(lost["kept_in"]), lost)
        self.assertGreater(self.status()["cluster"]["head"]["epoch"], 1)
        self.up()  # and from now on all is well again
        self.kill_head()
        self.up()
        (self.folder / "go").touch()
        again = self.submit("--name", "again", str(self.folder / "work/job.py"))
        self.wait_for_job(again, "succeeded")

    def test_a_crash_alone_is_never_refused(self):
        self.up(ONE)
        for n in range(12):
            submitting = self.follow("submit", "--name", f"s{n}", "-d", harness.SCRIPTS, "job_tool.py", "mark")
            self.kill_head()
            self.up()
            submitting.communicate(timeout=harness.WAIT)

    def test_up_right_after_a_kill_starts_a_head(self):
        self.up(ONE)
        for _ in range(5):
            head, supervisor = self.head_pid(), self.supervisor_pid()
            os.kill(head, signal.SIGSTOP)  # it would replace its supervisor
            os.kill(supervisor, signal.SIGSTOP)
            for pid in (*self.stand_ins(), supervisor, head):
                os.kill(pid, signal.SIGKILL)
            done = self.rubato("up", "-y")
            self.assertIn("starting the head of 'local'", done.stderr)


if __name__ == "__main__":
    unittest.main()
