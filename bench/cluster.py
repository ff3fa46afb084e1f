#!/usr/bin/python3
"""Clusters and jobs: how fast the commands answer, and what a large or old cluster costs its head.

usage: bench/cluster.py [--quick] [--only status,submit,scale,churn] [--out FILE]
Prints Markdown tables on stdout (progress on stderr) and writes all samples as JSON with --out. `scale` and `churn` are
programs of their own: cmake --build --preset release --target bench_head_scale bench_churn
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import PYTHON, RUBATO, wait_until

PROGRAMS = ROOT / "build/release"
# The worker's first line: what the clock says, where the benchmark looks for it.
WORKERS = {
    "sh": "#!/bin/sh\ndate +%s%N >$RUBATO_OUTPUT/new && mv $RUBATO_OUTPUT/new $RUBATO_OUTPUT/main\n",
    "python": "import time\nMAIN = time.time_ns()\nimport os\nout = os.environ['RUBATO_OUTPUT']\n"
              "open(out + '/new', 'w').write(str(MAIN))\nos.rename(out + '/new', out + '/main')\n",
}


class Cluster:
    """A warm cluster of two nodes in a folder of its own; leaving the `with` block ends it."""

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rubato-bench-", dir=ROOT / "build"))
        self.env = os.environ | {"XDG_STATE_HOME": str(self.folder), "NO_COLOR": "1"}
        (self.folder / "bench.yaml").write_text(
            "cluster_name: bench\nprovider: {type: local}\nmax_workers: 2\navailable_node_types:\n  small:\n"
            "    resources: {CPU: 1}\n    min_workers: 2\n    max_workers: 2\n")
        self.rubato("up", str(self.folder / "bench.yaml"))
        self.home = self.folder / "rubato/clusters/bench"
        return self

    def __exit__(self, *_):
        self.rubato("down", "-y", "--purge")
        shutil.rmtree(self.folder, ignore_errors=True)

    def rubato(self, *words):
        return subprocess.run([RUBATO, *words], env=self.env, cwd=self.folder, check=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def curl(self):
        """A plain HTTP client's answer to the same question; the token is in a file, not among the arguments."""
        head = json.loads((self.home / "head/head.json").read_text())["api"]
        config = self.folder / "curl"
        config.write_text(f'header = "Authorization: Bearer {(self.home / "token").read_text().strip()}"\n')
        return ["curl", "-sf", "-K", str(config), f"http://127.0.0.1:{head['port']}/api/v1/status"]


