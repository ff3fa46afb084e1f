#!/usr/bin/python3
"""Adaptive jobs on a cluster of several kinds of GPUs: what it is worth that the policy knows the kinds.

    bench/mixed.py [--seeds 3] [--jobs 60] [--rubato build/release/rubato]

The setting is that of Sia (SOSP'23): 6 nodes of 4 slow GPUs, 3 of 8 middling and 2 of 8 fast ones, jobs that gain
between 1.3 and 8 times from the fast ones, 60 s between decisions, 30 s for a change. Jobs and speeds are drawn, not
measured, and Sia itself is not played: the rows say what `rubato allocate` makes of the same jobs when it knows each
kind's times, when it takes all GPUs for alike (a job goes as fast as its slowest one), and what fixed sizes by arrival
would give. A job's own model of itself is right here, as in Sia's simulator. Prints a Markdown table.
"""
import argparse
import heapq
import json
import os
import random
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "python"))
from rubato import goodput  # noqa: E402

KINDS = {"slow": (6, 4), "middling": (3, 8), "fast": (2, 8)}  # nodes, GPUs of each
INTERVAL_S, CHANGE_S, GPUS_MAX = 60.0, 30.0, 16
NODES = [(f"{kind}-{i}", kind, gpus) for kind, (count, gpus) in KINDS.items() for i in range(count)]
KIND_OF = {name: kind for name, kind, _ in NODES}


class Job:
    def __init__(self, draw, number, arrival):
        self.id, self.arrival = f"job-{number}", arrival
        self.init = draw.choice((32, 64, 128, 256))
        self.most = self.init * draw.choice((4, 8, 16, 32))
        self.grad = goodput.GradParams(1.0, 10 ** draw.uniform(0, 2))
        fast = draw.choice((1.3, 2.0, 4.0, 8.0))
        speeds = {"slow": 1.0, "middling": fast**0.5, "fast": fast}
        alpha, beta = draw.uniform(0.02, 0.1), draw.uniform(0.5, 4) * 1e-3
        net = draw.uniform(0.01, 0.2)
        self.perf = {kind: goodput.PerfParams(alpha / speed, beta / speed, 2 * net, net / 20, net, net / 40, 1.6)
                     for kind, speed in speeds.items()}
        hours = draw.choice((0.2, 0.5, 1, 2, 6))  # alone on one slow GPU
        self.total = hours * 3600 * self.rate_on(["slow-0"])
        self.done, self.nodes, self.paused, self.service, self.restarts = 0.0, [], 0.0, 0.0, 0
        self.size = draw.choice((1, 2, 4, 4, 8))  # what a person would have asked for
        self.end = None

    def rate_on(self, nodes):
        """Iterations of the first batch size a second."""
        return min((self._rate(KIND_OF[node], nodes) for node in set(nodes)), default=0.0)

    def _rate(self, kind, nodes):
        model = goodput.Goodput(self.perf[kind], self.grad, self.init)
        best, _ = model.best(len(set(nodes)), len(nodes), self.most, (8, 256), True)
        return best / self.init

    def document(self, now, kinds):
        as_one = [sum(column) / len(self.perf) for column in zip(*self.perf.values())]
        perf = goodput.PerfParams(*as_one)
        model = {"perf": perf._asdict(), "grad": {"sqr": self.grad.sqr, "var": self.grad.var},
                 "init_batch_size": self.init, "max_batch_size": self.most, "local_bsz_bounds": [8, 256],
                 "gradient_accumulation": True}
        if kinds:
            model["perf_by_kind"] = {kind: one._asdict() for kind, one in self.perf.items()}
        return {"id": self.id, "resources": {"GPU": 1}, "min_replicas": 0, "max_replicas": GPUS_MAX,
                "preemptible": True, "age_s": now - self.arrival, "attained_service_s": self.service,
                "restarts": self.restarts, "restart_cost_s": CHANGE_S, "allocation": self.nodes,
                "progress": {"done_iters": self.done, "total_iters": self.total}, "model": model}


def ask(rubato, now, jobs, kinds):
    nodes = [{"id": name, "resources": {"GPU": gpus}, "kind": kind if kinds else ""} for name, kind, gpus in NODES]
    state = {"now": now, "nodes": nodes, "jobs": [job.document(now, kinds) for job in jobs]}
    done = subprocess.run([rubato, "allocate", "--state", "-", "--json"], input=json.dumps(state).encode(),
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["allocations"]


def in_order(jobs):
    """Fixed sizes, first come, first served, each on one kind: the fastest that has room."""
    free = {name: gpus for name, _, gpus in NODES}
    for job in jobs:
        for node in job.nodes:
            free[node] -= 1
    chosen = {job.id: job.nodes for job in jobs}
    for job in jobs:
        if job.nodes:
            continue
        for kind in reversed(KINDS):
            seats = [node for node, gpus in free.items() if KIND_OF[node] == kind for _ in range(gpus)]
            if len(seats) >= job.size:
                chosen[job.id] = seats[: job.size]
                for node in chosen[job.id]:
                    free[node] -= 1
                break
        else:
            break  # nobody overtakes
    return chosen


def play(seed, count, decide):
    draw = random.Random(seed)
    arrivals, now = [], 0.0
    for number in range(count):
        now += draw.expovariate(1 / 240)
        heapq.heappush(arrivals, (now, number, Job(draw, number, now)))
    jobs, ended, now = [], [], 0.0
    while arrivals or jobs:
        while arrivals and arrivals[0][0] <= now:
            jobs.append(heapq.heappop(arrivals)[2])
        chosen = decide(now, jobs) if jobs else {}
        for job in jobs:
            wanted = sorted(chosen.get(job.id, []))
            if wanted != sorted(job.nodes):
                job.restarts += bool(job.nodes)
                job.nodes, job.paused = wanted, CHANGE_S if wanted else 0.0
            working = INTERVAL_S - job.paused
            rate = job.rate_on(job.nodes)
            if rate and job.done + rate * working >= job.total:
                job.end = now + job.paused + (job.total - job.done) / rate
                ended.append(job)
            job.done, job.paused = job.done + rate * working, 0.0
            job.service += len(job.nodes) * INTERVAL_S
        jobs = [job for job in jobs if job.end is None]
        now += INTERVAL_S
    times = [job.end - job.arrival for job in ended]
    return statistics.fmean(times), sorted(times)[int(0.99 * len(times))], max(job.end for job in ended), \
        statistics.fmean(job.restarts for job in ended)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--rubato", default=os.path.join(os.path.dirname(HERE), "build/release/rubato"))
    options = parser.parse_args()
    rows = {"kinds known": lambda now, jobs: ask(options.rubato, now, jobs, True),
            "all GPUs taken for alike": lambda now, jobs: ask(options.rubato, now, jobs, False),
            "fixed sizes, first come, first served": lambda now, jobs: in_order(jobs)}
    print("| policy | average JCT | p99 | makespan | changes a job |\n|---|---|---|---|---|")
    for name, decide in rows.items():
        played = [play(seed, options.jobs, decide) for seed in range(options.seeds)]
        average, late, makespan, restarts = (statistics.fmean(column) for column in zip(*played))
        print(f"| {name} | {average:,.0f} s | {late:,.0f} s | {makespan:,.0f} s | {restarts:.1f} |", flush=True)


if __name__ == "__main__":
    main()
