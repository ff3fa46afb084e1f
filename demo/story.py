"""Tells the demo: starts agents, disturbs them, and checks every claim it prints. Times come from the event files."""
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUBATO = os.path.abspath(os.environ.get("RUBATO", ROOT / "build/rubato"))
PYTHON = "/usr/bin/python3"
STEPS = 500
RIGHT_LOSS = 0.0094  # that of an undisturbed training of so many steps; it begins at 0.76
LIMIT = 90  # seconds for any one thing to happen

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


class Demo:
    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rubato-demo-"))
        self.agents = {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.endpoint = f"localhost:{probe.getsockname()[1]}"
        self.begin = time.monotonic()

    # Telling.

    def say(self, text, colour="0"):
        print(f"{paint('2', f'{time.monotonic() - self.begin:5.1f} s')}  {paint(colour, text)}", flush=True)

    def type(self, command):
        self.say(f"$ {command}", "1;36")

    # Watching.

    def lines(self, name):
        try:
            text = (self.folder / name).read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait(self, what, condition):
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        raise SystemExit(self.failed(f"{what} did not happen within {LIMIT} s"))

    def running(self, name, world, after=0):
        """Waits for the agent's first generation above `after` with that many workers; its event."""
        return self.wait(f"agent {name}: a group of {world}", lambda: next(
            (e for e in self.lines(f"{name}.events") if e["event"] == "running" and e["world_size"] == world
             and e["generation"] > after), None))

    def spawned(self, name, generation):
        """When the agent had started its worker of that generation."""
        return self.wait("a worker", lambda: next((e["mono"] for e in self.lines(f"{name}.events")
                                                   if e["event"] == "spawn" and e["generation"] == generation), None))

    def trains(self, world, more=80):
        """Waits for some more steps in that world; tells the last."""
        done = max((p.get("step", 0) for p in self.lines("progress.jsonl")), default=0)
        last = self.wait(f"training with {world} workers", lambda: next(
            (p for p in self.lines("progress.jsonl") if p.get("step", 0) >= done + more and p["world"] == world), None))
        self.say(f"   step {last['step']:3d} of {STEPS}, {world} workers, loss {last['loss']:.3f}")

    def failed(self, why):
        print(paint("1;31", f"demo failed: {why}"))
        for name in self.agents:
            print(f"--- agent {name}\n{(self.folder / f'{name}.log').read_text()[-2000:]}")
        return 1

    # Doing.

    def start(self, name):
        argv = [RUBATO, "run", "--nnodes=1:3", f"--rdzv-endpoint={self.endpoint}", "--rdzv-id=demo", "--prewarm=torch",
                f"--python={PYTHON}", f"--events={self.folder}/{name}.events", str(ROOT / "demo/train.py"),
                str(self.folder), str(STEPS)]
        env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        before = time.monotonic()
        with open(self.folder / f"{name}.log", "w") as log:
            self.agents[name] = subprocess.Popen(
                argv, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))  # they end with the demo
        return before

    def play(self):
        self.say("Two agents start; either can host the rendezvous, the first one does.", "1")
        self.type(f"rubato run --nnodes=1:3 --rdzv-endpoint={self.endpoint} --prewarm=torch train.py   # a")
        before = self.start("a")
        self.wait("hosting", lambda: [e for e in self.lines("a.events") if e["event"] == "hosting"])
        self.type("rubato run … the same …                                                            # b")
        self.start("b")
        generation = max(self.running(name, 2)["generation"] for name in "ab")
        took = self.spawned("a", generation) - before
        self.say(f"   a group of 2 after {took:.2f} s; 1 s of it was the last call for a third", "32")
        self.trains(2)

        self.say("A third agent joins the running training.", "1")
        self.type("rubato run … the same …                                                            # c")
        before = self.start("c")
        generation = self.running("a", 3)["generation"]
        took = max(self.spawned(name, generation) for name in "abc") - before
        self.say(f"   grew to 3 in {took:.2f} s", "32")
        self.trains(3)

        self.say("The agent that hosts the rendezvous is killed. With torchrun the job would die here.", "1")
        self.type("kill -9 <a>")
        before = time.monotonic()
        self.agents["a"].kill()
        self.agents["a"].wait()
        again = max(self.running(name, 2, after=generation)["generation"] for name in "bc")
        took = max(self.spawned(name, again) for name in "bc") - before
        host = next(name for name in "bc" if any(e["event"] == "hosting" for e in self.lines(f"{name}.events")))
        self.say(f"   lost the host; {host} took over, re-formed in {took:.2f} s", "32")
        self.trains(2)

        self.say("The training ends.", "1")
        for name in "bc":
            code = self.wait(f"the end of agent {name}", lambda: self.agents[name].poll() is not None and
                             (self.agents[name].returncode + 1000)) - 1000
            if code != 0:
                return self.failed(f"agent {name} ended with {code}")
        return self.check()

    def check(self):
        progress = self.lines("progress.jsonl")
        steps = [p["step"] for p in progress if "step" in p]
        resumed = [p["resumed"] for p in progress if "resumed" in p]
        loss = next(p["loss"] for p in progress if p.get("step") == STEPS)
        lost = len(steps) - STEPS
        self.say(f"   loss {loss:.4f} after {STEPS} steps, {len(resumed)} generations; steps done twice: {lost}", "32")
        if abs(loss - RIGHT_LOSS) > 0.1 * RIGHT_LOSS:
            return self.failed(f"the loss is not that of an undisturbed training, {RIGHT_LOSS}")
        if resumed != sorted(resumed) or resumed[-1] == 0:
            return self.failed(f"the training did not resume from its checkpoints: {resumed}")
        ends = [e for name in "bc" for e in self.lines(f"{name}.events") if e["event"] == "end"]
        if any(e["restarts"] != 0 for e in ends):
            return self.failed("a membership change was counted as a restart")
        self.say("The script knows nothing of all this: it saves a checkpoint, and starts from it.", "1")
        return 0

    def close(self):
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    if not os.access(RUBATO, os.X_OK):
        raise SystemExit(f"{RUBATO} is not there: run `make` first")
    demo = Demo()
    try:
        return demo.play()
    finally:
        demo.close()


if __name__ == "__main__":
    sys.exit(main())
