"""`rubato submit` and what follows: programs, packages, logs, ends, the queue, and what is told of it all."""
import json
import os
import signal
import subprocess
import tarfile

import cluster_harness
import harness
from cluster_harness import cluster_text
from harness import SCRIPTS, wait_until

TOOL = SCRIPTS / "job_tool.py"
ONE = cluster_text(small=(1, 1, 1))


class Programs(cluster_harness.ClusterCase):
    """What can be submitted, and what a worker finds when it starts."""

    def setUp(self):
        super().setUp()
        self.up(cluster_text(small=(2, 1, 1)))

    def said(self, *args, **options):
        job = self.submit("--wait", *args, **options)
        return self.log_texts(job)

    def test_a_script_with_arguments_and_local_imports(self):
        self.script("WORD = 'beside'", "neighbour.py")
        script = self.script("import sys, os, neighbour\nprint(__name__, sys.argv[1:], neighbour.WORD)\n"
                             "print(os.path.basename(__file__), os.getcwd() == os.path.dirname(__file__))")
        expected = ["__main__ ['--epochs', '3', 'a b', '$HOME'] beside", "job.py True"]
        self.assertEqual(self.said(script, "--epochs", "3", "a b", "$HOME"), expected)
        self.assertEqual(self.said(script, "--", "--epochs", "3", "a b", "$HOME"), expected)
        self.assertEqual(self.said("job.py", "--epochs", "3", "a b", "$HOME", cwd=script.parent), expected)

    def test_a_folder_and_a_script(self):
        self.script("VALUE = 7", "part.py", "project/lib")
        self.script("", "__init__.py", "project/lib")
        self.script("from lib.part import VALUE\nprint(VALUE, open('data.txt').read())", "train.py", "project")
        self.script("rows", "data.txt", "project")
        self.assertEqual(self.said(self.folder / "project", "train.py"), ["7 rows"])
        self.assertEqual(self.said("-d", self.folder / "project", "train.py"), ["7 rows"])

    def test_a_package(self):
        self.script("import deep.inner\nprint(deep.inner.WORD)", "go.py", "made")
        self.script("WORD = 'packed'", "inner.py", "made/deep")
        with tarfile.open(self.folder / "package.tar.gz", "w:gz") as package:
            package.add(self.folder / "made", ".")
        self.assertEqual(self.said("package.tar.gz", "go.py"), ["packed"])

    def test_a_package_of_many_files(self):
        """Copying and removing them takes long; head and agent must not fall silent over it."""
        count = 6000
        for folder in range(50):
            place = self.folder / "many" / str(folder)
            place.mkdir(parents=True)
            for name in range(count // 50):
                (place / str(name)).write_text("x")
        self.script("import os\nprint(sum(len(names) for _, _, names in os.walk('.')))", "count.py", "many")
        self.assertEqual(self.said("-d", "many", "count.py"), [str(count + 1)])
        (trash,) = self.state.glob("rubato/clusters/*/nodes/*/trash")
        wait_until(lambda: not list(trash.iterdir()), "the end of the copy")
        self.assertNotIn("node-lost", [event["type"] for event in self.json_lines("events", "--limit", 200)])

    def test_a_module(self):
        self.script("import sys\nprint(__name__, __package__, sys.argv[1:])", "train.py", "source/pkg")
        self.script("", "__init__.py", "source/pkg")
        self.assertEqual(self.said("-d", "source", "--module", "pkg.train", "1", "-x"), ["__main__ pkg ['1', '-x']"])

    def test_no_python(self):
        self.assertEqual(self.said("--no-python", "echo", "of $RANK"), ["of $RANK"])

    def test_environment(self):
        (self.folder / "more.env").write_text("C=from file\n# a comment\nD=x=y\n")
        lines = self.said("--env", "A=1 2", "-e", "B", "--env-file", "more.env", "--workers", "2", TOOL, "env", "A",
                          "B", "C", "D", "WORLD_SIZE", "RUBATO_JOB_NAME", "OMP_NUM_THREADS", env={"B": "copied"})
        once = ["A=1 2", "B=copied", "C=from file", "D=x=y", "WORLD_SIZE=2", "RUBATO_JOB_NAME=job_tool",
                "OMP_NUM_THREADS=1"]
        self.assertEqual(sorted(lines), sorted(once * 2))
        for name in ("A B=1", "1A=x", "=x"):
            self.rubato("submit", "--env", name, TOOL, "env", code=2)

    def test_ignored_files_stay_behind(self):
        for name in ("kept.txt", "big.bin", "logs/a.log", "logs/keep.log", "secret/key", "data/x.csv"):
            self.script(name, name.rpartition("/")[2], "tree/" + name.rpartition("/")[0])
        self.script("*.bin\nlogs/*\n!logs/keep.log\n", ".gitignore", "tree")
        self.script("/secret/\n", ".rubatoignore", "tree")
        self.script("*.csv\n", ".gitignore", "tree/data")
        self.script("import os\nfor folder, _, names in sorted(os.walk('.')):\n"
                    "  for name in sorted(names): print(os.path.relpath(os.path.join(folder, name)))", "ls.py", "tree")
        found = set(self.said("-d", "tree", "ls.py"))
        self.assertLessEqual({"kept.txt", "logs/keep.log", "ls.py"}, found)
        self.assertEqual(found & {"big.bin", "logs/a.log", "secret/key", "data/x.csv"}, set())

    def test_output_and_fetch(self):
        script = self.script("import os\nout = os.environ['RUBATO_OUTPUT']\nos.makedirs(out + '/deep')\n"
                             "open(out + '/deep/model.bin', 'wb').write(bytes(range(256)) * 5000)\n"
                             "os.symlink('deep/model.bin', out + '/latest')")
        self.submit("--wait", "--name", "maker", script)
        self.rubato("fetch", "maker", "got")
        self.assertEqual((self.folder / "got/deep/model.bin").read_bytes(), bytes(range(256)) * 5000)
        self.assertEqual(os.readlink(self.folder / "got/latest"), "deep/model.bin")
        self.rubato("fetch", "maker", "got", code=1)
        self.rubato("fetch", "maker", "got", "--force")
        self.rubato("fetch", "nobody", "other", code=1)
        self.assertFalse((self.folder / "other").exists())

    def test_a_folder_is_sent_once(self):
        for n in range(3):
            self.script("print('once')", "job.py", "same")
            (self.folder / "same/noise.bin").write_bytes(bytes(1000))
            self.submit("--wait", "-d", "same", "job.py")
        self.assertEqual(len(list(self.place.glob("packages/*.tar.zst"))), 1)
        self.assertEqual(len(list(self.place.glob("nodes/*/packages/*"))), 1)
        stored = next(self.place.glob("packages/*.tar.zst"))
        before = stored.stat().st_mtime_ns, stored.stat().st_ino
        self.submit("--wait", "-d", "same", "job.py")
        self.assertEqual((stored.stat().st_mtime_ns, stored.stat().st_ino), before)

    def test_a_huge_folder_names_the_largest_files(self):
        self.script("pass", "job.py", "huge")
        for name, size in (("weights.pt", 500 << 20), ("data.bin", 100 << 20), ("small.txt", 10)):
            with open(self.folder / "huge" / name, "wb") as out:
                out.truncate(size)  # takes no room on the disk
        said = self.rubato("submit", "-d", "huge", "job.py", code=2).stderr
        self.assertIn("600.0 MiB", said)
        self.assertLess(said.index("weights.pt"), said.index("data.bin"))
        self.assertIn(".rubatoignore", said)
        self.assertEqual(self.json("jobs", "--all")["jobs"], [])

    def test_adaptdl_flags(self):
        self.script("import os\nprint(os.environ['ADAPTDL_NUM_REPLICAS'], os.environ['ADAPTDL_REPLICA_RANK'])",
                    "train.py", "adapt")
        job = self.submit("-d", "adapt", "-m", "2", "-u", "ray://head:1", "--cpus", "1", "--checkpoint-timeout", "120",
                          "--cluster-rescale-timeout", "60", "-f", "train.py")
        detail = self.wait_for_job(job, "succeeded")
        self.assertEqual((detail["workers_min"], detail["workers_max"]), (1, 2))
        self.assertEqual(sorted(self.log_texts(job)), ["2 0", "2 1"])


class Logs(cluster_harness.ClusterCase):
    def test_order_and_choice(self):
        self.up(cluster_text(small=(1, 2, 2)))
        job = self.submit("--wait", "--workers", "2", TOOL, "say", 50)
        lines = self.rubato("logs", job).stdout.splitlines()
        self.assertEqual(len(lines), 100)
        for rank in "01":
            mine = [line for line in lines if line.startswith(f"[{rank}@")]
            self.assertEqual([line.partition("] ")[2] for line in mine], [f"rank {rank} line {n}" for n in range(50)])
            self.assertEqual(len({line.partition("]")[0] for line in mine}), 1)
        self.assertEqual(self.log_texts(job, "--rank", "1"), [f"rank 1 line {n}" for n in range(50)])
        self.assertEqual(self.rubato("logs", job, "--rank", "1", "--tail", "2", "--no-prefix").stdout,
                         "rank 1 line 48\nrank 1 line 49\n")
        entries = self.json_lines("logs", job, "--rank", "0")
        self.assertEqual([entry["stream"] for entry in entries], ["out"] * 49 + ["err"])
        self.assertEqual({entry["node"] for entry in self.json_lines("logs", job)}, set(self.nodes()))
        self.assertEqual(self.log_texts(job, "--since", "10m ago", "--rank", "0")[0], "rank 0 line 0")
        self.assertEqual(self.log_texts(job, "--since", "2100-01-01T00:00:00Z"), [])
        self.rubato("logs", job, "--rank", "x", code=2)

    def test_follow_until_the_end(self):
        self.up(ONE)
        job = self.submit_steps()
        self.wait_for_workers(1)
        said = self.follow("logs", job, "-f")
        job2 = self.follow("submit", "--follow", "--name", "second", TOOL, "say", 3)
        self.order("finish")
        out, err = said.communicate(timeout=harness.WAIT)
        self.assertEqual(said.returncode, 0, err)
        out, err = job2.communicate(timeout=harness.WAIT)
        self.assertEqual(job2.returncode, 0, err)
        self.assertEqual([line.partition("] ")[2] for line in out.splitlines()[1:]],
                         [f"rank 0 line {n}" for n in range(3)])

    def test_ctrl_c_detaches(self):
        self.up(ONE)
        self.script("import time\nprint('one', flush=True)\nwhile True: time.sleep(1)")
        follower = self.follow("submit", "--follow", "--name", "long", "work/job.py")
        self.assertEqual(follower.stdout.readline().strip()[:2], "j-")
        self.assertIn("one", follower.stdout.readline())
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=harness.WAIT)
        self.assertEqual(follower.returncode, 130)
        self.assertIn("the job goes on", err)
        self.assertIn("rubato stop", err)
        self.assertEqual(self.job("long")["phase"], "running")


