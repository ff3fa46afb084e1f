"""A fresh library in a fresh environment for each test; groups of real processes."""
import atexit
import faulthandler
import os
import random
import runpy
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
import unittest

import torch
try:
    import torch._dynamo  # noqa: F401  PyTorch 2 imports it with the first optimiser: here once, not in each worker
except ImportError:
    pass

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.dirname(HERE)
_held_ports, _pauses = [], 0
if LIBRARY not in sys.path:
    sys.path.insert(0, LIBRARY)

VARIABLES = ("RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "RUBATO_GENERATION", "ADAPTDL_CHECKPOINT_PATH", "RUBATO_OUTPUT",
             "MASTER_ADDR", "MASTER_PORT", "ADAPTDL_SUPERVISOR_URL", "RUBATO_JOB_ID", "TORCHELASTIC_RESTART_COUNT",
             "RUBATO_PLAN_DIR", "RUBATO_WORKER_ID", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
             "ADAPTDL_REPLICA_RANK", "ADAPTDL_NUM_REPLICAS", "ADAPTDL_NUM_NODES")


def forget():
    """As if the process had just begun."""
    from rubato import checkpoint
    from rubato.torch import data, epoch, profile

    checkpoint._reset()
    epoch._reset()
    data._flags = profile._profile = None
    data.Loop.current = data.Loop._training = None
    data.Loop._owed = data.Loop._owed_in = 0
    data.Loop._positions.clear()
    data.Loop.models.clear()
    data.Loop._all.clear()
    data.epochs_end_by_progress = data.equal_shares = False


class LibraryTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # fsync is slow elsewhere
        self.addCleanup(self.folder.cleanup)
        saved = {name: os.environ.pop(name, None) for name in VARIABLES}
        self.addCleanup(self._restore, saved)
        os.environ["ADAPTDL_CHECKPOINT_PATH"] = os.path.join(self.folder.name, "checkpoint")
        forget()
        self.addCleanup(forget)

    def _restore(self, saved):
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in saved.items() if value is not None})

    def be(self, rank, replicas, generation=0):
        forget()
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(replicas), RUBATO_GENERATION=str(generation))


class Forked:
    """A program in a child of this process, which has imported PyTorch already: a start takes hundredths of a second."""

    def __init__(self, argv, env, output):
        self.output, self.code = output, None
        sys.stdout.flush()
        sys.stderr.flush()
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self.pid = os.fork()
        if self.pid == 0:
            _be_worker(argv, env, out)
        os.close(out)

    def poll(self):
        """Its exit code once it has ended, as subprocess has it."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} did not end within {timeout:.0f} s")
            time.sleep(0.003)
        return self.code

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def text(self):
        with open(self.output, encoding="utf-8", errors="replace") as file:
            return file.read()


def _be_worker(argv, env, out):
    """In the child: never returns."""
    code = 1
    atexit._clear()  # those of the test are none of ours
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(env)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.register(signal.SIGUSR1)  # `story` asks where it is
        sys.argv = argv
        torch.set_num_threads(1)
        forget()
        runpy.run_path(argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def free_port():
    """Outside the ranges from which the kernel and rubato take ports; nobody else's who asks so (tests/e2e/harness.py),
    although it is not bound yet: the name of an abstract socket is this process's until it ends."""
    while True:
        port = random.SystemRandom().randrange(15000, 20000)
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0rubato-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            held.close()
            continue
        _held_ports.append(held)
        return port


def _number_in(path, at):
    try:
        with open(path, "rb") as file:
            return struct.unpack_from("<Q", file.read(), at)[0]
    except (FileNotFoundError, struct.error):
        return 0


def pause(seconds):
    """For scripts, after each step: nothing may be over before the test has done its part, however late it gets its turn.

    A worker of agent.py goes as far as that one lets it. Another one stops after some steps while there is the file
    $RUBATO_TEST_HOLD.
    """
    global _pauses
    time.sleep(seconds)
    _pauses += 1
    hold = os.environ.get("RUBATO_TEST_HOLD")
    while hold and _pauses > 3 and os.path.exists(hold):
        time.sleep(0.003)
    folder = os.environ.get("RUBATO_PLAN_DIR")
    if folder and os.path.exists(os.path.join(folder, "limit")):
        own = os.path.join(folder, f"worker-{os.environ['RUBATO_WORKER_ID']}.step")
        while _number_in(own, 8) > _number_in(os.path.join(folder, "limit"), 0):
            time.sleep(0.003)


def start_group(script, replicas, folder, generation=0, arguments=(), variables=None):
    """Starts `script` as a group of processes; what each prints is in folder/out-GENERATION-RANK."""
    port = free_port()
    processes = []
    for rank in range(replicas):
        env = {"RANK": str(rank), "WORLD_SIZE": str(replicas), "LOCAL_RANK": str(rank),
               "GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
               "RUBATO_GENERATION": str(generation), "RUBATO_OUTPUT": folder,
               "ADAPTDL_CHECKPOINT_PATH": os.path.join(folder, "checkpoint"),
               "PYTHONPATH": LIBRARY + os.pathsep + os.path.join(LIBRARY, "adaptdl"), **(variables or {})}
        output_path = os.path.join(folder, f"out-{generation}-{rank}")
        argv = [os.path.join(HERE, "scripts", script), *arguments]
        processes.append(Forked(argv, env, output_path))
    return processes


def output(folder, generation, rank):
    with open(os.path.join(folder, f"out-{generation}-{rank}"), encoding="utf-8", errors="replace") as file:
        return file.read()
