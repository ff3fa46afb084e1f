#!/usr/bin/python3
"""Numbers of the goodput model, computed apart from src/policy/goodput*.cc: numpy for the model, scipy for the fit.

usage: tests/data/goodput/reference.py > tests/data/goodput/reference.json      (Debian: python3-scipy)
The formulas are those of Pollux (OSDI'21), section 3; the fit is L-BFGS-B on AdaptDL's objective.
"""
import json
import sys

import numpy as np
import scipy.optimize

NAMES = ["alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma"]


def network(p, nodes, replicas):
    alpha = np.where(nodes > 1, p[2], np.where(replicas > 1, p[4], 1e-8))
    beta = np.where(nodes > 1, p[3], np.where(replicas > 1, p[5], 1e-8))
    return alpha + beta * np.maximum(replicas - 2, 1e-8)


def goodput(p, grad, first, nodes, replicas, atomic, steps):
    compute = p[0] + p[1] * atomic
    step = (compute ** p[6] + network(p, nodes, replicas) ** p[6]) ** (1 / p[6])
    batch = replicas * atomic * (steps + 1)
    scale = batch / first
    gain = (grad[1] + grad[0]) / (grad[1] / scale + grad[0])
    return batch / (steps * compute + step) * gain / scale


def best_batch(p, grad, first, most, bounds, accumulation, nodes, replicas):
    sizes = np.geomspace(max(first, bounds[0] * replicas), most, 50)
    local = sizes / replicas
    steps = np.zeros(50)
    if accumulation:
        steps = np.ceil(local / bounds[1] - 1e-8) - 1
        if replicas == 1:
            steps = np.where(local > first + 1e-8, np.maximum(steps, 1), steps)
    atomic = np.ceil(local / (steps + 1) - 1e-8)
    value = goodput(p, grad, first, nodes, replicas, atomic, steps)
    value = np.where((atomic >= bounds[0]) & (atomic <= bounds[1]), value, 0)
    at = int(np.argmax(value))
    cut = np.floor(most / replicas / (steps[at] + 1) + 1e-8)
    return float(value[at]), int(min(atomic[at], cut) if cut >= bounds[0] else atomic[at]), int(steps[at])


def objective(p, points):
    nodes, replicas, atomic, grad_time, step_time = points.T
    compute = p[0] + p[1] * atomic
    step = (compute ** p[6] + network(p, nodes, replicas) ** p[6]) ** (1 / p[6])
    first = np.sqrt(np.mean((np.log(compute) - np.log(grad_time)) ** 2))
    second = np.sqrt(np.mean((np.log(step) - np.log(step_time)) ** 2))
    return first + second + 1e-3 * (p[6] - 1) ** 2 + 1e-2 * ((p[3] / p[2]) ** 2 + (p[5] / p[4]) ** 2)


def fit(points):
    nodes, replicas, atomic, grad_time, _ = points.T
    start, low, high = [0.1, 0.01] * 3 + [1.001], [1e-8] * 6 + [1], [np.inf] * 6 + [10]

    def pin(at, value=1e-8):
        start[at] = low[at] = high[at] = value
    if len(set(atomic)) == 1:
        pin(0, grad_time.mean() / 2)
    if not (nodes > 1).any():
        pin(2), pin(3)
    if not ((nodes == 1) & (replicas > 1)).any():
        pin(4), pin(5)
    if not (replicas > 2).any():
        pin(3), pin(5)
    found = scipy.optimize.minimize(objective, start, args=(points,), bounds=list(zip(low, high)),
                                    options={"maxfun": 100000, "maxiter": 10000})
    p = list(found.x)
    if not (nodes > 1).any():
        p[2], p[3] = max(p[2], 1.1 * p[4]), max(p[3], 1.1 * p[5])
    return p, float(objective(p, points))


def main():
    random = np.random.default_rng(13)
    batches, fits = [], []
    for _ in range(60):
        p = [*(10 ** random.uniform(-3, 0, 6)), random.uniform(1, 5)]
        grad = [float(10 ** random.uniform(-3, 1)), float(10 ** random.uniform(-2, 3))]
        first = int(random.integers(4, 257))
        most = int(first * random.integers(1, 65))
        bounds = [int(random.integers(1, first + 1)), int(random.integers(first, 4 * first + 1))]
        replicas = int(min(random.choice([1, 2, 3, 4, 8, 16, 64]), most // bounds[0]))
        nodes = int(random.integers(1, replicas + 1))
        accumulation = bool(random.integers(0, 2))
        value, atomic, steps = best_batch(p, grad, first, most, bounds, accumulation, nodes, replicas)
        batches.append({"perf": dict(zip(NAMES, map(float, p))), "grad": grad, "init": first, "max": most,
                        "bounds": bounds, "accumulation": accumulation, "nodes": nodes, "replicas": replicas,
                        "goodput": value, "atomic_bsz": atomic, "accum_steps": steps})
    for seen in (1, 2, 4, 8, 64, 64, 64, 64):
        p = np.array([*(10 ** random.uniform(-2, -0.5, 6)), random.uniform(1, 4)])
        p[3], p[5] = p[2] * random.uniform(0, 0.1), p[4] * random.uniform(0, 0.1)
        rows = []
        for _ in range(40):
            replicas = int(min(random.choice([1, 2, 4, 8, 16, 32, 64]), seen))
            nodes = int(random.integers((replicas + 3) // 4, replicas + 1)) if seen > 4 else 1
            atomic = float(random.choice([16, 24, 32, 48, 64]))
            compute = p[0] + p[1] * atomic
            step = (compute ** p[6] + network(p, nodes, replicas) ** p[6]) ** (1 / p[6])
            noise = np.exp(random.normal(0, 0.05, 2))
            rows.append([nodes, replicas, atomic, float(compute * noise[0]), float(step * noise[1])])
        found, value = fit(np.array(rows))
        fits.append({"points": rows, "perf": dict(zip(NAMES, map(float, found))), "objective": value})
    json.dump({"batches": batches, "fits": fits}, sys.stdout, indent=0)
    print()


if __name__ == "__main__":
    main()
