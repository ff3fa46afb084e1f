#!/usr/bin/env python3
"""Kills and pauses the parts of a real cluster at random while it runs mixed jobs, then checks that nothing healthy was
hurt and nothing acknowledged was lost.

    tests/trial/trial.py [--strikes N] [--seed N] [--pause-max S] [--jobs N] [--folder DIR] [--keep]
    tests/trial/trial.py --judge DIR      the checks again, on the evidence of a former trial

Ends with 0 when all held. Otherwise with 1, the violations, and the folder with the evidence:
strikes.jsonl (what was done, when), plans.jsonl (the jobs), lives/ (what workers did), events.jsonl (the journal),
logs/, state/ (the cluster's own folder), violations.txt.
"""
import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import checks  # noqa: E402
from cluster import NODES, Cluster, Up  # noqa: E402
from jobs import Feeder  # noqa: E402
from strikes import Striker, draw  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CALM_MAX_S = 30    # until workers start again, before some strikes: a new head waits 15 s for its agents
END_MAX_S = 300    # all jobs end in that time once nothing is done to the cluster any more
NODES_MAX_S = 120  # all lost nodes are replaced by then
LEFT_MAX_S = 120   # what `down` has told to end has ended, on the slowest machine


class StallWatch(threading.Thread):
    """Notes when this process did not run for a while: then others may not have run either."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self._cluster, self._ending = cluster, threading.Event()

    def run(self):
        last = time.monotonic()
        while not self._ending.wait(0.05):
            now = time.monotonic()
            if now - last > checks.STALL_S:
                self._cluster.note("stall", at=last, until=now)
            last = now

    def end(self):
        self._ending.set()
        self.join()


def say(text):
    print(text, flush=True)


def wait_until(condition, timeout_s):
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(0.2)


def strike_all(cluster, options, feeder, collector):
    striker = Striker(cluster)
    schedule = draw(options.seed, options.strikes, options.pause_max)
    for strike in schedule:
        if strike.calm:
            before = cluster.starts()
            wait_until(lambda: cluster.starts() >= before + 3 and len(cluster.workers()) >= 2, CALM_MAX_S)
        time.sleep(strike.gap_s)
        striker.strike(strike)
        if strike.index % 25 == 24:
            say(f"  {strike.index + 1} of {len(schedule)} strikes, {len(feeder.plans)} jobs, "
                f"{len(feeder.ended)} of them ended, {time.monotonic() - cluster.started:.0f} s")
            if strike.index % 100 == 99:
                collector.gather()
    striker.settle()
    return Counter(strike.kind for strike in schedule)


def settle_jobs(cluster, feeder):
    """Lets everything come to its end; what does not is a violation."""
    feeder.done.set()
    feeder.join()
    found = []
    if feeder.problem:
        found.append(f"trial: the feeder stopped: {feeder.problem}")
    if not wait_until(lambda: not feeder.unfinished(), END_MAX_S):
        found.append(f"liveness: not ended {END_MAX_S} s after the last strike: {feeder.unfinished()}")
    status = {}

    def whole():
        status.update(cluster.json("status") or {})
        return len([node for node in status.get("nodes", ()) if node["phase"] == "up"]) == NODES

    if not wait_until(whole, NODES_MAX_S):
        nodes = [(node["id"], node["phase"]) for node in status.get("nodes", ())]
        found.append(f"liveness: lost nodes are not replaced after {NODES_MAX_S} s: {nodes}")
    return found


class Collector:
    """What the checks need beside what is in the folder: gathered now and then, for a head shows only the last events
    and keeps only the last jobs."""

    def __init__(self, cluster, feeder):
        self._cluster, self._feeder = cluster, feeder
        self._events = {}  # by offset
        (cluster.folder / "logs").mkdir(exist_ok=True)

    def gather(self):
        """What is there; a head that is away has more the next time."""
        wall_minus_mono = time.time() - time.monotonic()
        for line in self._cluster.rubato("events", "--limit", 100000, "--json").out.splitlines():
            event = json.loads(line)
            at = datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()
            self._events.setdefault(event["offset"], event | {"mono": at - wall_minus_mono})
        for plan in list(self._feeder.plans):
            path = self._cluster.folder / f"logs/{plan.job}.jsonl"
            if plan.kind != "print" or plan.name not in self._feeder.ended or path.exists():
                continue
            done = self._cluster.rubato("logs", plan.job, "--json", timeout=300)
            if done.code == 0:
                path.write_text(done.out)

    def write(self):
        """When all jobs have ended."""
        self.gather()
        self._feeder.write(self._cluster.folder / "plans.jsonl")
        lines = [json.dumps(event) for _, event in sorted(self._events.items())]
        (self._cluster.folder / "events.jsonl").write_text("\n".join(lines) + "\n")


def end(cluster):
    """`rubato down`, and nothing may be left."""
    done = cluster.rubato("down", "-y", "--timeout", "30s")
    found = [f"down: exit code {done.code}: {done.err.strip()[-300:]}"] if done.code else []
    if not wait_until(lambda: not cluster.leftovers(), LEFT_MAX_S):
        found.append(f"down: processes are left: {cluster.leftovers()}")
        for pid in cluster.leftovers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    return found


def run(options, folder):
    """All violations, and a few lines for the report."""
    cluster = Cluster(options.rubato, folder)
    cluster.note("began", at=time.monotonic(), seed=options.seed, strikes=options.strikes)
    watch = StallWatch(cluster)
    watch.start()
    feeder = Feeder(cluster, random.Random(f"jobs {options.seed}"), options.jobs, options.lines_max)
    found = []
    try:
        code, words = Up(cluster).result()
        if code != 0:
            return [f"up: {words}"], []
        feeder.start()
        collector = Collector(cluster, feeder)
        strikes = strike_all(cluster, options, feeder, collector)
        found += settle_jobs(cluster, feeder)
        collector.write()
    finally:
        found += end(cluster)
        watch.end()
    evidence = checks.read(folder)
    kinds = Counter(plan.kind for plan in feeder.plans)
    pauses = [pause["until"] - pause["at"] for pause in evidence.pauses]
    lines = ["strikes: " + counted(strikes),
             f"hit: {counted(Counter('killed ' + kill['target'] for kill in evidence.kills))}; {len(pauses)} pauses, "
             f"{sum(pause >= checks.LEASE_S for pause in pauses)} of them beyond the lease, the longest "
             f"{max(pauses, default=0):.1f} s; {len(evidence.stalls)} stalls of this machine",
             "jobs: " + counted(kinds) + "; " + counted(Counter(feeder.ended.values())),
             "generations ended by: " + counted(checks.ends_by_cause(evidence)),
             f"journal: {len(evidence.events)} records; log lines checked: {sum(map(len, evidence.logs.values()))}"]
    return found + checks.violations(evidence), lines


def counted(counter):
    return ", ".join(f"{count} {name}" for name, count in counter.most_common()) or "none"


def report(found, lines, folder, seconds):
    for line in lines:
        say(line)
    for text in found:
        say(f"VIOLATION {text}")
    say(f"{len(found)} violations in {seconds:.0f} s" + (f"; the evidence: {folder}" if found else ""))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strikes", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-max", type=float, default=20.0, help="seconds")
    parser.add_argument("--jobs", type=int, default=6, help="how many are unfinished at a time")
    parser.add_argument("--lines-max", type=int, default=100_000, help="of a job that prints")
    parser.add_argument("--folder", help="for the evidence; a new one by default")
    parser.add_argument("--keep", action="store_true", help="the evidence, also when all held")
    parser.add_argument("--judge", metavar="DIR", help="only the checks, on a former trial's evidence")
    parser.add_argument("--rubato", default=os.environ.get("RUBATO", str(ROOT / "build/rubato")))
    return parser.parse_args()


def main():
    options = parse()
    if options.judge:
        evidence = checks.read(options.judge)
        found = checks.violations(evidence)
        report(found, ["generations ended by: " + counted(checks.ends_by_cause(evidence))], options.judge, 0)
        return 1 if found else 0
    options.rubato = os.path.abspath(options.rubato)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="rubato-trial-"))
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    say(f"{options.strikes} strikes, seed {options.seed}; about {options.strikes * 4 + 30} s; evidence in {folder}")
    found, lines = run(options, folder)
    report(found, lines, folder, time.monotonic() - begin)
    (folder / "violations.txt").write_text("\n".join(found) + "\n")
    if not found and not options.keep and not options.folder:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
