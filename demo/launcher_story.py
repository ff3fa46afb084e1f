"""make demo-run: starts `rubato run` agents, disturbs them, and checks every claim. Times come from the event files."""
import ctypes
import os
import signal
import socket
import subprocess
import time

from telling import PYTHON, RUBATO, STEPS, TORCHRUN_TRAIN, Broken, Story, prove, read_lines, tell


class LauncherStory(Story):
    def __init__(self):
        super().__init__()
        self.agents = {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.endpoint = f"localhost:{probe.getsockname()[1]}"

    # Watching.

    def record(self):
        return read_lines(self.folder / "record.jsonl")

    def events(self, name):
        return read_lines(self.folder / f"{name}.events")

    def running(self, name, world, after=0):
        """Waits for the agent's first generation above `after` with that many workers; its event."""
        return self.wait(f"agent {name}: a group of {world}", lambda: next(
            (e for e in self.events(name) if e["event"] == "running" and e["world_size"] == world
             and e["generation"] > after), None))

    def spawned(self, name, generation):
        """When the agent had started its worker of that generation."""
        return self.wait("a worker", lambda: next((e["mono"] for e in self.events(name)
                                                   if e["event"] == "spawn" and e["generation"] == generation), None))

    def evidence(self):
        return "\n".join(f"--- agent {name}\n{(self.folder / f'{name}.log').read_text()[-2000:]}"
                         for name in self.agents)

    # Doing.

    def start(self, name):
        argv = [RUBATO, "run", "--nnodes=1:3", f"--rdzv-endpoint={self.endpoint}", "--rdzv-id=demo", "--prewarm=torch",
                f"--python={PYTHON}", f"--events={self.folder}/{name}.events", str(TORCHRUN_TRAIN), str(STEPS),
                str(self.folder)]
        env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        before = time.monotonic()
        with open(self.folder / f"{name}.log", "w") as log:
            self.agents[name] = subprocess.Popen(
                argv, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))  # they end with the demo
        return before

    def play(self):
        self.title("Two agents start; either can host the rendezvous, the first one does.")
        self.type(f"rubato run --nnodes=1:3 --rdzv-endpoint={self.endpoint} --prewarm=torch train.py   # a")
        before = self.start("a")
        self.wait("hosting", lambda: [e for e in self.events("a") if e["event"] == "hosting"])
        self.type("rubato run … the same …                                                            # b")
        self.start("b")
        generation = max(self.running(name, 2)["generation"] for name in "ab")
        took = self.spawned("a", generation) - before
        self.good(f"a group of 2 after {took:.2f} s; 1 s of it was the last call for a third")
        self.trains(2)

        self.title("A third agent joins the running training.")
        self.type("rubato run … the same …                                                            # c")
        before = self.start("c")
        generation = self.running("a", 3)["generation"]
        took = max(self.spawned(name, generation) for name in "abc") - before
        self.good(f"grew to 3 in {took:.2f} s")
        self.trains(3)

        self.title("The agent that hosts the rendezvous is killed. With torchrun the job would die here.")
        self.type("kill -9 <a>")
        before = time.monotonic()
        self.agents["a"].kill()
        self.agents["a"].wait()
        again = max(self.running(name, 2, after=generation)["generation"] for name in "bc")
        took = max(self.spawned(name, again) for name in "bc") - before
        host = next(name for name in "bc" if any(e["event"] == "hosting" for e in self.events(name)))
        self.good(f"lost the host; {host} took over, re-formed in {took:.2f} s")
        self.trains(2)

        self.title("The training ends.")
        for name in "bc":
            self.wait(f"the end of agent {name}", lambda: self.agents[name].poll() is not None)
            if self.agents[name].returncode != 0:
                raise Broken(f"agent {name} ended with {self.agents[name].returncode}")
        self.check()

    def check(self):
        starts, again, loss = prove(self.record())
        self.good(f"loss {loss:.4f} after {STEPS} steps, {starts} generations; steps done twice: {again}")
        ends = [e for name in "bc" for e in self.events(name) if e["event"] == "end"]
        if any(e["restarts"] != 0 for e in ends):
            raise Broken("a membership change was counted as a restart")
        self.title("The script knows nothing of all this: it saves a checkpoint, and starts from it.")

    def close(self):
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        super().close()


if __name__ == "__main__":
    tell(LauncherStory)
