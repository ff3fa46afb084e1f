"""What the end-to-end tests share: agents and their event files, waiting, network hosts, etcd.

Everything a test starts carries the test's mark in its environment. tearDown kills the agents and then checks that
nothing with that mark is left: no worker may outlive its agent, in any test.
"""
import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUBATO = os.path.abspath(os.environ.get("RUBATO", ROOT / "build/rubato"))
PYTHON = "/usr/bin/python3"  # Debian's, with PyTorch
SCRIPTS = ROOT / "tests/scripts"
STEPS = str(SCRIPTS / "steps.py")
WAIT = int(os.environ.get("RUBATO_TEST_WAIT", "150"))  # seconds; only a broken product waits that long
MARK = "RUBATO_TEST_MARK"

# PyTorch 1.13 cannot read its own default of these two flags on Python 3.11. This gives the default's meaning: local
# rank 9, which no test has, is redirected.
TORCHRUN = [PYTHON, "-m", "torch.distributed.run"]
TORCHRUN_STREAMS = ["-r", "9:1", "-t", "9:1"]
_OWN_PORT = ("--rdzv_endpoint", "--rdzv-endpoint", "--master_port", "--master-port")


def torchrun_argv(*args):
    """One at a time where it takes its fixed port: a second one would use the first one's store, until that ends."""
    argv = [*TORCHRUN, *map(str, args)]
    if any(str(arg).startswith(_OWN_PORT) for arg in args):
        return argv
    return ["flock", "--no-fork", f"{tempfile.gettempdir()}/rubato-e2e-torchrun-{os.getuid()}.lock", *argv]

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000


def die_with_parent():
    """For preexec_fn: the kernel kills this process when the test ends, however it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _new_network():
    die_with_parent()
    if _libc.unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")


_reserved = []


def reserve(name):
    """Whether no other test of this machine has this name now; it is this process's until that ends, however it ends.

    An abstract socket is of the whole machine, needs no file and no rights, and cannot be left behind.
    """
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"\0rubato-test-{name}")
    except OSError:
        held.close()
        return False
    _reserved.append(held)
    return True


def free_port(host="127.0.0.1"):
    """A port that nobody uses, outside the ranges from which the kernel takes ports for clients (from 32768 on) and
    rubato those of masters (20000 to 32000).

    No other test gets the same one, also of another checkout, although it is not bound yet.
    """
    while True:
        port = random.SystemRandom().randrange(15000, 20000)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        if reserve(f"port-{port}"):
            return port


def memory_folder(prefix):
    """A new folder for what waits for its disk again and again (etcd): in memory, as other tests keep the disk busy."""
    shm = "/dev/shm"
    roomy = os.path.isdir(shm) and shutil.disk_usage(shm).free > 2 << 30  # an etcd takes 64 MB of it at once
    return tempfile.mkdtemp(prefix=prefix, dir=shm if roomy else None)


def read_lines(path):
    """The whole JSON lines of a file that is still being written."""
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def wait_until(condition, what, timeout=WAIT):
    """The condition's first true value. `what` goes into the error: text, or a function that makes it."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s for {what() if callable(what) else what}")
        time.sleep(0.01)


def marked_processes(mark):
    """The living processes that carry the mark: {pid: command line}."""
    found = {}
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it ended meanwhile
    return found