class Ends(cluster_harness.ClusterCase):
    def test_a_failure_tells_its_root_cause(self):
        self.up(ONE)
        said = self.rubato("submit", "--wait", "--name", "bad", "--max-restarts", "0", TOOL, "fail", "1", code=1)
        self.assertIn("failed", said.stderr)
        shown = self.rubato("job", "show", "bad").stdout
        for words in ("ValueError: the root cause", "in fails", "rank 0 on small-1"):
            self.assertIn(words, shown)
        (failure,) = self.job("bad")["failures"]
        self.assertEqual((failure["rank"], failure["exit_code"], failure["signal"]), (0, 1, 0))
        self.assertIn("the root cause", failure["message"])

    def test_the_restart_budget(self):
        self.up(ONE)
        script = self.script("import os\nprint('start', os.environ['TORCHELASTIC_RESTART_COUNT'])\nos._exit(3)")
        self.rubato("submit", "--wait", "--name", "thrice", "--max-restarts", "2", script, code=1)
        self.assertEqual(self.log_texts("thrice"), ["start 0", "start 1", "start 2"])
        job = self.job("thrice")
        self.assertEqual((job["phase"], job["restarts_used"], job["max_restarts"]), ("failed", 2, 2))
        self.assertEqual(job["failures"][-1]["exit_code"], 3)

    def test_a_failure_that_is_overcome(self):
        self.up(ONE)
        job = self.submit_steps()
        self.wait_for_workers(1)
        self.order("exit.0", 9)
        self.wait_for_workers(2)
        self.order("finish")
        self.assertEqual(self.wait_for_job(job, "succeeded")["restarts_used"], 1)

    def test_the_timeout(self):
        self.up(ONE)
        job = self.submit_steps("--timeout", "1s", "--grace", "1s")
        detail = self.wait_for_job(job, "failed", "stopped")
        self.assertIn("timeout", detail["reason"])
        for line in self.steps():
            self.assert_gone(line["pid"])

    def test_stop_with_grace(self):
        self.up(ONE)
        job = self.submit_steps("--grace", "60s")
        (worker,) = self.wait_for_workers(1)
        self.rubato("stop", job, "--wait")
        self.assertEqual(self.job(job)["phase"], "stopped")
        self.assert_gone(worker["pid"])
        self.rubato("stop", job)  # again: nothing to do

    def test_stop_kills_who_ignores_it(self):
        self.up(ONE)
        job = self.submit("--grace", "1s", TOOL, "ignore")
        wait_until(lambda: self.log_texts(job) == ["runs"], "the worker")
        self.rubato("stop", job, "--wait")
        self.assertEqual(self.job(job)["phase"], "stopped")
        self.assertEqual([line for line in self.leftovers().values() if "job_tool" in line], [])

    def test_daemons_that_a_worker_detached_end_with_the_job(self):
        """`rubato run` leaves them, as torchrun does; a job's node is for the next job."""
        self.up(ONE)
        script = self.script("import sys\n"
                             "from subprocess import DEVNULL, Popen\n"
                             "one = Popen(['sleep', '600'], stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)\n"
                             "two = Popen(['sleep', '600'], stdout=DEVNULL, stderr=DEVNULL)\n"
                             "print(one.pid, two.pid, flush=True)\n"
                             "sys.exit(int(sys.argv[1]))\n")
        for code, phase in ((0, "succeeded"), (3, "failed")):
            job = self.submit("--max-restarts", 0, script, code)
            self.wait_for_job(job, phase)
            (told,) = self.log_texts(job)
            for pid in told.split():
                self.assert_gone(int(pid))

    def test_rerun_names_and_short_ids(self):
        self.up(ONE)
        first = self.submit("--wait", "--name", "again", "--priority", "5", TOOL, "say", 2)
        second = self.rubato("rerun", first).stdout.strip()
        self.assertNotEqual(first, second)
        detail = self.wait_for_job(second, "succeeded")
        self.assertEqual(detail["spec"], self.job(first)["spec"])
        self.assertEqual(self.log_texts(second), self.log_texts(first))
        self.assertEqual(self.job("again")["id"], second)
        for short in (first[:-1], first[:6]):
            if not second.startswith(short):
                self.assertEqual(self.job(short)["id"], first)
        self.assertIn("j-", self.rubato("job", "show", "j-", code=2).stderr)
        self.rubato("job", "show", "nobody", code=1)
        self.rubato("stop", "nobody", code=1)


