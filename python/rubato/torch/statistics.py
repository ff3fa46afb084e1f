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

from rubato.torch import data, profile

_THETA = 0.999
_VAR_MIN = 1e-6
_RESULTS_MAX = 100
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
        self._known_results = {}  # until the next sample: they are asked for in each step

    def add(self, sqr, var, scale):
        self._known_results.clear()
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

    def noise(self):
        """(sqr, var) of all groups together."""
        return self._once("noise", lambda: (sum(self.sqr()), sum(self.var())))

    def gain(self, scale):
        return self._once(("gain", scale), lambda: _gain(*self.noise(), scale))

    def gains(self, scale):
        return list(self._once(("gains", scale), lambda: [_gain(*one, scale) for one in zip(self.sqr(), self.var())]))

    def _once(self, what, work_out):
        if what not in self._known_results:
            if len(self._known_results) > _RESULTS_MAX:  # a script may ask for any scale
                self._known_results.clear()
            self._known_results[what] = work_out()
        return self._known_results[what]

    def state_dict(self):
        return {"biased": self.biased, "weight": self.weight}

    def load_state_dict(self, state):
        if len(state["biased"]["sqr"]) == self.groups:
            self.biased, self.weight = state["biased"], state["weight"]
            self._known_results.clear()


def _gain(sqr, var, scale):
    return (var + sqr) / (var / scale + sqr) if var + sqr > 0 else 1.0


class NoiseScale:
    """What a scaling rule of one's own asks a model (`adp.gns`): the noise of its gradients, by AdaptDL's names.

    It only reads: the arguments beside `adp` are AdaptDL's, which measures there. Before anything is known, gradients
    count as free of noise, and every gain is 1.
    """

    def __init__(self, adp, optimizer=None, mp_scaler=None, num_replicas=None, accum_scale=None):
        self._averages = adp.statistics.averages
        self._forget_gradients = adp.forget_gradients

    def _sqr(self):
        return self._averages.sqr() if self._averages.known() else [1.0] * self._averages.groups

    def _var(self):
        return self._averages.var() if self._averages.known() else [_VAR_MIN] * self._averages.groups

    def sqr_avg(self):
        """Of the true gradient: its squared norm."""
        return float(sum(self._sqr()))

    def var_avg(self):
        """The trace of its covariance."""
        return float(sum(self._var()))

    @property
    def raw_sqr_avg(self):
        """By parameter group, an array of numpy."""
        return torch.tensor(self._sqr(), dtype=torch.float64).numpy()

    @property
    def raw_var_avg(self):
        return torch.tensor(self._var(), dtype=torch.float64).numpy()

    def gain(self, scale):
        return self._averages.gain(scale) if self._averages.known() else 1.0

    @staticmethod
    def get_progress():
        return profile.current().progress

    @staticmethod
    def set_progress(progress):
        profile.current().progress = progress

    @property
    def accum_scale(self):
        """How many times as large as the first batch size one micro-step of all workers is."""
        loop = data.current_dataloader()
        return loop.micro_sizes()[0] / loop.batch_size if loop else 1.0

    @property
    def accum_count(self):
        """Micro-steps of the step under way before this one."""
        loop = data.current_dataloader()
        return loop.micro if loop else 0

    @staticmethod
    def is_accumulation_step():
        loop = data.current_dataloader()
        return loop is not None and loop.is_accum_step()

    @property
    def should_zero_grad(self):
        return self.accum_count == 0

    def reset_accumulation(self):
        self._forget_gradients()


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
        self._kept = {}  # and of this one
        self._several_passes = False  # a step has more than one backward
        self._pending = None
        self._pair_missing = False

    # Called by the hook, on any thread; buckets of one step never overlap in a group.
    def add_local(self, bucket):
        self._add(self._local, bucket, bucket.buffer())

    def add_total(self, bucket, averaged):
        self._add(self._total, bucket, averaged)

    def begin_pass(self, again):
        """A backward begins, of a new step or `again` in the same: what it adds to is all that counts."""
        self._local = [None] * len(self._local)
        self._total = [None] * len(self._total)
        self._pair_missing = False
        if again:
            self._several_passes = True
        elif self._kept:
            self._before, self._kept = self._kept, {}

    def keep(self, bucket, gradients):
        """A replica alone: a copy of this gradient, the first small batch of a pair."""
        self._kept[bucket.index()] = gradients

    def add_alone(self, bucket):
        """A replica alone: this gradient and the one before are the two small batches."""
        take = self._before.get if self._several_passes else self._before.pop
        flat, before = bucket.buffer(), take(bucket.index(), None)
        if before is None or before.shape != flat.shape:
            self._pair_missing = True
            return
        self._add(self._local, bucket, flat, 0.5)
        self._add(self._local, bucket, before, 0.5)
        self._add(self._total, bucket, flat.add(before), 0.25)

    def _add(self, sums, bucket, flat, factor=1.0):
        flat = flat.detach()
        if flat.is_sparse:  # of one parameter, in a bucket of its own
            self._add_sparse(sums, bucket.parameters()[0], flat.coalesce(), factor)
            return
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

    def _add_sparse(self, sums, parameter, gradient, factor):
        values, state = gradient._values(), self.optimizer.state.get(parameter)
        if self.preconditioned and state and "exp_avg_sq" in state:
            values = values / self._root(state["exp_avg_sq"][tuple(gradient._indices())], parameter)
        self._accumulate(sums, self._group_of.get(parameter, 0), values.square().sum() * factor)

    def _accumulate(self, sums, group, value):
        sums[group] = value if sums[group] is None else sums[group] + value

    def _precondition(self, bucket, flat):
        """As Adam sees it: divided by the root of the second moment."""
        parameters = bucket.parameters()
        states = [self.optimizer.state.get(parameter) for parameter in parameters]
        if not all(state and "exp_avg_sq" in state for state in states):
            return flat
        return flat / self._root(torch.cat([state["exp_avg_sq"].reshape(-1) for state in states]), parameters[0])

    def _root(self, moments, parameter):
        group = self.optimizer.param_groups[self._group_of.get(parameter, 0)]
        correction = 1 - group["betas"][1] ** float(self.optimizer.state[parameter]["step"])
        return moments.div_(correction).sqrt_().add_(group["eps"])

    def step_ended(self, replicas, scale, loss_scale=1.0, steps=1):
        """After the averaged gradients are there. Takes in the sums of the last sample, begins to exchange these.

        `steps`: how many steps this sample stands for.
        """
        self._take_pending()
        self._before, self._kept = self._kept, {}
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
        self._before, self._kept = {}, {}
        self._local = [None] * len(self._local)
        self._total = [None] * len(self._total)
        self._pair_missing = False
        return works