def timed(argv, env=None):
    before = time.monotonic()
    subprocess.run(argv, env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return 1000 * (time.monotonic() - before)


def status(runs):
    """`rubato status` on an idle cluster, beside the floors of this machine; samples in ms."""
    with Cluster() as cluster:
        commands = {"status": [RUBATO, "status"], "curl": cluster.curl() if shutil.which("curl") else None,
                    "python": [PYTHON, "-c", "pass"], "true": ["/bin/true"]}
        samples = {name: [] for name, argv in commands.items() if argv}
        for _ in range(runs):  # in turns: a noisy moment hits all
            for name in samples:
                samples[name].append(timed(commands[name], cluster.env))
        return samples


def submit_once(cluster, kind):
    script = cluster.folder / kind / ("train.py" if kind == "python" else "train.sh")
    if not script.exists():
        script.parent.mkdir()
        script.write_text(WORKERS[kind])
        script.chmod(0o755)
    flags = ["--python", PYTHON, str(script)] if kind == "python" else ["--no-python", str(script.parent), "./train.sh"]
    before = time.time_ns()
    job = cluster.rubato("submit", *flags).strip()
    returned = time.time_ns()
    main = cluster.home / f"jobs/{job}/output/main"
    wait_until(main.exists, f"the worker of {job}")
    began = int(main.read_text())
    wait_until(lambda: json.loads(cluster.rubato("job", "show", job, "--json")).get("ended"), "the end of the job")
    return (began - before) / 1e6, (returned - before) / 1e6


def submit(runs):
    """From starting `rubato submit` to the first line of the worker; samples in ms."""
    samples = {}
    with Cluster() as cluster:
        for kind in WORKERS:
            submit_once(cluster, kind)  # its package is uploaded and unpacked once
        for _ in range(runs):
            for kind in WORKERS:
                main, returned = submit_once(cluster, kind)
                samples.setdefault(f"{kind}_main", []).append(main)
                samples.setdefault(f"{kind}_returned", []).append(returned)
        samples["python_start"] = [timed([PYTHON, "-c", "import time"]) for _ in range(runs)]
    return samples


def program(name, *args):
    path = PROGRAMS / name
    if not os.access(path, os.X_OK):
        raise SystemExit(f"{path} is not there: cmake --build --preset release --target {name}")
    return json.loads(subprocess.run([path, *args], check=True, stdout=subprocess.PIPE, text=True).stdout)


def percent(samples, part):
    return sorted(samples)[min(len(samples) - 1, int(part * len(samples)))]


def rows_of(results):
    """(what, measured, target) of everything that was measured."""
    rows = []
    ms = {name: statistics.median(values) for key in ("status", "submit")
          for name, values in results.get(key, {}).items()}
    if "status" in results:
        words = f"{ms['status']:.1f} ms (p90 {percent(results['status']['status'], 0.9):.1f})"
        rows.append(("`rubato status`, idle cluster", words, "< 50 ms"))
        for name, what in (("curl", "the same by `curl`"), ("python", "`python3 -c pass`"), ("true", "`/bin/true`")):
            if name in ms:
                rows.append((what, f"{ms[name]:.1f} ms: {ms['status'] / ms[name]:.2f}× that", ""))
    if "submit" in results:
        rows.append(("`rubato submit` → first line of a Python worker", f"{ms['python_main']:.0f} ms", "< 150 ms"))
        rows.append(("the same, a worker in `sh`: our share", f"{ms['sh_main']:.0f} ms", ""))
        rows.append(("`rubato submit` has returned", f"{ms['python_returned']:.0f} ms", ""))
    if "scale" in results:
        scale = results["scale"]
        full = scale["decisions_with_full_queue"]
        rows.append((f"{scale['queued']:,} queued jobs, {scale['nodes']:,} agents: memory of head and agents",
                     f"{max(v for k, v in scale.items() if k.startswith('rss_mb')):.0f} MB", "< 512 MB"))
        cpu = scale["decision_cpu_ms"]
        rows.append(("one decision with that queue, CPU time: p50 / p99 / max",
                     f"{cpu['p50']:.0f} / {cpu['p99']:.0f} / {cpu['max']:.0f} ms", "p99 < 100 ms"))
        rows.append(("the same while it works, by the wall clock: at most",
                     f"{full['p50_ms_at_most']} / {full['p99_ms_at_most']} / {full['max_ms_at_most']} ms",
                     ""))
        rows.append(("durable job transitions", f"{scale['durable_transitions_per_s']:,.0f}/s", "≥ 1,500/s"))
        rows.append(("durable submits, 64 clients", f"{scale['durable_submits_per_s']:,.0f}/s", ""))
    for row in results.get("churn", []):
        if row["hour"] in (2, 12, 24):
            rest = row["heap_mb"] - row["simulated_disk_mb"] - row["simulated_workers_mb"]
            rows.append((f"{row['hour']} h of churn ({row['jobs_submitted']:,} jobs, {row['nodes_lost']} nodes and "
                         f"{row['heads_lost']} heads lost): the head's state / all memory but the simulator's",
                         f"{row['state_kb'] / 1000:.2f} MB / {rest:.1f} MB", "flat"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, two hours of churn")
    parser.add_argument("--only", default="", help="some of: status, submit, scale, churn")
    parser.add_argument("--out", help="write the samples there as JSON")
    args = parser.parse_args()
    measurements = {"status": lambda: status(10 if args.quick else 50),
                    "submit": lambda: submit(5 if args.quick else 20),
                    "scale": lambda: program("bench_head_scale", str(ROOT / "build")),
                    "churn": lambda: program("bench_churn", "2" if args.quick else "24")}
    wanted = [name for name in args.only.split(",") if name] or list(measurements)
    if unknown := set(wanted) - set(measurements):
        parser.error(f"no such measurement: {', '.join(sorted(unknown))}")
    results = {"load_before": os.getloadavg()[0], "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    for name in wanted:
        print(f"  {name}", file=sys.stderr, flush=True)
        results[name] = measurements[name]()
    print(f"{os.cpu_count()} cores, load {results['load_before']:.1f} before; medians.\n")
    print("| | measured | target |\n|---|---|---|")
    for what, measured, target in rows_of(results):
        print(f"| {what} | {measured} | {target} |")
    if args.out:
        Path(args.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
