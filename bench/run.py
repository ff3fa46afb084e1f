#!/usr/bin/python3
"""torchrun and rubato side by side, on the same work and the same machine, in turns.

usage: bench/run.py [--quick] [--only NAME,...] [--launcher torchrun|rubato] [--out bench/results.json]
Prints a Markdown table on stdout (progress on stderr) and writes all samples as JSON with --out.
"""
import argparse
import json
import os
import platform
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
from harness import (MARK, PYTHON, RUBATO, TORCHRUN, TORCHRUN_STREAMS, die_with_parent, free_port, marked_processes,
                     read_lines, wait_until)

WORKER = str(ROOT / "bench/worker.py")
COMMANDS = {"torchrun": [*TORCHRUN, *TORCHRUN_STREAMS], "rubato": [RUBATO, "run"]}


class Never(Exception):
    """What was waited for did not happen; the text goes into the table."""


class NotStarted(Exception):
    """The job to be measured did not come up: torchrun now and then cannot reach its own store. Tried again."""


class Job:
    """Agents of one launcher in a folder of their own. Leaving the `with` block ends everything they started."""

    def __init__(self, launcher, how="plain"):
        self.launcher, self.how = launcher, how
        self.folder = Path(tempfile.mkdtemp(prefix="rubato-bench-"))
        self.mark = str(uuid.uuid4())
        self.endpoint = f"localhost:{free_port()}"
        self.agents = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in marked_processes(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for agent in self.agents:
            agent.wait()
        wait_until(lambda: not marked_processes(self.mark), "the end of a job")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *flags):
        """Starts an agent; the time just before."""
        env = os.environ | {"PYTHON_EXEC": PYTHON, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                            "TMPDIR": str(self.folder), MARK: self.mark}
        with open(self.folder / "output", "ab") as output:
            before = time.monotonic()
            agent = subprocess.Popen([*COMMANDS[self.launcher], *flags, WORKER, self.folder, self.how], env=env,
                                     stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                     preexec_fn=die_with_parent)
        self.agents.append(agent)
        return before

    def join(self, nnodes, *flags):
        """Starts an agent that meets the others of this job."""
        return self.start("--nnodes", nnodes, "--rdzv_backend", "c10d", "--rdzv_endpoint", self.endpoint,
                          "--rdzv_id", "bench", *flags)

    def ready(self, count, **fields):
        """Waits for the start of the job, before the measurement begins."""
        try:
            self.wait(count, timeout=60, **fields)
        except Never:
            raise NotStarted((self.folder / "output").read_text()[-2000:]) from None

    def wait(self, count, timeout=120, key="main", after=0.0, **fields):
        """Waits for that many workers with these fields whose main ran after a moment; the time of the last."""

        def found():
            lines = [line for line in read_lines(self.folder / "workers.jsonl") if line.get(key, 0) > after
                     and all(line[name] == value for name, value in fields.items())]
            return lines[:count] if len(lines) >= count else None

        try:
            lines = wait_until(found, "workers", timeout)
        except AssertionError:
            raise Never(f"never ({timeout} s waited)") from None
        self.workers = lines
        return max(line[key] for line in lines)

    def children_of(self, agent):
        """The workers of an agent."""
        pids = [line["pid"] for line in read_lines(self.folder / "workers.jsonl")]
        return [pid for pid in pids if self._ancestor(pid, agent.pid)]

    @staticmethod
    def _ancestor(pid, ancestor):
        while pid > 1:
            try:
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                return False
            if pid == ancestor:
                return True
        return False

    def kill_node(self, agent):
        """The agent and its workers die at once, as when a machine is lost; the time just before."""
        pids = [agent.pid, *self.children_of(agent)]
        before = time.monotonic()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it went with its agent
        return before


def launcher_mb(job):
    """The memory of all processes of the launcher, without the workers."""
    workers = {line["pid"] for line in read_lines(job.folder / "workers.jsonl")}
    return sum(pss_mb(pid) for pid in marked_processes(job.mark) if pid not in workers)


