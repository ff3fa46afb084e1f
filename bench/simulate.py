#!/usr/bin/python3
"""How long the simulator takes: a day of a large cluster, and seeds of small scenarios, in CPU time of one core.

usage: bench/simulate.py [--quick] [--out FILE]
Prints a Markdown table; --quick plays two hours instead of the day.
"""
import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUBATO = ROOT / "build/rubato"
SCENARIOS = ROOT / "examples/scenarios"


def simulate(*words):
    """The JSON answer, CPU seconds and the largest resident size in MB."""
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        pid = os.posix_spawn(str(RUBATO), [str(RUBATO), "simulate", *words, "--json"], os.environ,
                             file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)])
        _, status, usage = os.wait4(pid, 0)
        out.seek(0)
        answer = json.load(out)
    if status != 0:
        raise SystemExit(f"simulate {' '.join(words)} failed: {answer.get('broken') or answer.get('failures')}")
    return answer, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        scenario = SCENARIOS / "big-day.yaml"
        if options.quick:
            short = Path(folder) / "big.yaml"
            short.write_text(scenario.read_text().replace("duration: 24h", "duration: 2h")
                             .replace("until: 23h", "until: 110min"))
            scenario = short
        answer, cpu, memory, wall = simulate(str(scenario))
        rows.append({"scenario": "big-day" + (" (2 h)" if options.quick else ""), "cpu_s": cpu, "wall_s": wall,
                     "memory_mb": memory, "nodes_most": answer["nodes"]["most"],
                     "launched": answer["nodes"]["launched"],
                     "jobs": answer["jobs"]["submitted"], "events": answer["events"], "turns": answer["turns"],
                     "agents": answer["agents"], "hash": answer["hash"]})
    for name in ("chaos", "spot", "steady"):
        answer, cpu, memory, wall = simulate(str(SCENARIOS / f"{name}.yaml"), "--seeds", "1..100")
        rows.append({"scenario": f"{name}, 100 seeds", "cpu_s": cpu, "wall_s": wall, "memory_mb": memory,
                     "jobs": answer["jobs"], "events": answer["events"], "agents": "real", "hash": answer["hash"]})
    print("| scenario | agents | CPU time | memory | nodes at once | jobs | events |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['scenario']} | {row['agents']} | {row['cpu_s']:.1f} s | {row['memory_mb']:.0f} MB "
              f"| {row.get('nodes_most', '')} | {row['jobs']} | {row['events']} |")
    if options.out:
        Path(options.out).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
