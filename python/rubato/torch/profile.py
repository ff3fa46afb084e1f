"""What was measured of this job: times by configuration, noise of its gradients, progress; and what follows from it."""
import collections
import json
import math
import os
import statistics

from rubato import checkpoint, env, goodput, hints

_SAMPLES = 32  # of each configuration: the newest count, by their median
_LIMIT_FILE = "memory-limit.json"  # beside the checkpoints: it must outlive a process that memory has ended
_profile = None


class _Times:
    def __init__(self):
        self.grad = collections.deque(maxlen=_SAMPLES)
        self.step = collections.deque(maxlen=_SAMPLES)


class Profile(checkpoint.State):
    def __init__(self):
        super().__init__("rubato-profile")
        self.times = {}  # (nodes, replicas, atomic batch) -> _Times
        self.grad_params = None
        self.progress = 0.0  # steps at the first batch size that would have taught as much
        self.steps = 0
        self.init_batch_size = None
        self.max_batch_size = None
        self.bounds = None
        self.accumulation = False
        self.memory_limit = None  # the largest atomic batch that is tried: a larger one did not fit
        self._fitted = (None, None)  # (how much was measured, PerfParams)

    def save(self, fileobj):
        times = [[*key, list(t.grad), list(t.step)] for key, t in self.times.items()]
        grad = list(self.grad_params) if self.grad_params else None
        state = {"times": times, "grad": grad, "progress": self.progress, "steps": self.steps,
                 "memory_limit": self.memory_limit}
        fileobj.write(json.dumps(state).encode())

    def load(self, fileobj):
        state = json.loads(fileobj.read())
        for nodes, replicas, atomic, grad, step in state["times"]:
            entry = self.times.setdefault((nodes, replicas, atomic), _Times())
            entry.grad.extend(grad)
            entry.step.extend(step)
        self.grad_params = goodput.GradParams(*state["grad"]) if state["grad"] else None
        self.progress, self.steps = state["progress"], state["steps"]
        self.limit_memory(state.get("memory_limit"))

    def configure(self, init_batch_size, max_batch_size, bounds, accumulation):
        self.init_batch_size, self.max_batch_size = init_batch_size, max_batch_size
        self.bounds, self.accumulation = bounds, accumulation

    def limit_memory(self, atomic_bsz):
        """No atomic batch above it from now on; None: no limit is known there."""
        if atomic_bsz is not None:
            self.memory_limit = min(atomic_bsz, self.memory_limit or atomic_bsz)

    def did_not_fit(self, atomic_bsz):
        """Such a batch did not fit into memory: the next one has three quarters of it at most. Kept for another life."""
        self.limit_memory(max(atomic_bsz * 3 // 4, 1))
        folder = env.checkpoint_path()
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, _LIMIT_FILE)
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
                json.dump({"atomic_bsz": self.memory_limit}, file)
            os.rename(f"{path}.{os.getpid()}", path)

    def read_limit(self):
        folder = env.checkpoint_path()
        try:
            with open(os.path.join(folder or "", _LIMIT_FILE), encoding="utf-8") as file:
                self.limit_memory(int(json.load(file)["atomic_bsz"]))
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none is known

    def _bounds(self):
        """What the script allows, and memory."""
        low, high = self.bounds or (None, None)
        if self.memory_limit is None:
            return self.bounds
        return min(low or 1, self.memory_limit), min(high or self.memory_limit, self.memory_limit)

    def add_times(self, atomic_bsz, grad_time, step_time):
        """Seconds of one atomic batch without, and of one with, the exchange of gradients."""
        entry = self.times.setdefault((env.node_count(), env.world_size(), atomic_bsz), _Times())
        if grad_time is not None:
            entry.grad.append(max(grad_time, 1e-6))
        if step_time is not None:
            entry.step.append(max(step_time, 1e-6))

    def step_done(self, gain):
        self.progress += gain
        self.steps += 1

    def points(self):
        return [
            goodput.Point(*key, statistics.median(t.grad), statistics.median(t.step))
            for key, t in sorted(self.times.items())
            if t.grad and t.step
        ]

    def perf_params(self):
        points = self.points()
        if not points:
            return None
        if self._fitted[0] != points:
            self._fitted = (points, goodput.fit(points))
        return self._fitted[1]

    def goodput(self):
        perf = self.perf_params()
        if perf is None or self.grad_params is None:
            return None
        return goodput.Goodput(perf, self.grad_params, self.init_batch_size)

    def suggest(self, current, threshold=1.05):
        """The Batch to use now. A running one (`current`, or None) is left only for a gain above the threshold."""
        nodes, replicas = env.node_count(), env.world_size()
        model = self.goodput()
        if model is None:
            return current or self._first_batch(replicas)
        best, batch = model.best(nodes, replicas, self.max_batch_size, self._bounds(), self.accumulation)
        if current is not None and best <= threshold * model(nodes, replicas, current):
            return current
        return batch

    def _first_batch(self, replicas):
        low, high = self._bounds() or (None, None)
        local = math.ceil(self.init_batch_size / replicas)
        steps = max(math.ceil(local / high) - 1, 0) if high and self.accumulation else 0
        atomic = math.ceil(local / (steps + 1))
        return goodput.Batch(min(max(atomic, low or 1), high or atomic), steps)

    def report(self):
        """The supervisor's hints, sent beside the training, at most every 30 s."""
        if env.rank() != 0 or self.init_batch_size is None:
            return
        hints.send_later(self._hints)

    def _hints(self):
        perf = self.perf_params()
        profiled = [replicas for _, replicas, _ in self.times]
        return {
            "initBatchSize": self.init_batch_size,
            "localBszBounds": list(self.bounds) if self.bounds else None,
            "maxBatchSize": self.max_batch_size,
            "maxProfiledReplicas": max(profiled, default=0),
            "gradientAccumulation": self.accumulation,
            "gradParams": {"norm": self.grad_params.sqr, "var": self.grad_params.var} if self.grad_params else None,
            "perfParams": dict(perf._asdict()) if perf else None,
        }


def current():
    global _profile
    if _profile is None or checkpoint._states.get("rubato-profile") is not _profile:
        _profile = Profile()
        checkpoint.load_state(_profile)
        _profile.read_limit()
    return _profile