def pss_mb(pid):
    """The process's memory, shared pages shared out, in MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1000
    raise ValueError("no Pss")


TUNED = ["--monitor_interval", "0.1"]
TUNED_RDZV = [*TUNED, "--rdzv_conf", "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"]


def tuned(launcher, flags):
    """torchrun at its fastest; rubato is not tuned."""
    return flags if launcher == "torchrun" else []


# The measurements. Each gives a number, or raises Never.

def start(launcher):
    with Job(launcher) as job:
        before = job.start("--standalone", "--nproc_per_node", "2")
        job.ready(2)
        return max(line["main"] for line in job.workers) - before


def memory(launcher):
    with Job(launcher) as job:
        job.start("--standalone", "--nproc_per_node", "2")
        job.ready(2)
        time.sleep(0.5)
        return launcher_mb(job)


def help_text(launcher):
    argv = [*TORCHRUN, "--help"] if launcher == "torchrun" else [RUBATO, "--help"]
    before = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - before


def worker_death(launcher, flags=(), how="plain", key="main"):
    with Job(launcher, how) as job:
        job.start("--standalone", "--nproc_per_node", "2", "--max_restarts", "1", *flags)
        job.ready(2)
        time.sleep(1)  # both launchers watch by now
        before = time.monotonic()
        os.kill(job.workers[0]["pid"], signal.SIGKILL)
        return job.wait(2, key=key, after=before) - before


def worker_death_tuned(launcher):
    return worker_death(launcher, tuned(launcher, TUNED))


def torch_restart(launcher):
    return worker_death(launcher, tuned(launcher, TUNED), "torch", "imported")


def torch_restart_warm(launcher):
    """Until torch is imported in both new workers; only rubato can prewarm."""
    if launcher == "torchrun":
        return torch_restart(launcher)
    with Job(launcher, "torch") as job:
        events = job.folder / "events"
        job.start("--standalone", "--nproc_per_node", "2", "--max_restarts", "1", "--prewarm", "torch",
                  "--events", str(events))
        job.ready(2, key="imported")
        wait_until(lambda: "ready" in [line.get("state") for line in read_lines(events)], "the prewarmed interpreter",
                   timeout=20)
        before = time.monotonic()
        os.kill(job.workers[0]["pid"], signal.SIGKILL)
        return job.wait(2, key="imported", after=before) - before


def join(launcher, flags=()):
    """From the start of the new agent to all mains of the larger group, which has room for still more."""
    with Job(launcher) as job:
        job.join("1:4", *flags)
        job.ready(1)
        time.sleep(1)
        before = job.join("1:4", *flags)
        return job.wait(2, world=2) - before


def join_tuned(launcher):
    return join(launcher, tuned(launcher, TUNED_RDZV))


def three_nodes(job, flags):
    """Three agents whose group runs; the one that hosts the rendezvous is the first."""
    job.join("1:3", "--max_restarts", "3", *flags)
    time.sleep(0.2 if job.launcher == "rubato" else 3)  # so that the first agent is the host
    for _ in range(2):
        job.join("1:3", "--max_restarts", "3", *flags)
    job.ready(3, world=3)
    if job.how == "talk":
        job.ready(3, key="talking", world=3)
    time.sleep(1)


def loss(launcher, flags=(), how="talk", victim=2, timeout=100):
    """A node that does not host the rendezvous is lost, until the survivors' new mains."""
    with Job(launcher, how) as job:
        three_nodes(job, flags)
        before = job.kill_node(job.agents[victim])
        return job.wait(2, after=before, world=2, timeout=timeout) - before


def loss_tuned(launcher):
    return loss(launcher, tuned(launcher, TUNED_RDZV))


def loss_silent(launcher):
    """The same with workers that do not talk to each other: nobody fails, the agents must notice."""
    return loss(launcher, tuned(launcher, TUNED_RDZV), how="plain", timeout=SILENT_LIMIT)


def host_loss(launcher):
    """The node that hosts the rendezvous is lost."""
    with Job(launcher, "talk") as job:
        three_nodes(job, tuned(launcher, TUNED_RDZV))
        before = job.kill_node(job.agents[0])
        try:
            return job.wait(2, after=before, world=2, timeout=SILENT_LIMIT) - before
        except Never:
            alive = [agent for agent in job.agents[1:] if agent.poll() is None]
            raise Never(f"never ({SILENT_LIMIT} s waited)" if alive else "the job dies") from None


def orphans(launcher):
    """Workers that are still there five seconds after their agent was SIGKILLed."""
    with Job(launcher) as job:
        job.start("--standalone", "--nproc_per_node", "2")
        job.ready(2)
        job.agents[0].kill()
        job.agents[0].wait()
        time.sleep(5)
        return len(marked_processes(job.mark))


def scale(launcher, count):
    """That many agents on this host, started together: (until all mains ran, memory of all agents together)."""
    with Job(launcher) as job:
        before = min([job.join(str(count)) for _ in range(count)])
        last = job.wait(count, world=count, timeout=180)
        time.sleep(0.5)
        return last - before, launcher_mb(job)


# name: (what it is, unit, measurement, repeats with torchrun, repeats with rubato)
ROWS = {
    "start": ("start → both workers' mains", "s", start, 5, 9),
    "memory": ("agent memory (PSS)", "MB", memory, 3, 3),
    "help": ("`--help`", "s", help_text, 3, 9),
    "worker_death": ("worker SIGKILLed → new mains", "s", worker_death, 3, 7),
    "worker_death_tuned": ("the same, torchrun `--monitor-interval 0.1`", "s", worker_death_tuned, 3, 3),
    "torch_restart": ("the same, until `import torch` is done", "s", torch_restart, 3, 3),
    "torch_restart_warm": ("the same, rubato `--prewarm torch`", "s", torch_restart_warm, 1, 5),
    "join": ("an agent joins → all mains", "s", join, 1, 5),
    "join_tuned": ("the same, torchrun tuned", "s", join_tuned, 1, 3),
    "loss": ("a node is lost → survivors' new mains", "s", loss, 1, 5),
    "loss_tuned": ("the same, torchrun tuned", "s", loss_tuned, 1, 3),
    "loss_silent": ("the same, workers that do not talk", "s", loss_silent, 1, 5),
    "host_loss": ("the host of the rendezvous is lost → new mains", "s", host_loss, 1, 5),
    "orphans": ("workers left after their agent's SIGKILL", "", orphans, 1, 1),
}
SCALES = [2, 4, 8, 16, 32]
SILENT_LIMIT = 60


