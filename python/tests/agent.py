"""The agent's side of docs/training.md's contract, as a reference and for tests: starts workers, plans their group.

See docs/training.md.
"""
import json
import os
import signal
import struct
import subprocess
import sys
import time

import testing

AHEAD = 3  # steps that workers do while nobody waits for them
LIMIT_S = float(os.environ.get("RUBATO_TEST_LIMIT_S", 120))  # only a broken library reaches it


class _Story:
    """A text that is made when it is printed."""

    def __init__(self, tell):
        self._tell = tell

    def __str__(self):
        return self._tell()


class Store:
    """`python3 -m rubato._store`, outside all workers. It needs no PyTorch."""

    token = "a-secret-of-the-test"

    def __init__(self, folder):
        path = os.path.join(folder, "store-address")
        env = {**os.environ, "RUBATO_STORE_TOKEN": self.token, "PYTHONPATH": testing.LIBRARY}
        self.process = subprocess.Popen([sys.executable, "-B", "-m", "rubato._store", "--address-file", path], env=env)
        wait_until(lambda: os.path.exists(path), "the store's address")
        with open(path, encoding="utf-8") as file:
            self.address = file.read()

    def close(self):
        self.process.kill()
        self.process.wait()


def wait_until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what() if callable(what) else what}: not within {LIMIT_S} s")
        time.sleep(0.003)
    return result


class Agent:
    def __init__(self, folder, store, script, arguments=()):
        self.folder, self.store, self.script, self.arguments = folder, store, script, arguments
        self.plans = os.path.join(folder, "plans")
        os.makedirs(self.plans)
        self._write("generation", struct.pack("<Q", 0))
        self._limit = AHEAD
        self._write("limit", struct.pack("<Q", self._limit))
        self.workers = {}  # all that were ever started
        self.generation = 0
        self.members = []  # names, by rank
        self.lost = []
        self._veterans = set()  # have been in a group: they have the job's state
        self._count = 0

    # The contract ------------------------------------------------------------------------------------------------------

    def _write(self, name, data):
        whole = name in ("generation", "limit") and self._has(name)
        with open(os.path.join(self.plans, name), "r+b" if whole else "wb") as file:
            file.write(data)

    def _has(self, name):
        return os.path.exists(os.path.join(self.plans, name))

    def publish(self, members, lost=()):
        """Plans the next generation. Ranks follow the order of `members`; survivors come first."""
        self.lost += [name for name in lost if name not in self.lost]
        self.members = list(members)
        self.generation += 1
        plan = {"version": 1, "generation": self.generation, "lost": self.lost,
                "store": {"address": self.store.address, "token": self.store.token},
                "members": [{"id": name, "rank": i, "local_rank": i, "node": 0} for i, name in enumerate(members)]}
        self._write("plan.json.new", json.dumps(plan).encode())
        os.rename(os.path.join(self.plans, "plan.json.new"), os.path.join(self.plans, "plan.json"))
        self._write("generation", struct.pack("<Q", self.generation))
        self.pace()  # the plan is seen after a step

    def pace(self):
        """Lets scripts that ask (testing.pause) do some steps more."""
        limit = max((self.step(name)[1] for name in self.members), default=0) + AHEAD
        if limit > self._limit:
            self._limit = limit
            self._write("limit", struct.pack("<Q", limit))

    def report(self, name):
        try:
            with open(os.path.join(self.plans, f"worker-{name}.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {"state": "starting", "generation": 0, "step": 0}

    def step(self, name):
        """(generation, step) as of its last one."""
        try:
            with open(os.path.join(self.plans, f"worker-{name}.step"), "rb") as file:
                return struct.unpack("<QQ", file.read(16))
        except (FileNotFoundError, struct.error):
            return 0, 0

    def tend(self, pace=True):
        """What an agent does by itself: plans anew when a member has died, has ended, or says that its group broke."""
        if pace:
            self.pace()
        ended = [name for name in self.members if self.workers[name].poll() is not None]
        broken = [name for name in self.members if name not in ended and self.report(name)["state"] == "broken"
                  and self.report(name)["generation"] == self.generation]
        crashed = [name for name in ended if self.workers[name].code != 0]
        rest = [name for name in self.members if name not in ended]
        self._veterans |= {name for name in self.members if self.report(name)["state"] == "training"}
        if len(crashed) < len(ended):  # the training is over: whoever has not begun would begin it anew
            for name in [name for name in rest if name not in self._veterans]:
                self.workers[name].send_signal(signal.SIGTERM)
                rest.remove(name)
        waits = any(self.report(name)["generation"] < self.generation for name in rest)
        if rest and (crashed or broken or (ended and waits)):
            time.sleep(0.01)  # a group that breaks again and again must not use up the machine
            self.publish(rest, lost=[name for name in self.members if name not in rest])
        elif len(rest) + len(ended) < len(self.members):
            self.members = [name for name in self.members if name in rest or name in ended]

    # Workers -----------------------------------------------------------------------------------------------------------

    def start(self, variables=None, script=None, arguments=None):
        """Starts one; it is in no plan yet. Returns its name."""
        name = f"w{self._count}"
        self._count += 1
        output = os.path.join(self.folder, f"out-{name}")
        env = {"RUBATO_PLAN_DIR": self.plans, "RUBATO_WORKER_ID": name, "RANK": str(self._count), "RUBATO_OUTPUT":
               self.folder, "ADAPTDL_CHECKPOINT_PATH": os.path.join(self.folder, "checkpoint"), **(variables or {})}
        script = os.path.join(testing.HERE, "scripts", script or self.script)  # or an absolute path
        argv = [script, *map(str, self.arguments if arguments is None else arguments)]
        self.workers[name] = testing.Forked(argv, env, output)
        return name

    def wait_for_state(self, name, state, generation=0):
        def there():
            self.tend(pace=state != "ready")  # for that nobody has to do a step
            report = self.report(name)
            return report["state"] == state and report["generation"] >= generation

        wait_until(there, lambda: f"{name} {state} in {generation}: {self.story()}")

    def wait_for_step(self, name, step):
        wait_until(lambda: self.tend() or self.step(name)[1] >= step or self.workers[name].poll() is not None,
                   lambda: f"step {step} of {name}: {self.story()}")

    def wait_for_end(self, name):
        wait_until(lambda: self.tend() or self.workers[name].poll() is not None,
                   lambda: f"the end of {name}: {self.story()}")
        return self.workers[name].code

    def story(self):
        """For a test that failed: what each worker did, and where those that live are.

        Asked for only then: to tell where it is costs a worker time, and can take it down on Python 3.12.
        """
        return _Story(self._tell)

    def _tell(self):
        for worker in self.workers.values():
            worker.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        lines = [f"generation {self.generation}, members {self.members}, lost {self.lost}"]
        for name, worker in self.workers.items():
            lines.append(f"{name}: {worker.code} {self.report(name)} {self.step(name)}\n{worker.text()[-3000:]}")
        return "\n".join(lines)

    def close(self):
        for worker in self.workers.values():
            worker.send_signal(signal.SIGKILL)
        for worker in self.workers.values():
            wait_until(lambda worker=worker: worker.poll() is not None, "the end of a killed worker")