class Queue(cluster_harness.ClusterCase):
    def ran(self, jobs):
        """The jobs in the order in which they started."""
        for job in jobs:
            self.wait_for_job(job, "succeeded")
        return sorted(jobs, key=lambda job: next(event["offset"] for event in self.json_lines(
            "events", "--limit", 1000) if event["type"] == "job-started" and event.get("job") == job))

    def test_higher_priority_first(self):
        self.up(ONE)
        running = self.submit_steps()
        self.wait_for_workers(1)
        low, middle, high = [self.submit("--priority", n, "--name", f"p{n}".replace("-", "m"), TOOL, "say", 1)
                             for n in (-3, 0, 7)]
        self.order("finish")
        self.assertEqual(self.ran([running, low, middle, high]), [running, high, middle, low])

    def test_owners_take_turns(self):
        """A free place goes to the owner who uses least, not to who asked first."""
        self.up(cluster_text(small=(1, 2, 2)))
        first, second = self.folder / "first", self.folder / "second"
        running = []
        for where in (first, second):
            where.mkdir()
            running.append(self.submit_steps(where=where, env={"USER": "greedy"}))
            self.wait_for_workers_of(running[-1], 1)
        greedy = [self.submit(TOOL, "say", 1, env={"USER": "greedy"}) for _ in range(3)]
        modest = self.submit(TOOL, "say", 1, env={"USER": "modest"})
        (first / "finish").touch()
        order = self.ran([running[0], *greedy, modest])
        self.assertEqual(order, [running[0], modest, *greedy])
        (second / "finish").touch()
        self.wait_for_job(running[1], "succeeded")

    def test_an_elastic_job_makes_room(self):
        self.up(cluster_text(small=(1, 3, 3)))
        elastic = self.submit_steps("--workers", "1:3")
        self.wait_for_workers_of(elastic, 3)
        self.wait_for_workers(3)
        # The guest stays until the others have gone on beside it, which may take longer than a short job does.
        place = self.folder / "guest"
        place.mkdir()
        guest = self.submit_steps(where=place)
        self.wait_for_job(guest, "running")
        self.wait_for_workers(2, lambda line: line["world"] == 2)
        (place / "finish").touch()
        self.wait_for_job(guest, "succeeded")
        self.wait_for_workers_of(elastic, 3)
        self.order("finish")
        self.assertEqual(self.wait_for_job(elastic, "succeeded")["restarts_used"], 0)

    def test_why_names_the_limit(self):
        self.up(cluster_text(small=(1, 2, 2)))
        job = self.submit_steps("--workers", "3", "--name", "large")
        why = wait_until(lambda: (lambda why: why if why["against"] else None)(self.json("why", "large")), "a reason")
        self.assertEqual(why["phase"], "queued")
        self.assertIn("cluster.yaml:7:18", [item.get("where") for item in why["against"]])
        shown = self.rubato("why", job).stdout
        for words in ("3 workers", "cluster.yaml:7:18", "rubato up"):
            self.assertIn(words, shown)
        self.up(cluster_text(small=(1, 3, 3)))
        self.wait_for_workers_of(job, 3)
        self.assertIn("running", self.rubato("why", job).stdout)
        self.assertIn("small-1", self.rubato("why", "small-1").stdout)
        self.order("finish")
        self.wait_for_job(job, "succeeded")


