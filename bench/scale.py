#!/usr/bin/python3
"""The autoscaler's decision: time, memory, cost; beside Ray's answers and a lower bound of any plan's cost.

usage: bench/scale.py [--repeat N] [--out FILE]
Prints a Markdown table on stdout and writes all numbers as JSON with --out. Needs the program bench_scale:
cmake --build --preset release --target bench_scale
"""
import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "build/release/bench_scale"
INPUTS = ["hetero_d100_n10", "shapes20_d100_n10", "hetero_d1000_n100", "shapes20_d1000_n100", "hetero_d10000_n1000",
          "shapes20_d10000_n1000"]
MADE = ["100000x10000"]
PRICES = {"m5.large": 0.096, "m5.4xlarge": 0.768, "m5.16xlarge": 3.072, "r5.8xlarge": 2.016, "p3.2xlarge": 3.06,
          "p3.8xlarge": 12.24, "p3.16xlarge": 24.48, "cust.4xlarge": 1.00}
# CPU seconds of a decision on the hetero inputs, measured with Ray's own code on such a machine.
RAY_SECONDS = {"hetero_d100_n10": (0.0057, 0.080), "hetero_d1000_n100": (0.28, 13), "hetero_d10000_n1000": (49, None)}


def state_of(name):
    small = ROOT / f"tests/data/autoscaler/{name}_s1.json"
    if small.exists():
        return small.read_bytes()
    return gzip.decompress((ROOT / f"bench/data/{name}_s1.json.gz").read_bytes())


def measure(what, repeat, state=None):
    out = subprocess.run([PROGRAM, "-" if state else what, str(repeat)], input=state, stdout=subprocess.PIPE, check=True)
    return json.loads(out.stdout) | {"input": what}


def ray_costs(name):
    """Dollars per hour of Ray's v1 and v2; None where it was not run, or took too long."""
    answers = json.loads((ROOT / "bench/data/ray-answers.json").read_text())[name + "_s1"]
    def cost(which):
        launch = answers.get(which, {}).get("to_launch")
        return sum(PRICES[kind] * count for kind, count in launch.items()) if launch else None
    return cost("v1_full"), cost("v2_schedule")


def ratio(ours, theirs):
    return f"{theirs:,.0f}: {ours / theirs:.2f}×" if theirs else ""


def row(result, ray):
    v1, v2 = ray
    cost, bound = result["cost_per_hour"], result["lower_bound"]
    return (f"| {result['input']} | {result['cpu_ms_median']:.2f} ms | {result['memory_mb']:.0f} MB "
            f"| {result['unfulfilled']} | ${cost:,.2f} | {ratio(cost, v1)} | {ratio(cost, v2)} "
            f"| ${bound:,.2f}: {cost / bound:.3f}× |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--out")
    options = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM} is missing; build it with: cmake --build --preset release --target bench_scale")
    results = []
    print("| demands × nodes | decision (CPU) | memory | unfulfilled | $/h | Ray v1 | Ray v2 | lower bound |")
    print("|---|---|---|---|---|---|---|---|")
    for name in INPUTS:
        result = measure(name, options.repeat, state_of(name))
        ray = ray_costs(name)
        results.append(result | {"ray_v1_cost": ray[0], "ray_v2_cost": ray[1], "ray_seconds": RAY_SECONDS.get(name)})
        print(row(result, ray), flush=True)
    for what in MADE:
        results.append(measure(what, max(3, options.repeat // 5)))
        print(row(results[-1], (None, None)), flush=True)
    if options.out:
        Path(options.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