def measure(function, launcher):
    for _ in range(3):
        try:
            return function(launcher)
        except Never as never:
            return str(never)
        except NotStarted as failed:
            print(f"  {launcher} did not start: {failed}", file=sys.stderr)
        except AssertionError as failed:
            print(f"  {launcher}: {failed}", file=sys.stderr)
            break
    return "failed"


def in_turns(function, repeats, launchers):
    """Alternates between the launchers, so that a noisy minute hits both; {launcher: samples}."""
    samples = {launcher: [] for launcher in launchers}
    for n in range(max(repeats.values())):
        for launcher in launchers:
            if n < repeats[launcher]:
                samples[launcher].append(measure(function, launcher))
    return samples


def middle(samples):
    """The median; or the word ("never") that most of the samples are."""
    words = [sample for sample in samples if isinstance(sample, str)]
    numbers = [sample for sample in samples if not isinstance(sample, str)]
    return statistics.median(numbers) if len(numbers) > len(words) else words[0]


def result(name, what, unit, samples):
    medians = {launcher: middle(values) for launcher, values in samples.items() if values}
    theirs, ours = medians.get("torchrun"), medians.get("rubato")
    both_numbers = isinstance(theirs, (int, float)) and isinstance(ours, (int, float))
    ratio = theirs / ours if both_numbers and ours else None
    print(f"  {name}: " + ", ".join(f"{k} {show(v, unit)}" for k, v in medians.items()), file=sys.stderr, flush=True)
    return {"name": name, "what": what, "unit": unit, "torchrun": theirs, "rubato": ours, "ratio": ratio,
            "samples": samples}


def run_rows(wanted, quick, launchers):
    results = []
    for name, (what, unit, function, theirs, ours) in ROWS.items():
        if wanted and name not in wanted:
            continue
        repeats = {"torchrun": 1, "rubato": 1 if theirs == 1 else 3} if quick else {"torchrun": theirs, "rubato": ours}
        results.append(result(name, what, unit, in_turns(function, repeats, launchers)))
    for count in [] if wanted and "scale" not in wanted else [2, 8] if quick else SCALES:
        repeats = {"torchrun": 1, "rubato": 1 if quick else 3}
        samples = in_turns(lambda launcher: scale(launcher, count), repeats, launchers)
        for index, (what, unit) in enumerate([("until all mains ran", "s"), ("memory of all", "MB")]):
            column = {launcher: [value if isinstance(value, str) else value[index] for value in values]
                      for launcher, values in samples.items()}
            results.append(result(f"scale_{count}_{unit}", f"{count} agents on this host: {what}", unit, column))
    return results


def show(value, unit):
    if value is None:
        return "—"
    if isinstance(value, str):
        return value
    if unit == "s" and value < 1:
        return f"{value * 1000:.0f} ms" if value >= 0.01 else f"{value * 1000:.1f} ms"
    return f"{value:.0f}" if not unit else f"{value:.1f} {unit}"


def table(results):
    lines = ["| | torchrun | rubato | ratio |", "|---|---|---|---|"]
    for row in results:
        ratio = f"{row['ratio']:.{0 if row['ratio'] >= 10 else 1}f}×" if row["ratio"] else ""
        theirs, ours = show(row["torchrun"], row["unit"]), show(row["rubato"], row["unit"])
        lines.append(f"| {row['what']} | {theirs} | {ours} | {ratio} |")
    return "\n".join(lines)


def machine():
    version = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True,
                             text=True).stdout
    cpu = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return {"cpu": cpu[0] if cpu else platform.machine(), "cores": os.cpu_count(), "kernel": platform.release(),
            "torch": version.strip(), "load_before": os.getloadavg()[0],
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def main():
    global SILENT_LIMIT
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and shorter waits: under five minutes")
    parser.add_argument("--only", default="", help=f"some of: {', '.join([*ROWS, 'scale'])}")
    parser.add_argument("--launcher", choices=COMMANDS, help="only this one")
    parser.add_argument("--out", help="write the samples there as JSON")
    args = parser.parse_args()
    wanted = [name for name in args.only.split(",") if name]
    unknown = set(wanted) - set(ROWS) - {"scale"}
    if unknown:
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    if args.quick:
        SILENT_LIMIT = 15
    about = machine()
    results = run_rows(wanted, args.quick, [args.launcher] if args.launcher else list(COMMANDS))
    print(f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, PyTorch {about['torch']}; medians.\n")
    print(table(results))
    if args.out:
        Path(args.out).write_text(json.dumps({"machine": about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