class Told(cluster_harness.ClusterCase):
    def test_a_job_that_can_never_start(self):
        self.up(ONE)
        said = self.rubato("submit", "--gpus", "3", "--no-python", "true").stderr
        self.assertRegex(said, "warning: it cannot start: no node type can hold one worker of .*3 GPU")
        self.assertNotIn("warning", self.rubato("submit", "--no-python", "true").stderr)

    def test_a_head_that_is_away(self):
        self.up(ONE)
        self.kill_head()
        submitting = self.follow("submit", "--no-python", "true")
        self.assertIn("waiting for it", submitting.stderr.readline())
        self.assertIn("rubato up", submitting.stderr.readline())
        self.up()
        job, _ = submitting.communicate(timeout=harness.WAIT)
        self.assertEqual(submitting.returncode, 0)
        self.wait_for_job(job.strip(), "succeeded")

    def test_status_events_and_replay_agree(self):
        self.up(cluster_text(small=(1, 2, 2)))
        before = self.status()["cluster"]["journal"]["offset"]
        job = self.submit("--wait", "--name", "told", TOOL, "say", 1)
        running = self.submit_steps("--workers", "2", "--name", "going")
        self.wait_for_workers_of(running, 2)
        status = self.status()
        self.assertEqual(status["totals"], {"queued": 0, "running": 1, "resources": {"CPU": 2}, "used": {"CPU": 2}})
        events = self.json_lines("events", "--limit", 1000)
        self.assertEqual([event["offset"] for event in events], list(range(1, len(events) + 1)))
        self.assertGreaterEqual(len(events), status["cluster"]["journal"]["offset"])
        phases = {entry["id"]: entry["phase"] for entry in status["jobs"]}
        self.assertEqual(phases, {job: "succeeded", running: "running"})
        now = self.json("replay")
        self.assertEqual({entry["id"]: entry["phase"] for entry in now["jobs"]}, phases)
        self.assertEqual({n["id"]: n["phase"] for n in now["nodes"]}, {n["id"]: n["phase"] for n in status["nodes"]})
        self.assertEqual(self.json("replay", "--offset", before)["jobs"], [])
        ended = next(event for event in events if event["type"] == "job-ended" and event["job"] == job)
        at = {entry["id"]: entry["phase"] for entry in self.json("replay", "--offset", ended["offset"])["jobs"]}
        self.assertEqual(at, {job: "succeeded"})
        listed = self.json("jobs")["jobs"]
        self.assertIn(running, [entry["id"] for entry in listed])
        self.assertEqual({entry["id"] for entry in self.json("jobs", "--all")["jobs"]}, {job, running})
        self.order("finish")
        self.wait_for_job(running, "succeeded")

    def test_events_are_followed(self):
        self.up(ONE)
        follower = self.follow("events", "-f", "--json", "--limit", "1")
        json.loads(follower.stdout.readline())
        job = self.submit("--wait", TOOL, "say", 1)
        types = []
        while "job-ended" not in types:
            event = json.loads(follower.stdout.readline())
            if event.get("job") == job:
                types.append(event["type"])
        self.assertEqual(types[0], "job-submitted")

    def test_metrics_and_health(self):
        self.up(ONE)
        self.submit("--wait", TOOL, "say", 1)
        status, _, body = self.api("GET", "/healthz", token="")
        self.assertEqual((status, json.loads(body)["ok"]), (200, True))
        status, _, body = self.api("GET", "/metrics")
        self.assertEqual(status, 200)
        for line in body.decode().splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) \w+ .*|\w+(\{[^}]*\})? [-+0-9.eE]+(Inf|NaN)?)$")
        self.assertRegex(body.decode(), r"(?m)^rubato_\w*nodes\w*(\{[^}]*\})? ")


