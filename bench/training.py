#!/usr/bin/python3
"""What the training library costs: the pause when a group changes in place, the stall of a checkpoint, what many
changes leave behind, the fit of its model, and its statistics beside plain DistributedDataParallel.

    bench/training.py [--times 5] [--megabytes 46] [--device cpu|cuda] [--rescales 200]
                      [--only pause|checkpoint|leaks|fit|overhead]

The pause is the time from the last step of the old group to the first of the new one, less the time of a step; model
and Adam's two moments (three times --megabytes) go to each newcomer. Workers are forked from this process, as prewarmed
ones are. With --device cuda all of them share one GPU, over gloo. Steps lost are those that were completed and had to
be done again. The stall is what `save_all_states(background=True)` takes of the training for 1 GB of states; the limit
is 0.2 s. CPU times are of the calling thread: a busy machine disturbs them less.
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
    from rubato.torch import profile
    with rubato.elastic(model, optimizer, backend="gloo") as job:
        for batch in job.batches(loader):
            optimizer.zero_grad()
            job.model(batch.to(device).repeat(1, side // 8 + 1)[:, :side]).square().mean().backward()
            optimizer.step()
            if device == "cuda":
                torch.cuda.synchronize()
            print(json.dumps([env.generation(), time.monotonic(), profile.current().steps]), file=times, flush=True)


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
        """Seconds of the pause, and steps lost, seen by the first member."""
        agent = self._agent
        if lost:
            agent.workers[lost].send_signal(signal.SIGKILL)
            while agent.workers[lost].poll() is None:
                time.sleep(0.001)
        agent.publish(members, lost=[lost] if lost else [])
        self._settle()
        with open(os.path.join(self._folder, f"times-{members[0]}"), encoding="utf-8") as file:
            moments = [json.loads(line) for line in file if line.endswith("\n")]
        before = [(moment, step) for generation, moment, step in moments if generation < agent.generation]
        after = [(moment, step) for generation, moment, step in moments if generation == agent.generation]
        usual = statistics.median(b[0] - a[0] for a, b in zip(before[-6:], before[-5:]))
        return after[0][0] - before[-1][0] - usual, before[-1][1] + 1 - after[0][1]

    def resources(self):
        """(MB, descriptors, threads) of the first member."""
        pid = self._agent.workers[self.members[0]].pid
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["VmRSS"].split()[0]) / 1024, len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"])

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
    print(f"{options.megabytes:.0f} MB model with Adam, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| event | pause, median | most | limit | steps lost, most | samples |\n|---|---|---|---|---|---|")
    for name, values in rows.items():
        pauses = [pause for pause, _ in values]
        print(f"| {name} | {1e3 * statistics.median(pauses):.0f} ms | {1e3 * max(pauses):.0f} ms | 500 ms | "
              f"{max(lost for _, lost in values)} | {len(values)} |", flush=True)


def measure_leaks(options):
    """Many changes of one group: what its first member has after some of them, and after all."""
    import testing  # noqa: F401

    import rubato.torch  # noqa: F401

    small = argparse.Namespace(megabytes=1, device=options.device)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        pause = Pause(small, folder)
        try:
            pause.begin(2)
            rows = []
            for i in range(1, options.rescales + 1):
                pause.change(pause.members + [pause.spare()] if i % 2 else pause.members[:-1])
                if i in (options.rescales // 10, options.rescales // 2, options.rescales):
                    rows.append((i, *pause.resources()))
        finally:
            pause.close()
    print("| changes in place | memory (RSS) | descriptors | threads |\n|---|---|---|---|")
    for count, megabytes, descriptors, threads in rows:
        print(f"| {count} | {megabytes:.1f} MB | {descriptors} | {threads} |")


def measure_stall(options):
    """Of a training that saves 1 GB beside itself, on its main thread."""
    import testing  # noqa: F401
    import torch

    from rubato import checkpoint

    torch.set_num_threads(1)

    class Model(checkpoint.State):
        tensors = [torch.randn(1 << 22, device=options.device) for _ in range(60)]

        def freeze(self, buffers):
            return checkpoint.frozen(self.tensors, buffers)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["ADAPTDL_CHECKPOINT_PATH"] = folder
        Model("model")
        checkpoint.prepare()  # as a loop does long before the first one
        checkpoint._buffers._maker.join()
        walls, cpus, writes = [], [], []
        for _ in range(options.times):
            wall, cpu = time.monotonic(), time.thread_time()
            checkpoint.save_all_states(background=True)
            walls.append(time.monotonic() - wall)
            cpus.append(time.thread_time() - cpu)
            checkpoint.wait()
            writes.append(time.monotonic() - wall - walls[-1])
    print("| checkpoint of 1.0 GB | stall, median | most | CPU time of it | limit | written beside it in |\n"
          + "|---" * 6 + "|")
    print(f"| one thread, {options.device} | {statistics.median(walls):.2f} s | {max(walls):.2f} s | "
          f"{statistics.median(cpus):.2f} s | 0.2 s | {statistics.median(writes):.1f} s |", flush=True)


def measure_fit(options):
    import random

    import testing  # noqa: F401

    from rubato import goodput

    draw, perf, points = random.Random(1), goodput.PerfParams(0.05, 0.001, 0.02, 0.002, 0.01, 0.001, 2.0), []
    for nodes, replicas in ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16)):
        for atomic in (8, 12, 16, 24, 32, 48, 64, 96):
            grad, _, step = goodput.step_times(perf, nodes, replicas, atomic)
            points.append(goodput.Point(nodes, replicas, atomic, grad * draw.lognormvariate(0, 0.03),
                                        step * draw.lognormvariate(0, 0.03)))
    times = []
    for _ in range(5 * options.times):
        begun = time.thread_time()
        goodput.fit(points)
        times.append(time.thread_time() - begun)
    print(f"a fit of {len(points)} points, when something new was measured: {1e3 * statistics.median(times):.1f} ms of "
          "CPU time", flush=True)


MEASURES = {"pause": measure_pauses, "checkpoint": measure_stall, "leaks": measure_leaks, "fit": measure_fit}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=46)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rescales", type=int, default=200)
    parser.add_argument("--only", choices=(*MEASURES, "overhead"))
    parser.add_argument("--worker", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.megabytes, options.device, options.worker)
    for name, measure in MEASURES.items():
        if options.only in (None, name):
            measure(options)
    if options.only in (None, "overhead"):
        command = [sys.executable, os.path.join(HERE, "overhead.py"), "--device", options.device]
        # NCCL refuses two workers on one GPU.
        return subprocess.run(command + (["--workers", "1"] if options.device == "cuda" else [])).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
