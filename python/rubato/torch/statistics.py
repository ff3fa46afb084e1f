"""How noisy the gradients are: |G|² (`sqr`) and the variance of a first-size batch (`var`), per parameter group.

With r replicas each one's own gradient g_i is a small batch and their mean ḡ a large one. A replica alone compares each
gradient with the one before. From count = r (or 2) small batches:

    local = Σ|g_i|²/count      total = |ḡ|²
    sqr   = (count·total − local)/(count−1)        var = (local − total)·scale/(count−1),  scale = M/M0

Both are averaged exponentially with θ = 0.999^scale for each step, bias-corrected. The sums are taken on the flat buckets
of DistributedDataParallel while they are on their way, and exchanged one step late: nothing waits for them. After the
first steps only one of ten is measured: the averages look back over a thousand.
"""
import math

import torch
import torch.distributed as dist

_THETA = 0.999
_VAR_MIN = 1e-6
_INTERVAL = 10
_FIRST_STEPS = 50  # are all measured, so that something is known soon


def steps_per_sample(step):
    """How many steps the sample taken at this one stands for; 0 when none is taken."""
    if step < _FIRST_STEPS:
        return 1
    return _INTERVAL if step % _INTERVAL == 0 else 0


def starts_pair(step):
    """A replica alone needs the gradient before a sample, too."""
    return steps_per_sample(step + 1) > 0


class Averages:
    """The two running averages, a number for each parameter group."""

    def __init__(self, groups):
        self.groups = groups
        self.biased = {"sqr": [0.0] * groups, "var": [0.0] * groups}
        self.weight = {"sqr": 0.0, "var": 0.0}

    def add(self, sqr, var, scale):
        theta = _THETA**scale
        for name, values in (("sqr", sqr), ("var", var)):
            old = self.biased[name]
            self.biased[name] = [theta * a + (1 - theta) * b for a, b in zip(old, values)]
            self.weight[name] = theta * self.weight[name] + (1 - theta)

    def known(self):
        return self.weight["sqr"] > 0

    def sqr(self):
        if not self.known():
            return [0.0] * self.groups
        return [max(value / self.weight["sqr"], 0.0) for value in self.biased["sqr"]]

    def var(self):
        if not self.known():
            return [1.0] * self.groups
        return [max(value / self.weight["var"], _VAR_MIN) for value in self.biased["var"]]

    def gain(self, scale):
        return _gain(sum(self.sqr()), sum(self.var()), scale)

    def gains(self, scale):
        return [_gain(sqr, var, scale) for sqr, var in zip(self.sqr(), self.var())]

    def state_dict(self):
        return {"biased": self.biased, "weight": self.weight}

    def load_state_dict(self, state):
        if len(state["biased"]["sqr"]) == self.groups:
            self.biased, self.weight = state["biased"], state["weight"]


def _gain(sqr, var, scale):
    return (var + sqr) / (var / scale + sqr) if var + sqr > 0 else 1.0


class GradientStatistics:
    """Fed by the communication hook with each bucket before and after it was averaged; `step_ended` once a step."""

    def __init__(self, optimizer, preconditioned=False):
        self.optimizer = optimizer
        self.preconditioned = preconditioned
        groups = [group["params"] for group in optimizer.param_groups]
        self.averages = Averages(len(groups))
        self._group_of = {parameter: i for i, params in enumerate(groups) for parameter in params}
        self._local = [None] * len(groups)
        self._total = [None] * len(groups)
        self._before = {}  # bucket's number -> its gradients of the step before, for a replica alone
        self._pending = None
        self._pair_missing = False

    # Called by the hook, on any thread; buckets of one step never overlap in a group.
    def add_local(self, bucket):
        self._add(self._local, bucket, bucket.buffer())

    def add_total(self, bucket, averaged):
        self._add(self._total, bucket, averaged)

    def keep(self, bucket, gradients):
        """A replica alone: a copy of this gradient, the first small batch of a pair."""
        self._before[bucket.index()] = gradients

    def add_alone(self, bucket):
        """A replica alone: this gradient and the one before are the two small batches."""
        flat, before = bucket.buffer(), self._before.pop(bucket.index(), None)
        if before is None or before.shape != flat.shape:
            self._pair_missing = True
            return
        self._add(self._local, bucket, flat, 0.5)
        self._add(self._local, bucket, before, 0.5)
        self._add(self._total, bucket, flat.add(before), 0.25)

    def _add(self, sums, bucket, flat, factor=1.0):
        flat = flat.detach()
        if self.preconditioned:
            flat = self._precondition(bucket, flat)
        if len(sums) == 1:
            self._accumulate(sums, 0, torch.dot(flat, flat) * factor)
            return
        by_group = {}
        parameters = bucket.parameters()
        for parameter, piece in zip(parameters, flat.split([parameter.numel() for parameter in parameters])):
            by_group.setdefault(self._group_of.get(parameter, 0), []).append(piece)
        for group, pieces in by_group.items():
            norms = torch.stack(torch._foreach_norm(pieces))
            self._accumulate(sums, group, torch.dot(norms, norms) * factor)

    def _accumulate(self, sums, group, value):
        sums[group] = value if sums[group] is None else sums[group] + value

    def _precondition(self, bucket, flat):
        """As Adam sees it: divided by the root of the second moment."""
        parameters = bucket.parameters()
        states = [self.optimizer.state.get(parameter) for parameter in parameters]
        if not all(state and "exp_avg_sq" in state for state in states):
            return flat
        group = self.optimizer.param_groups[self._group_of.get(parameters[0], 0)]
        correction = 1 - group["betas"][1] ** float(states[0]["step"])
        moments = torch.cat([state["exp_avg_sq"].reshape(-1) for state in states])
        return flat / moments.div_(correction).sqrt_().add_(group["eps"])

    def step_ended(self, replicas, scale, loss_scale=1.0, steps=1):
        """After the averaged gradients are there. Takes in the sums of the last sample, begins to exchange these.

        `steps`: how many steps this sample stands for.
        """
        self._take_pending()
        missing, self._pair_missing = self._pair_missing, False
        local, total = self._local, self._total
        self._local, self._total = [None] * len(local), [None] * len(total)
        if missing or any(value is None for value in total) or any(value is None for value in local):
            return
        local = torch.stack([value.double() for value in local])
        total = torch.stack([value.double() for value in total])
        work = dist.all_reduce(local, async_op=True) if replicas > 1 else None
        count = replicas if replicas > 1 else 2
        self._pending = (work, local, total, count, scale if replicas > 1 else 2 * scale, loss_scale, replicas, steps)

    def _take_pending(self):
        if self._pending is None:
            return
        work, local, total, count, scale, loss_scale, replicas, steps = self._pending
        self._pending = None
        if work is not None:
            work.wait()
        local, total = local.tolist(), total.tolist()
        if not all(map(math.isfinite, local + total)):
            return  # a step that mixed precision skips
        sqr, var = [], []
        for own, mean in zip(local, total):
            own /= replicas * loss_scale**2
            mean /= loss_scale**2
            sqr.append((count * mean - own) / (count - 1))
            var.append((own - mean) * scale / (count - 1))
        self.averages.add(sqr, var, scale * steps)

    def leave_group(self):
        """Gradients of another size must not be paired. Returns the exchange under way; its sums are given up."""
        works = [self._pending[0]] if self._pending is not None and self._pending[0] is not None else []
        self._pending = None
        self._before = {}
        self._local = [None] * len(self._local)
        self._total = [None] * len(self._total)
        self._pair_missing = False
        return works