def kill_if_there(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Agent:
    """One `rubato run` (or torchrun) process, with its own event file and its output in files."""

    def __init__(self, argv, folder, name, env):
        self.name = name
        self.events_path = folder / f"{name}.events"
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=err, preexec_fn=die_with_parent)

    @property
    def pid(self):
        return self.process.pid

    @property
    def stdout(self):
        return self._out.read_text(errors="replace")

    @property
    def stderr(self):
        return self._err.read_text(errors="replace")

    def events(self, event=None, **fields):
        return [line for line in read_lines(self.events_path)
                if event in (None, line["event"]) and all(line.get(k) == v for k, v in fields.items())]

    def wait_for(self, event, where=lambda line: True, timeout=WAIT, **fields):
        """The first event of that kind, with these fields, for which `where` holds."""

        def found():
            ended = self.process.poll() is not None  # asked before reading, so that a last event is seen
            lines = [line for line in self.events(event, **fields) if where(line)]
            if not lines and ended:
                raise AssertionError(f"the agent ended before {event} {fields}\n{self.story()}")
            return lines and lines[0]

        return wait_until(found, lambda: f"{event} {fields}\n{self.story()}", timeout)

    def running(self, world_size, after=0):
        """Waits for a generation above `after` with this many workers; its event."""
        return self.wait_for("running", lambda line: line["generation"] > after, world_size=world_size)

    def worker_pids(self, generation, count=1):
        """Waits until so many workers of this agent's part of the generation are spawned; {rank: pid}."""
        wait_until(lambda: len(self.events("spawn", generation=generation)) >= count, self.story)
        return {line["rank"]: line["pid"] for line in self.events("spawn", generation=generation)}

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def finish(self, timeout=WAIT):
        """Waits for the end; the exit code, negative for a signal."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s\n{self.story()}") from None

    def story(self):
        events = "\n".join(json.dumps(line) for line in self.events()[-40:])
        return (f"--- {self.name}: pid {self.pid}, exit code {self.process.poll()}\n{events}\n"
                f"--- {self.name}: stderr\n{self.stderr[-4000:]}\n--- {self.name}: stdout\n{self.stdout[-1500:]}")


class Case(unittest.TestCase):
    def setUp(self):
        self.mark = str(uuid.uuid4())
        self.folder = Path(tempfile.mkdtemp(prefix="rubato-e2e-"))
        self.home = self.folder / "home"
        self.home.mkdir()
        self.agents = []
        self._helpers = []

    def run(self, result=None):
        self._result = result
        return super().run(result)

    def tearDown(self):
        if any(case is self for case, _ in self._result.failures + self._result.errors):
            print(self.stories(), file=sys.stderr, flush=True)
        for process in [agent.process for agent in self.agents] + self._helpers:
            if process.poll() is None:
                process.kill()
            process.wait()
        try:
            self.assert_nothing_left()
        finally:
            for pid in marked_processes(self.mark):
                kill_if_there(pid)
            shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, **changes):
        """A small environment, the same on every machine, with the test's mark. None removes a name."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LC_ALL": "C.UTF-8", "TMPDIR": str(self.folder),
               "PYTHON_EXEC": PYTHON, "GLOO_SOCKET_IFNAME": "lo", MARK: self.mark} | changes
        return {name: value for name, value in env.items() if value is not None}

    def agent(self, *args, env=None, host=None, name=None):
        """Starts `rubato run` with these arguments; `host` is a Host of a Lan."""
        name = name or f"agent{len(self.agents)}"
        argv = [RUBATO, "run", "--events", str(self.folder / f"{name}.events"), *map(str, args)]
        return self._start(argv, name, env, host)

    def torchrun(self, *args, env=None, name=None):
        return self._start(torchrun_argv(*args), name or f"torchrun{len(self.agents)}", env, None)

    def finished(self, launch, *args, agents=1, **options):
        """Starts agents with one of the two above, waits for their success; the first of them.

        torchrun now and then cannot reach its own store ("Connection reset by peer"); it is then tried again.
        """
        patience = WAIT if launch == self.agent else 3 * WAIT  # for the torchruns of other tests come first, perhaps
        for _ in range(3):
            started = [launch(*args, **options) for _ in range(agents)]
            codes = [agent.finish(patience) for agent in started]
            if launch == self.agent or not any(codes):
                break
        self.assertEqual(codes, [0] * agents, self.stories())
        return started[0]

    def _start(self, argv, name, env, host):
        if host:
            argv = host.inside(argv)
        agent = Agent(argv, self.folder, name, self.environment(**(env or {})))
        self.agents.append(agent)
        return agent

    def group(self, count, nnodes, *args, script=(), port=None, **options):
        """Starts agents that meet at one port of this machine; they run steps.py unless told otherwise."""
        port = port or free_port()
        # Who is killed is known to be dead at once. Who is silent for the usual 3 s may be an agent whose turn does not
        # come on a busy machine: it is given up in those tests alone that say after how long.
        silence = [] if "--heartbeat" in args else ["--heartbeat", "15s"]
        flags = ["--nnodes", nnodes, "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "job", *silence, *args]
        return [self.agent(*flags, *(script or (STEPS, self.folder)), **options) for _ in range(count)]

    def steps(self):
        """The lines that the workers wrote (see tests/scripts/steps.py)."""
        return read_lines(self.folder / "workers.jsonl")

    def wait_for_workers(self, count, where=lambda line: True):
        """Waits until that many workers have reached their main; their lines."""

        def found():
            lines = [line for line in self.steps() if where(line)]
            return lines if len(lines) >= count else None

        return wait_until(found, lambda: f"{count} workers, have {self.steps()}\n" + self.stories())

    def order(self, name, text=""):
        """Writes an order for the workers, whole or not at all."""
        draft = self.folder / f".{name}"
        draft.write_text(str(text))
        draft.rename(self.folder / name)

    def stories(self):
        return "\n".join(agent.story() for agent in self.agents)

    def finish(self, agents, code=0):
        """Orders all workers to finish; every agent must end with the code."""
        self.order("finish")
        for agent in agents:
            self.assertEqual(agent.finish(), code, agent.story())

    def assert_nothing_left(self):
        wait_until(lambda: not marked_processes(self.mark),
                   lambda: f"the end of {marked_processes(self.mark)}")

    def assert_gone(self, pid):
        def gone():
            try:
                return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            except OSError:
                return True

        wait_until(gone, f"the end of process {pid}")

    def helper(self, argv, **options):
        """Starts another program that ends with the test."""
        process = subprocess.Popen(argv, env=self.environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   **({"preexec_fn": die_with_parent} | options))
        self._helpers.append(process)
        return process

    def lan(self, count):
        return Lan(self, count)

    def etcd(self, count=1):
        return [Etcd(self, member) for member in Etcd.plan(self, count)]


class Host:
    """A machine of a Lan: its address, and how to run something there."""

    def __init__(self, pid, address):
        self.pid, self.address = pid, address

    def inside(self, argv):
        return ["nsenter", "-t", str(self.pid), "-n", *argv]

    def run(self, *argv):
        subprocess.run(self.inside(argv), check=True)


class Lan:
    """Hosts in network namespaces, cabled to one switch.

    A namespace lives as long as the sleeping process in it, and that one dies with the test: nothing has a name that
    could clash or be left behind.
    """

    def __init__(self, case, count):
        if os.geteuid() != 0:
            case.skipTest("network namespaces need root")
        self._switch = Host(self._namespace(case), None)
        self._switch.run("ip", "link", "add", "switch", "type", "bridge")
        self._switch.run("ip", "link", "set", "switch", "up")
        self.hosts = [self._cable(case, n) for n in range(1, count + 1)]

    @staticmethod
    def _namespace(case):
        return case.helper(["sleep", "infinity"], preexec_fn=_new_network).pid

    def _cable(self, case, n):
        host = Host(self._namespace(case), f"10.77.0.{n}")
        self._switch.run("ip", "link", "add", f"port{n}", "type", "veth",
                         "peer", "name", "eth0", "netns", str(host.pid))
        self._switch.run("ip", "link", "set", f"port{n}", "master", "switch", "up")
        host.run("ip", "link", "set", "lo", "up")
        host.run("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        return host

    def cut(self, host):
        """Pulls the host's cable: nothing comes through, and nobody is told."""
        self._switch.run("ip", "link", "set", self._port(host), "down")

    def heal(self, host):
        self._switch.run("ip", "link", "set", self._port(host), "up")

    def _port(self, host):
        return f"port{self.hosts.index(host) + 1}"


class Etcd:
    """A member of an etcd cluster on this machine."""

    @staticmethod
    def plan(case, count):
        members = [{"name": f"etcd{n}", "client": free_port(), "peer": free_port()} for n in range(count)]
        cluster = ",".join(f"{m['name']}=http://127.0.0.1:{m['peer']}" for m in members)
        return [m | {"cluster": cluster} for m in members]

    def __init__(self, case, member):
        self.port = member["client"]
        self.endpoint = f"127.0.0.1:{self.port}"
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{member['peer']}"
        data = memory_folder(f"rubato-etcd-{member['name']}-")
        case.addCleanup(shutil.rmtree, data, ignore_errors=True)
        self.process = case.helper([
            "etcd", "--name", member["name"], "--data-dir", data,
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", member["cluster"], "--heartbeat-interval", "200", "--election-timeout", "2000"])

    def status(self):
        request = urllib.request.Request(f"http://{self.endpoint}/v3/maintenance/status", b"{}")
        with urllib.request.urlopen(request, timeout=2) as answer:
            return json.load(answer)

    def wait_until_ready(self):
        def leads():
            try:
                return self.status().get("leader")
            except OSError:
                return None

        wait_until(leads, f"etcd at {self.endpoint}")

    def is_leader(self):
        status = self.status()
        return status.get("leader") == status["header"]["member_id"]

    def kill(self):
        self.process.kill()
        self.process.wait()


def main():
    unittest.main(verbosity=2)
