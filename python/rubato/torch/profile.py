"""What was measured of this job: times by configuration, noise of its gradients, progress; and what follows from it."""
import collections
import json
import math
import os
import statistics
import time

import torch

from rubato import checkpoint, env, goodput, hints

_SAMPLES = 32  # of each configuration: the newest count, by their median
_NOISE = 0.02
_CONFIGURATIONS = 256  # of one kind of devices: the oldest ones go
_DEVICES = 4  # kinds besides the one in use
_DEVICE_NAME = 64  # characters
_LIMIT_FILE = "memory-limit.json"  # beside the checkpoints: it must outlive a process that memory has ended
_profile = None


class _Times:
    def __init__(self):
        self.grad = collections.deque(maxlen=_SAMPLES)
        self.step = collections.deque(maxlen=_SAMPLES)


class Profile(checkpoint.State):
    def __init__(self):
        super().__init__("rubato-profile")
        self.device = None  # what `times` were measured on; None: nothing was yet
        self.times = {}  # (nodes, replicas, atomic batch) -> _Times
        self.elsewhere = {}  # device -> (times, PerfParams or None): of the devices that it ran on before
        self._device_here = None  # of this process
        self.start_time = None  # seconds from this process' start to the end of its first step
        self.grad_params = None
        self.progress = 0.0  # steps at the first batch size that would have taught as much
        self.steps = 0
        self.updates = 0  # of all models: a step of several has as many, and a worker may be lost between two of them
        self.init_batch_size = None
        self.max_batch_size = None
        self.bounds = None
        self.accumulation = False
        self.memory_limit = None  # the largest atomic batch that is tried: a larger one did not fit
        self._fitted = ([], None)  # (what was measured, PerfParams)

    def save(self, fileobj):
        times = _to_lists(self.times)
        elsewhere = [[device, _to_lists(there), list(perf) if perf else None]
                     for device, (there, perf) in self.elsewhere.items()]
        grad = list(self.grad_params) if self.grad_params else None
        state = {"times": times, "grad": grad, "progress": self.progress, "steps": self.steps,
                 "updates": self.updates,
                 "memory_limit": self.memory_limit, "device": self.device, "elsewhere": elsewhere}
        fileobj.write(json.dumps(state).encode())

    def load(self, fileobj):
        state = json.loads(fileobj.read())
        self.device = state.get("device")
        self.times = _from_lists(state["times"])
        self.elsewhere = {device: (_from_lists(there), goodput.PerfParams(*perf) if perf else None)
                          for device, there, perf in state.get("elsewhere", [])}
        self.grad_params = goodput.GradParams(*state["grad"]) if state["grad"] else None
        self.progress, self.steps = state["progress"], state["steps"]
        self.updates = state.get("updates", 0)
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
        self._use_device()
        key = env.node_count(), env.world_size(), atomic_bsz
        if key not in self.times and len(self.times) >= _CONFIGURATIONS:
            del self.times[next(iter(self.times))]
        entry = self.times.get(key)
        if entry is None:
            entry = self.times[key] = _Times()
        if grad_time is not None:
            entry.grad.append(max(grad_time, 1e-6))
        if step_time is not None:
            entry.step.append(max(step_time, 1e-6))

    def _use_device(self):
        """Times of another kind of devices say nothing of this one: they are put aside."""
        if self._device_here is None:
            self._device_here = _device_kind()
        if self.device == self._device_here:
            return
        if self.device is not None:
            self.elsewhere[self.device] = self.times, self.perf_params()
            self.times, _ = self.elsewhere.pop(self._device_here, ({}, None))
            while len(self.elsewhere) > _DEVICES:
                del self.elsewhere[next(iter(self.elsewhere))]
        self.device = self._device_here

    def step_done(self, gain):
        self.progress += gain
        self.steps += 1
        if self.start_time is None:
            self.start_time = _process_age()

    def points(self):
        return [
            goodput.Point(*key, statistics.median(t.grad), statistics.median(t.step))
            for key, t in sorted(self.times.items())
            if t.grad and t.step
        ]

    def perf_params(self):
        """Fitted anew only where something was measured that differs: rank 0's training waits for it."""
        points = self.points()
        if not points:
            return None
        fitted = self._fitted[0]
        if len(fitted) != len(points) or any(_differ(old, new) for old, new in zip(fitted, points)):
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
        if not hints.is_due() or env.rank() != 0 or self.init_batch_size is None:
            return
        hints.send_later(self._hints)

    def _hints(self):
        perf = self.perf_params()
        profiled = [replicas for _, replicas, _ in self.times]
        bounds = self._bounds()
        elsewhere = {device: dict(known._asdict()) for device, (_, known) in self.elsewhere.items() if known}
        return {
            "initBatchSize": self.init_batch_size,
            "localBszBounds": list(bounds) if bounds else None,
            "maxBatchSize": self.max_batch_size,
            "maxProfiledReplicas": max(profiled, default=0),
            "gradientAccumulation": self.accumulation,
            "gradParams": {"norm": self.grad_params.sqr, "var": self.grad_params.var} if self.grad_params else None,
            "perfParams": dict(perf._asdict()) if perf else None,
            "progress": {"done": self.progress, "total": self._declared_steps()},
            "deviceKind": self.device,
            "perfByDevice": elsewhere or None,
            "startSeconds": self.start_time,
        }

    def _declared_steps(self):
        """In the unit of `progress`, up to the end that the script has declared; None: it has not, or the data do not
        tell how long an epoch is."""
        from rubato.torch import data, epoch  # which need this module

        loop, epochs = data.Loop._trainer(), epoch.declared_epochs()
        if loop is None or not epochs or not loop.pass_samples:
            return None
        return epochs * loop.pass_samples / self.init_batch_size


def _to_lists(times):
    return [[*key, list(t.grad), list(t.step)] for key, t in times.items()]


def _from_lists(rows):
    times = {}
    for nodes, replicas, atomic, grad, step in rows:
        entry = times.setdefault((nodes, replicas, atomic), _Times())
        entry.grad.extend(grad)
        entry.step.extend(step)
    return times


def _device_kind():
    """What this process computes on: two processes with the same answer are about as fast."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        name = torch.cuda.get_device_name()
    else:
        name = _cpu_model()
    return "".join(c for c in name if c.isprintable() and c.isascii())[:_DEVICE_NAME] or "unknown"


def _cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip() or "cpu"
    except OSError:
        pass
    return "cpu"


def _process_age():
    """Seconds since this process began; None where nobody knows."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            began = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 0.0)
    except (OSError, ValueError, IndexError):
        return None


def _differ(old, new):
    """By more than two medians of the same do."""
    return old[:3] != new[:3] or any(abs(a - b) > _NOISE * a for a, b in zip(old[3:], new[3:]))


def current():
    global _profile
    if _profile is None or checkpoint._states.get("rubato-profile") is not _profile:
        _profile = Profile()
        checkpoint.load_first(_profile)
        _profile.read_limit()
    return _profile