class Top(cluster_harness.ClusterCase):
    def tmux(self, *args):
        done = subprocess.run(["tmux", "-S", str(self.folder / "tmux"), "-f", "/dev/null", *args], capture_output=True,
                              text=True, env=self.environment(TERM="xterm-256color"))
        return done.stdout

    def test_the_live_screen(self):
        self.up(ONE)
        self.submit_steps("--name", "watched")
        self.wait_for_workers(1)
        self.tmux("new-session", "-d", "-x", "120", "-y", "30", "-s", "t", "sh")
        try:
            self.tmux("send-keys", "-t", "t", "echo before-$((40+2))", "Enter")
            screen = lambda: self.tmux("capture-pane", "-p", "-t", "t")
            shows = lambda *words: wait_until(lambda: all(word in screen() for word in words),
                                              lambda: f"{words} on\n{screen()}")
            shows("before-42")
            self.tmux("send-keys", "-t", "t", f"{cluster_harness.RUBATO} top", "Enter")
            shows("watched", "running")
            self.assertNotIn("before-42", screen())
            self.tmux("send-keys", "-t", "t", "?")
            shows("change the view")
            self.tmux("send-keys", "-t", "t", "Escape")
            shows("watched")
            self.tmux("send-keys", "-t", "t", ":nodes", "Enter")
            shows("small-1")
            self.tmux("send-keys", "-t", "t", ":jobs", "Enter")
            shows("watched")
            self.tmux("send-keys", "-t", "t", "q")
            shows("before-42")
            self.assertNotIn("watched", screen())
            self.tmux("send-keys", "-t", "t", "echo after-$((40+3)) $?", "Enter")
            shows("after-43 0")
        finally:
            self.tmux("kill-server")


if __name__ == "__main__":
    cluster_harness.main()
