#!/usr/bin/python3
"""The allocation of adaptive jobs: its time, and job completion times on Pollux' traces.

usage: bench/allocate.py [--data DIR] [--repeat N] [--out FILE]
Prints two Markdown tables on stdout and writes all numbers as JSON with --out. Needs build/rubato (or build/release)
and bench_allocate: cmake --build --preset release --target bench_allocate
The traces are not part of this repository; without their folder the second table is left out.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build/release/bench_allocate"
RUBATO = ROOT / "build/release/rubato"
DATA = ROOT.parent / "shared/data/pollux"
SIZES = {"160x64": 20, "1000x1000": 500, "10000x10000": 10000}  # milliseconds at most
# Average JCT in seconds that Pollux' authors published for each trace (osdi21-artifact, simulator/results).
PUBLISHED = {"pollux": [2089, 3323, 2188, 2721], "tiresias": [2474, 5145, 3876, 3280],
             "optimus": [4087, 6914, 3944, 5968]}
RUNS = [("Pollux, published", None, []),
        ("adaptive, epochs declared", -13, []),
        ("adaptive, not declared", -4, ["--undeclared"]),
        ("adaptive, our conventions", -24, ["--conventions", "rubato"]),
        ("the same, not declared", None, ["--conventions", "rubato", "--undeclared"]),
        ("Pollux' objective, solved exactly", None, ["--policy", "pollux"]),
        ("Tiresias", None, ["--policy", "tiresias"]),
        ("Optimus", None, ["--policy", "optimus"]),
        ("first come, first served", None, ["--policy", "fifo"])]


def times(repeat):
    results = []
    print("| jobs × GPUs | decision (CPU) | target |\n|---|---|---|")
    for size, most in SIZES.items():
        count = repeat if size != "10000x10000" else max(3, repeat // 4)
        out = json.loads(subprocess.run([PROGRAM, size, str(count)], stdout=subprocess.PIPE, check=True).stdout)
        results.append(out)
        print(f"| {out['jobs']:,} × {out['gpus']:,} | {out['cpu_ms_median']:.1f} ms | < {most:,} ms |", flush=True)
    print(f"| fit of 40 points | {results[0]['fit_ms_median']:.2f} ms | < 2 ms |\n")
    return results


def simulate(data, workload, flags):
    argv = [RUBATO, "simulate", "--pollux", data, "--workload", data / f"workloads/workload-{workload}.csv", "--json"]
    return json.loads(subprocess.run([*argv, *flags], stdout=subprocess.PIPE, check=True).stdout)


def completion(data):
    results = []
    pollux = sum(PUBLISHED["pollux"]) / 4
    print("| average JCT in s | w1 | w2 | w3 | w4 | mean | against Pollux | target | p99 of w1–w4 | makespan "
          "| restarts a job |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, target, flags in RUNS:
        if name == "Pollux, published":
            cells = [f"{one}" for one in PUBLISHED["pollux"]]
            print(f"| {name} | {' | '.join(cells)} | {pollux:.0f} | | | 41818, 49042, 14635, 53032 | | |")
            continue
        runs = [simulate(data, workload, flags) for workload in (1, 2, 3, 4)]
        means = [run["jct_mean_s"] for run in runs]
        mean = sum(means) / 4
        p99 = ", ".join(f"{run['jct_p99_s']:.0f}" for run in runs)
        makespan = sum(run["makespan_s"] for run in runs) / 4
        restarts = sum(run["restarts"] for run in runs) / sum(run["jobs"] for run in runs)
        results.append({"name": name, "flags": flags, "means": means, "mean": mean, "makespan_s": makespan,
                        "p99": [run["jct_p99_s"] for run in runs], "restarts_per_job": restarts})
        cells = " | ".join(f"{one:.0f}" for one in means)
        wanted = f"{target} %" if target else ""
        print(f"| {name} | {cells} | {mean:.0f} | {100 * (mean / pollux - 1):+.1f} % | {wanted} | {p99} "
              f"| {makespan:.0f} s | {restarts:.1f} |", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--repeat", type=int, default=11)
    parser.add_argument("--out")
    options = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM} is missing; build it with: cmake --build --preset release --target bench_allocate")
    out = {"times": times(options.repeat)}
    if (options.data / "workloads").is_dir():
        out["completion"] = completion(options.data)
    else:
        print(f"{options.data} is not there: the completion times on Pollux' traces are left out")
    if options.out:
        Path(options.out).write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
