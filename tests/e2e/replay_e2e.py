"""What if? `rubato simulate --replay` on the journal of a real cluster."""
import json
import os
import shutil
import signal
import sqlite3
import zlib

import cluster_harness
import harness
from harness import wait_until

CLUSTER = cluster_harness.cluster_text(max_workers=3, small=(1, 1, 3))
SLEEP = "import sys, time\ntime.sleep(float(sys.argv[1]))\n"


class Replay(cluster_harness.ClusterCase):
    def history(self):
        """A cluster that has run four jobs, of which one lost its node. It is still up."""
        self.up(CLUSTER)
        # However slow this machine is, three of them run at the same time: with fewer nodes they would have waited.
        go = str(self.folder / "go")
        short = self.script(f"import os, time\nwhile not os.path.exists({go!r}): time.sleep(0.05)\n", "short.py")
        jobs = [self.submit("--name", f"short-{n}", short) for n in range(3)]
        for job in jobs:
            self.wait_for_job(job, "running")
        (self.folder / "go").touch()
        for job in jobs:
            self.wait_for_job(job, "succeeded")
        # It runs until its node is lost, however long this machine takes for that.
        lost = str(self.folder / "lost")
        waits = self.script(f"import os, time\nwhile not os.path.exists({lost!r}): time.sleep(0.05)\n", "waits.py")
        hit = self.submit("--name", "hit", waits)
        self.wait_for_job(hit, "running")
        node = next(node["id"] for node in self.nodes().values() if hit in json.dumps(node))
        os.kill(self.node_pids()[node], signal.SIGKILL)
        wait_until(lambda: any(event["type"] == "node-lost" for event in self.json_lines("events", "--limit", 1000)),
                   lambda: "the loss of the node")
        (self.folder / "lost").touch()
        self.wait_for_job(hit, "succeeded")

    @property
    def copies(self):
        return self.folder / "copies"

    def replay(self, path, *flags, code=0):
        self.copies.mkdir(exist_ok=True)
        done = self.rubato("simulate", "--replay", path, *flags, "--json", code=code, env={"TMPDIR": str(self.copies)})
        self.assertEqual(list(self.copies.iterdir()), [], "nothing is left of the copy")
        return json.loads(done.stdout) if code == 0 else done.stderr

    def refused(self, path, *flags, says):
        """Exit code 2, all of these words, what to do or where; without a trace of the copy that was read."""
        told = self.replay(path, *flags, code=2)
        for word in says:
            self.assertIn(word, told)
        self.assertRegex(told, r"\n  fix |\n  at  --change ")
        self.assertNotIn("rubato-replay-", told)
        self.assertNotIn("terminate called", told)

    def test_a_real_history_again_and_under_another_file(self):
        self.history()
        waiting = self.submit("--workers", 4, self.script(SLEEP), 1)  # more than the cluster may have: it never runs
        self.wait_for_job(waiting, "queued")

        # While the head runs: it is not disturbed.
        pid = self.head_pid()
        was = self.replay(self.place)
        self.assertEqual(was["history"]["jobs"]["submitted"], 5)
        self.assertEqual(was["history"]["jobs"]["succeeded"], 4)
        self.assertEqual(was["history"]["restarts"], 1)
        self.assertEqual(was["same"]["jobs"]["succeeded"], 4)
        self.assertEqual(was["same"]["jobs"]["infeasible"], 1)
        self.assertEqual(was["same"]["restarts"], 1, "the node is lost again")
        self.assertEqual(self.head_pid(), pid)
        events = self.json_lines("events", "--limit", 1000)
        self.assertEqual(sum(event["type"] == "head-started" for event in events), 1)

        self.rubato("stop", waiting)
        self.wait_for_job(waiting, "stopped")
        self.rubato("down", "-y")

        page = self.folder / "what-if.html"
        changed = self.replay(self.place / "journal.db", "--change", "max_workers=1", "--html", page)
        history = changed["history"]["jobs"]
        self.assertEqual((history["submitted"], history["succeeded"], history["stopped"]), (5, 4, 1))
        for column in ("same", "changed"):
            self.assertEqual(changed[column]["jobs"]["succeeded"], 4, column)
            self.assertEqual(changed[column]["jobs"]["stopped"], 1, column)
            self.assertTrue(changed[column]["ok"], column)
        self.assertEqual(changed["changed"]["nodes"]["most"], 1)
        self.assertGreater(changed["changed"]["wait_s"]["mean"], changed["same"]["wait_s"]["mean"])
        for words in ("Side by side", "as it was", "changed, simulated", "Each job has the worker-time"):
            self.assertIn(words, page.read_text())
        table = self.rubato("simulate", "--replay", self.place, "--change", "max_workers=1")
        self.assertIn("changed, simulated", table.stdout)
        self.assertIn("worker-time that it had then", table.stderr)

        # The same from records as text, as a support case would send them.
        lines = self.folder / "records.json"
        with sqlite3.connect(self.place / "journal.db") as journal:
            records = [bytes(row[0]) for row in journal.execute("SELECT bytes FROM records ORDER BY offset")]
        lines.write_bytes(b"\n".join(records))
        self.assertEqual(self.replay(lines)["history"]["jobs"], changed["history"]["jobs"])
        self.wrong_inputs(lines)

    def wrong_inputs(self, lines):
        there = self.place / "journal.db"
        self.refused(self.folder / "nothing", says=["no journal at"])
        self.refused(self.folder, says=["no journal at", "journal.db"])
        (self.folder / "empty").touch()
        self.refused(self.folder / "empty", says=["no journal at"])
        (self.folder / "text").write_text("hello\n")
        self.refused(self.folder / "text", says=["text' is not a journal", "record 1"])
        (self.folder / "half.json").write_bytes(lines.read_bytes()[:2500])
        self.refused(self.folder / "half.json", says=["half.json' is not a journal", "record"])
        for name, size in (("half.db", 5000), ("stub.db", 100)):
            (self.folder / name).write_bytes(there.read_bytes()[:size])
            self.refused(self.folder / name, says=[name, "damaged"])

        def altered(name, statement, *values):
            shutil.copy(there, self.folder / name)
            with sqlite3.connect(self.folder / name) as journal:
                journal.execute(statement, values)
            return self.folder / name

        self.refused(altered("newer.db", "UPDATE meta SET version = 99"),
                     says=["newer.db", "newer Rubato", "version 99"])
        self.refused(altered("gap.db", "DELETE FROM records WHERE offset = 5"), says=["gap.db", "record 5 is missing"])
        self.refused(altered("bad.db", "UPDATE records SET crc32 = 1 WHERE offset = 5"), says=["bad.db", "checksum"])
        with sqlite3.connect(there) as journal:
            record = bytes(journal.execute("SELECT bytes FROM records WHERE offset = 5").fetchone()[0])
        later = record.replace(b'"v":1', b'"v":99')
        self.assertNotEqual(later, record)
        self.refused(altered("later.db", "UPDATE records SET bytes = ?, crc32 = ? WHERE offset = 5", later,
                             zlib.crc32(later)), says=["later.db"])
        with sqlite3.connect(self.folder / "other.db") as other:
            other.execute("CREATE TABLE t(a)")
        self.refused(self.folder / "other.db", says=["other.db", "not a journal"])

        for change, says in {"max_wrokers=2": ["max_wrokers", 'did you mean "max_workers"?'],
                             "available_node_types.smal.max_workers=2": ["'smal'", "did you mean small?"],
                             "max_workers=many": ["whole number"], "max_workers=-1": ["-1"],
                             "max_workers": ["no change", "KEY=VALUE"], "": ["no change"],
                             "max_workers.x=1": ["not a mapping"]}.items():
            self.refused(there, "--change", change, says=says)


if __name__ == "__main__":
    harness.main()
