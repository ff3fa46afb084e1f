#!/usr/bin/python3
"""The pause when a group changes: rubato in place, rubato with restarts, and torchrun, on the same script.

    bench/rescale.py [--times 5] [--megabytes 50] [--minutes 30] [--only join,leave,kill]
                     [--launcher rubato,restart,torchrun]

Agents with one worker each, on this machine, over gloo. The script uses the training library; under torchrun, and with
--always-restart, its workers end and go on from a checkpoint. The pause is the longest time without a step of anybody
around the event, less the median time of a step; steps lost are those that were completed and had to be done again:
  join   a third agent comes (its import is no part of it in place: the others train on)
  leave  one of three agents gets SIGTERM
  kill   one of three workers gets SIGKILL, in mid-step
Prints a Markdown table on stdout, progress on stderr.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import (MARK, PYTHON, RUBATO, TORCHRUN, TORCHRUN_STREAMS, die_with_parent, free_port, kill_if_there,
                     marked_processes, read_lines, wait_until)

LIMIT_S = 180  # only a launcher that does not get over the event waits that long
COMMANDS = {"rubato": [RUBATO, "run"], "restart": [RUBATO, "run", "--always-restart"],
            "torchrun": [*TORCHRUN, *TORCHRUN_STREAMS, "--rdzv_backend", "c10d"]}
TITLES = {"rubato": "rubato, in place", "restart": "rubato, restart", "torchrun": "torchrun"}
EVENTS = {"join": "2 → 3, an agent joins", "leave": "3 → 2, an agent leaves", "kill": "a worker of 3 is killed"}


def worker(folder, megabytes):
    import torch

    import rubato
    from rubato import env
    from rubato.torch import profile

    torch.set_num_threads(1)
    side = int((megabytes * 1e6 / 4 / 4) ** 0.5)
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(side, side, bias=False) for _ in range(4)])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(torch.randn(100_000, 8), batch_size=12)
    with rubato.elastic(model, optimizer) as job, open(os.path.join(folder, "steps"), "a", encoding="utf-8") as steps:
        for batch in job.batches(loader):
            optimizer.zero_grad()
            job.model(batch.repeat(1, side // 8 + 1)[:, :side]).square().mean().backward()
            optimizer.step()
            steps.write(json.dumps([time.monotonic(), env.world_size(), os.getpid(), profile.current().steps]) + "\n")
            steps.flush()


class Job:
    """Agents of one launcher in a folder of their own. Leaving the `with` block ends everything they started."""

    def __init__(self, launcher, megabytes, deadline):
        self.launcher, self.megabytes, self.deadline = launcher, megabytes, deadline
        self.folder = Path(tempfile.mkdtemp(prefix="rubato-bench-", dir="/dev/shm"))
        self.mark = str(uuid.uuid4())
        self.endpoint = f"localhost:{free_port()}"
        self.agents = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in marked_processes(self.mark):
            kill_if_there(pid)
        for agent in self.agents:
            agent.wait()
        wait_until(lambda: not marked_processes(self.mark), "the end of a job")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8", "TMPDIR": str(self.folder),
               "PYTHON_EXEC": PYTHON, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", MARK: self.mark,
               "PYTHONPATH": str(ROOT / "python"), "ADAPTDL_CHECKPOINT_PATH": str(self.folder / "checkpoint")}
        # The names with underscores: torchrun 1.13 knows no others.
        argv = [*COMMANDS[self.launcher], "--nnodes", "1:3", "--rdzv_endpoint", self.endpoint, "--rdzv_id", "bench",
                "--max_restarts", "3", str(Path(__file__).resolve()), "--worker", str(self.folder), "--megabytes",
                str(self.megabytes)]
        with open(self.folder / "agents.log", "ab") as log:
            self.agents.append(subprocess.Popen(argv, env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log, preexec_fn=die_with_parent))
        return self.agents[-1]

    def steps(self):
        return read_lines(self.folder / "steps")

    def train(self, world, after=0.0, steps=12):
        """Waits until so many workers have done some steps together after that moment, unless agents have failed."""
        def done():
            failed = [agent.args for agent in self.agents if agent.poll() not in (None, 0, -signal.SIGTERM)]
            if failed and self.launcher != "torchrun" or len(failed) == len(self.agents):
                raise AssertionError(f"ended: {failed}\n" + self.log())
            pids = [pid for moment, size, pid, _ in self.steps() if moment > after and size == world]
            return len(set(pids)) >= world and len(pids) >= steps * world

        wait_until(done, lambda: f"{world} workers under {self.launcher}: {self.steps()[-3:]}\n"
                   + self.log(), min(LIMIT_S, max(self.deadline - time.monotonic(), 1)))

    def log(self):
        return (self.folder / "agents.log").read_text(errors="replace")[-3000:]

    def pause_after(self, event):
        """(seconds, steps lost): the longest gap between two steps of anybody from a moment before the event on, less
        that of a step."""
        moments = sorted((moment, step) for moment, _, _, step in self.steps())
        gaps = [(b[0] - a[0], b[0], i) for i, (a, b) in enumerate(zip(moments, moments[1:]))]
        usual = statistics.median(gap for gap, end, _ in gaps if end < event)
        pause, _, last = max(gap for gap in gaps if gap[1] > event)
        lost = max(step for _, step in moments[: last + 1]) + 1 - moments[last + 1][1]
        return pause - usual, max(lost, 0)


def worker_pids_of(agent):
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    return [int(pid) for pid in children]


def measure(launcher, event, megabytes, deadline):
    with Job(launcher, megabytes, deadline) as job:
        for _ in range(2 if event == "join" else 3):
            job.start()
        job.train(2 if event == "join" else 3)
        moment = time.monotonic()
        if event == "join":
            job.start()
            job.train(3, moment)
        elif event == "leave":
            job.agents[-1].send_signal(signal.SIGTERM)
            job.train(2, moment)
        else:
            own = set(worker_pids_of(job.agents[-1]))
            victim = next(pid for _, _, pid, _ in reversed(job.steps()) if pid in own)
            os.kill(victim, signal.SIGKILL)
            job.train(2 if launcher == "rubato" else 3, moment)
        return job.pause_after(moment)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--minutes", type=float, default=30, help="no longer than this: what is left is not run")
    parser.add_argument("--only", default=",".join(EVENTS))
    parser.add_argument("--launcher", default=",".join(COMMANDS))
    parser.add_argument("--worker", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.megabytes)
        return
    launchers = options.launcher.split(",")
    began = time.monotonic()
    deadline = began + 60 * options.minutes
    print(f"Pause in seconds, median (most), and steps lost, at most, of {options.times}; "
          f"{options.megabytes:.0f} MB model with Adam, gloo, {os.cpu_count()} cores, "
          f"load {os.getloadavg()[0]:.1f} before")
    columns = [TITLES[one] for one in launchers] + ["torchrun / rubato"] * ({"rubato", "torchrun"} <= set(launchers))
    print("| event | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for event in options.only.split(","):
        cells, medians, failed = [], {}, []
        for launcher in launchers:
            values = []
            for i in range(options.times if launcher != "torchrun" else min(options.times, 3)):
                if time.monotonic() > deadline:
                    break
                print(f"{time.monotonic() - began:.0f} s: {event}, {launcher}, {i + 1}", file=sys.stderr, flush=True)
                try:
                    values.append(measure(launcher, event, options.megabytes, deadline))
                except AssertionError as error:  # it would take as long once more
                    print(error, file=sys.stderr)
                    failed.append((event, launcher))
                    break
            if not values:
                cells.append("no result" if (event, launcher) in failed else "not run")
                continue
            pauses = [pause for pause, _ in values]
            medians[launcher] = statistics.median(pauses)
            cells.append(f"{medians[launcher]:.2f} ({max(pauses):.2f}), {max(lost for _, lost in values)} lost")
        if len(columns) > len(launchers):
            both = {"rubato", "torchrun"} <= set(medians)
            cells.append(f"{medians['torchrun'] / medians['rubato']:.0f}x" if both else "")
        print(f"| {EVENTS[event]} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
