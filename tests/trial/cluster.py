"""The cluster of a trial: its commands, its processes, and pauses of them. Signals go by pidfd, and only to processes
whose command line names this cluster's folder: a number that was given to somebody else is never hit."""
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

COMMAND_MAX_S = 90  # a head may be stopped for 20 s while a command waits for it
NODES = 4
FILE = f"""cluster_name: trial
provider: {{type: local}}
available_node_types:
  small:
    resources: {{CPU: 1}}
    min_workers: {NODES}
    max_workers: {NODES}
"""


@dataclass
class Done:
    code: int  # -1: it ran out of its time
    out: str
    err: str


class Process:
    """One process, held by a pidfd."""

    def __init__(self, pid, word):
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        try:
            told = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            told = b""
        if word.encode() not in told:
            os.close(self._fd)
            raise ProcessLookupError(pid)

    def send(self, number):
        """False: it is gone."""
        try:
            signal.pidfd_send_signal(self._fd, number)
            return True
        except ProcessLookupError:
            return False

    def close(self):
        os.close(self._fd)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_worker(pid, job, generation, rank):
    """Others may have its number by now: an agent, or another job's worker."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    wanted = {"RUBATO_JOB_ID": job, "RUBATO_GENERATION": generation, "RANK": rank}
    return all(f"{name}={value}".encode() in environ for name, value in wanted.items())


def read_pid(path):
    try:
        pid = int(path.read_text())
        return pid if alive(pid) else None
    except (OSError, ValueError):
        return None  # it comes or goes


class Up:
    """A `rubato up` that runs. Every one is written down: one that fails without a cause is a finding."""

    def __init__(self, cluster):
        self._cluster, self._begin, self._given_up = cluster, time.monotonic(), False
        self._words = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [cluster.binary, "up", "-y", str(cluster.folder / "cluster.yaml")], env=cluster.environment(),
            cwd=cluster.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._words)

    def ended(self):
        return self._process.poll() is not None

    def give_up(self):
        """As a person who types it again because the head was killed meanwhile."""
        self._given_up = True
        self._process.kill()

    def result(self):
        """Waits for its end; (exit code, what it said)."""
        code = self._process.wait()
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip()[-600:]
        self._words.close()
        self._cluster.note("given-up" if self._given_up else "up", at=self._begin, until=time.monotonic(), code=code,
                           words=words)
        return code, words


class Cluster:
    def __init__(self, rubato, folder):
        self.binary, self.folder = str(rubato), Path(folder)
        self.here = Path(__file__).resolve().parent
        self.place = self.folder / "state/rubato/clusters/trial"
        self.started = time.monotonic()
        self._log = (self.folder / "strikes.jsonl").open("a", buffering=1)
        self._lock = threading.Lock()
        for name in ("state", "lives", "ticks"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "cluster.yaml").write_text(FILE)

    def note(self, what, **fields):
        """Writes down what was done to the cluster; the checks read it."""
        with self._lock:
            self._log.write(json.dumps({"what": what} | fields) + "\n")

    # --- commands

    def environment(self):
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8", "USER": "trial",
                "XDG_STATE_HOME": str(self.folder / "state"), "TMPDIR": str(self.folder)}

    def rubato(self, *args, timeout=COMMAND_MAX_S):
        try:
            done = subprocess.run([self.binary, *map(str, args)], env=self.environment(), cwd=self.folder,
                                  timeout=timeout, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  errors="replace")
            return Done(done.returncode, done.stdout, done.stderr)
        except subprocess.TimeoutExpired as late:
            return Done(-1, "", f"no end after {late.timeout:g} s")

    def json(self, *args):
        """None when the head does not answer."""
        done = self.rubato(*args, "--json")
        return json.loads(done.out) if done.code == 0 else None


    # --- processes

    def head(self):
        return read_pid(self.place / "head/daemon.pid")

    def supervisor(self):
        return read_pid(self.place / "supervisor/daemon.pid")

    def agents(self):
        """{node: pid}"""
        found = {path.parent.name: read_pid(path) for path in self.place.glob("nodes/*/daemon.pid")}
        return {node: pid for node, pid in sorted(found.items()) if pid}

    def workers(self):
        """Those that live: [(job, generation, rank, pid)]"""
        found = []
        for path in sorted((self.folder / "ticks").iterdir()):
            job, generation, rank, pid = path.name.split(".")
            if alive(int(pid)) and is_worker(int(pid), job, generation, rank):
                found.append((job, int(generation), int(rank), int(pid)))
        return found

    def starts(self):
        """How many workers have started so far."""
        return len(os.listdir(self.folder / "ticks"))

    def leftovers(self):
        """Processes of this trial's cluster: heads, agents, guards, commands, workers. {pid: command line}"""
        found, here = {}, f"{self.folder}/".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                ours = here + b"state" in command + (entry / "environ").read_bytes()
                if ours and alive(int(entry.name)):
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended meanwhile
        return found
