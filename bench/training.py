#!/usr/bin/env python3
"""What the training library costs: the pause when a group changes in place, and its statistics beside plain
DistributedDataParallel.

    bench/training.py [--times 5] [--megabytes 46] [--device cpu|cuda] [--only pause|overhead]

The pause is the time from the last step of the old group to the first of the new one, less the time of a step; model
and Adam's two moments (three times --megabytes) go to each newcomer. Workers are forked from this process, as prewarmed
ones are. With --device cuda all of them share one GPU, over gloo.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "python", "tests"))


def worker(megabytes, device, folder):
    import torch

    import rubato
    from rubato import env

    side = int((megabytes * 1e6 / 4 / 4) ** 0.5)
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(side, side, bias=False) for _ in range(4)]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(torch.randn(100_000, 8), batch_size=12)
    times = open(os.path.join(folder, f"times-{env.worker_id()}"), "w", encoding="utf-8")
    with rubato.elastic(model, optimizer, backend="gloo") as job:
        for batch in job.batches(loader):
            optimizer.zero_grad()
            job.model(batch.to(device).repeat(1, side // 8 + 1)[:, :side]).square().mean().backward()
            optimizer.step()
            if device == "cuda":
                torch.cuda.synchronize()
            print(json.dumps([env.generation(), time.monotonic()]), file=times, flush=True)


class Pause:
    """One group, changed again and again. A worker is started before it is needed, as a spare."""

    def __init__(self, options, folder):
        import agent

        self._store = agent.Store(folder)
        self._agent = agent.Agent(folder, self._store, os.path.abspath(__file__),
                                  ["--worker", folder, "--megabytes", options.megabytes, "--device", options.device])
        self._folder = folder

    def close(self):
        self._agent.close()
        self._store.close()

    def begin(self, count):
        self._agent.publish([self._agent.start() for _ in range(count)])
        self._settle()

    def _settle(self, steps=4):
        """All members have made some steps in the newest generation."""
        agent = self._agent
        for name in agent.members:
            agent.wait_for_state(name, "training", agent.generation)
        first = agent.members[0]
        agent.wait_for_step(first, agent.step(first)[1] + steps)

    def spare(self):
        name = self._agent.start()
        self._agent.wait_for_state(name, "ready")
        return name

    def change(self, members, lost=None):
        """Seconds of the pause, seen by the first member."""
        agent = self._agent
        if lost:
            agent.workers[lost].send_signal(signal.SIGKILL)
            while agent.workers[lost].poll() is None:
                time.sleep(0.001)
        agent.publish(members, lost=[lost] if lost else [])
        self._settle()
        with open(os.path.join(self._folder, f"times-{members[0]}"), encoding="utf-8") as file:
            moments = [json.loads(line) for line in file if line.endswith("\n")]
        before = [moment for generation, moment in moments if generation < agent.generation]
        after = [moment for generation, moment in moments if generation == agent.generation]
        step = statistics.median(b - a for a, b in zip(before[-6:], before[-5:]))
        return after[0] - before[-1] - step

    @property
    def members(self):
        return list(self._agent.members)


def measure_pauses(options):
    import testing  # noqa: F401  puts the library on the path

    import rubato.torch  # noqa: F401  before workers are forked

    rows = {"2 -> 3, a newcomer": [], "3 -> 2, one leaves": [], "3 -> 2, one is killed": []}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        pause = Pause(options, folder)
        try:
            pause.begin(2)
            for i in range(2 * options.times):
                rows["2 -> 3, a newcomer"].append(pause.change(pause.members + [pause.spare()]))
                last = pause.members[-1]
                kind = "3 -> 2, one is killed" if i % 2 else "3 -> 2, one leaves"
                rows[kind].append(pause.change(pause.members[:-1], last if i % 2 else None))
        finally:
            pause.close()
    for name, values in rows.items():
        print(f"{name}: pause {1e3 * statistics.median(values):.0f} ms median, {1e3 * max(values):.0f} ms most, "
              f"of {len(values)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=46)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", choices=("pause", "overhead"))
    parser.add_argument("--worker", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.megabytes, options.device, options.worker)
    if options.only != "overhead":
        measure_pauses(options)
    if options.only != "pause":
        command = [sys.executable, os.path.join(HERE, "overhead.py"), "--device", options.device]
        # NCCL refuses two workers on one GPU.
        return subprocess.run(command + (["--workers", "1"] if options.device == "cuda" else [])).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
