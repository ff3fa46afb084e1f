"""What the tests of clusters share: a cluster of real processes in a folder of its own.

The folder is the test's XDG_STATE_HOME. tearDown ends the cluster with `rubato down --purge` and then checks that no
process is left whose command line, working folder or environment names the test's folder or mark.
"""
import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import harness
from harness import RUBATO, SCRIPTS, wait_until

ENDED = ("succeeded", "failed", "stopped")


def cluster_text(name="local", provider="", max_workers=None, **types):
    """A cluster file; each type is (CPUs, min_workers, max_workers)."""
    lines = [f"cluster_name: {name}", f"provider: {{type: local{provider}}}"]
    if max_workers is not None:
        lines.append(f"max_workers: {max_workers}")
    lines.append("available_node_types:")
    for type_name, (cpus, least, most) in types.items():
        lines += [f"  {type_name}:", f"    resources: {{CPU: {cpus}}}", f"    min_workers: {least}",
                  f"    max_workers: {most}"]
    return "\n".join(lines) + "\n"


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class ClusterCase(harness.Case):
    cluster = "local"
    turn_limit_ms = None  # of CPU time: set, tearDown fails if a loop of a daemon had a longer turn

    def setUp(self):
        super().setUp()
        self.state = self.folder / "state"
        self.state.mkdir()
        self._following = []
        self._told = ""

    def environment(self, **changes):
        return super().environment(**({"XDG_STATE_HOME": str(self.state), "USER": "tester",
                                       "RUBATO_TURN_LIMIT_MS": self.turn_limit_ms and str(self.turn_limit_ms),
                                       "GLOO_SOCKET_IFNAME": None} | changes))

    def long_turns(self):
        """What the watchdogs of heads and agents have reported: lines with the stack of what ran, for addr2line."""
        # os.walk, for agents remove old folders meanwhile: a glob stumbles over them.
        logs = [Path(folder, name) for folder, _, names in os.walk(self.state / "rubato/clusters") for name in names
                if name == "daemon.log"]
        return [f"{path.parent.name}: {line}" for path in sorted(logs)
                for line in path.read_text(errors="replace").splitlines() if "a turn of the loop took long" in line]

    def tearDown(self):
        failed = any(case is self for case, _ in self._result.failures + self._result.errors)
        try:
            self._told = self._stories_of_cluster() if failed else ""
            long_turns = self.long_turns() if self.turn_limit_ms else []
            for process in self._following:
                if process.poll() is None:
                    process.kill()
                process.communicate()
            for place in sorted((self.state / "rubato/clusters").glob("*")):
                self.rubato("down", "-y", "--purge", "--timeout", "20s", "--cluster", place.name, code=None)
        finally:
            try:
                super().tearDown()
            finally:
                for pid in self.leftovers():
                    harness.kill_if_there(pid)
        self.assertEqual(long_turns, [], "addr2line -Cfe rubato ADDRESS says where that was")

    def leftovers(self):
        """The living processes of this test, less itself: {pid: command line}."""
        found = {}
        here, mark = str(self.folder).encode(), self.mark.encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                told = command + (entry / "environ").read_bytes() + os.readlink(entry / "cwd").encode()
                if (here in told or mark in told) and alive(int(entry.name)):
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode()
            except OSError:
                continue  # it ended meanwhile
        return found

    def assert_nothing_left(self):
        wait_until(lambda: not self.leftovers(), lambda: f"the end of {self.leftovers()}")

    def stories(self):
        """Of the cluster as it was before tearDown ended it."""
        return super().stories() + self._told

    def _stories_of_cluster(self):
        parts = []
        for path in sorted(self.state.glob("rubato/clusters/*/head/daemon.log")) + \
                sorted(self.state.glob("rubato/clusters/*/nodes/*/daemon.log")):
            parts.append(f"--- {path}\n{path.read_text(errors='replace')[-3000:]}")
        for words in (["status"], ["jobs", "--all"], ["events", "--limit", "60"]):
            parts.append(f"--- rubato {' '.join(words)}\n{self.rubato(*words, code=None).stdout[-6000:]}")
        for path in sorted(self.state.glob("rubato/clusters/*/jobs/*")):
            parts.append(f"--- logs {path.name}\n{self.rubato('logs', path.name, '-n', 60, code=None).stdout[-4000:]}")
        return "\n".join(parts)

    # --- commands

    def rubato(self, *args, code=0, env=None, cwd=None, timeout=300):
        """Runs a command to its end; the exit code must be this one, unless None."""
        done = subprocess.run([RUBATO, *map(str, args)], env=self.environment(**(env or {})), cwd=cwd or self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
                              errors="replace")
        if code is not None:
            self.assertEqual(done.returncode, code, f"{args}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done

    def json(self, *args):
        return json.loads(self.rubato(*args, "--json").stdout)

    def json_lines(self, *args):
        # Not splitlines(): a text may hold other ends of lines that Python knows.
        return [json.loads(line) for line in self.rubato(*args, "--json").stdout.split("\n") if line]

    def follow(self, *args):
        """Starts a command that goes on; its output is read by the test."""
        process = subprocess.Popen([RUBATO, *map(str, args)], env=self.environment(), cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=harness.die_with_parent)
        self._following.append(process)
        return process

    @contextlib.contextmanager
    def output_of(self, *args):
        """The lines of a command's output as they come; it must succeed."""
        process = self.follow(*args)
        yield process.stdout
        self.assertEqual(process.wait(timeout=harness.WAIT), 0, args)

    def up(self, text=None, *flags, code=0):
        """`rubato up` with a file of this text, or without one."""
        if text is None:
            return self.rubato("up", "-y", *flags, code=code)
        (self.folder / "cluster.yaml").write_text(text)
        return self.rubato("up", "-y", *flags, "cluster.yaml", code=code)

    def submit(self, *args, env=None, cwd=None):
        """The id of the new job."""
        return self.rubato("submit", *args, env=env, cwd=cwd).stdout.strip()

    def script(self, text, name="job.py", folder="work"):
        """Writes a script of its own folder; its path."""
        path = self.folder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def submit_steps(self, *flags, where=None, **options):
        """A job of steps.py (see there), steered through files in the test's folder, or in `where`."""
        return self.submit(*flags, "-d", SCRIPTS, "steps.py", where or self.folder, **options)

    # --- what is there

    @property
    def place(self):
        return self.state / "rubato/clusters" / self.cluster

    def status(self):
        return self.json("status")

    def nodes(self):
        """{id: node} of those that are up."""
        return {node["id"]: node for node in self.status()["nodes"] if node["phase"] == "up"}

    def job(self, ref):
        return self.json("job", "show", ref)

    def head_pid(self):
        return json.loads((self.place / "head/head.json").read_text())["pid"]

    def supervisor_pid(self):
        """None: there is none."""
        try:
            pid = int((self.place / "supervisor/daemon.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if alive(pid) else None

    def node_pids(self):
        """{node: pid of its agent}"""
        pids = {}
        for path in self.place.glob("nodes/*/daemon.pid"):
            try:
                pids[path.parent.name] = int(path.read_text())
            except (FileNotFoundError, ValueError):
                continue  # the node goes, or comes: its folder is removed, its number not written yet
        return {node: pid for node, pid in pids.items() if alive(pid)}

    def wait_for_nodes(self, count):
        return wait_until(lambda: (lambda nodes: nodes if len(nodes) == count else None)(self.nodes()),
                          lambda: f"{count} nodes, have {self.nodes()}")

    def wait_for_job(self, ref, *phases, timeout=harness.WAIT):
        """Waits until the job is in one of the phases; its detail."""

        def found():
            job = self.job(ref)
            if job["phase"] in ENDED and job["phase"] not in phases:
                raise AssertionError(f"the job ended: {json.dumps(job, indent=1)}")
            return job if job["phase"] in phases else None

        return wait_until(found, lambda: f"{phases} of {self.rubato('job', 'show', ref, code=None).stdout}", timeout)

    def wait_for_workers_of(self, ref, count):
        """Waits until the job runs with this many workers."""
        return wait_until(lambda: (lambda job: job if (job["phase"], job["workers"]) == ("running", count) else None)(
            self.job(ref)), lambda: f"{count} workers of {self.rubato('job', 'show', ref, code=None).stdout}")

    def output(self, job):
        return self.place / "jobs" / job / "output"

    def log_texts(self, ref, *flags):
        return [line["text"] for line in self.json_lines("logs", ref, *flags)]

    # --- faults

    def kill(self, *pids):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            self.assert_gone(pid)

    def kill_head(self, *others):
        """Kills the head, its supervisor and the stand-in of that, and the others with it: nobody is left who would
        start it again. One that is to come back by itself is killed alone: self.kill(self.head_pid())."""
        head = self.head_pid()
        os.kill(head, signal.SIGSTOP)  # it would replace its supervisor
        supervisor = self.supervisor_pid()
        if supervisor:
            os.kill(supervisor, signal.SIGSTOP)  # it would replace its stand-in
            self.kill(*self.stand_ins())
            self.kill(supervisor)
        self.kill(head, *others)

    def stand_ins(self):
        """Who would start another supervisor if that one was killed: a process of its name."""
        supervisor = self.supervisor_pid()
        return [pid for pid, words in self.leftovers().items() if " supervise --dir " in words and pid != supervisor]

    # --- the API, without the CLI

    def api_place(self):
        return json.loads((self.place / "head/head.json").read_text())["api"]

    def token(self):
        return (self.place / "token").read_text().strip()

    def api(self, method, path, body=None, headers=None, token=None):
        """(status, headers, body) of one request as a person with the token, or with `token`; "" is none."""
        at = self.api_place()
        token = self.token() if token is None else token
        connection = http.client.HTTPConnection(at["host"], at["port"], timeout=harness.WAIT)
        try:
            connection.request(method, path, body,
                               ({"Authorization": f"Bearer {token}"} if token else {}) | (headers or {}))
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()


def main():
    harness.main()
