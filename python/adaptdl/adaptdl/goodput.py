"""AdaptDL's goodput module: the model of rubato.goodput for numbers and for arrays of numpy."""
import numpy as np

from rubato import goodput as _goodput
from rubato.goodput import GradParams, PerfParams

__all__ = ["GoodputFunction", "GradParams", "PerfParams", "fit_perf_params"]

_SAMPLES = 50  # of the whole batch, geometrically spaced
_SLACK = 1e-8  # of what is rounded up


class GoodputFunction:
    """Arguments may be numbers or arrays that can be broadcast together."""

    def __init__(self, perf_params, grad_params, init_batch_size):
        self._perf = PerfParams(*perf_params)
        self._grad = GradParams(*grad_params)
        self._init_batch_size = init_batch_size

    def __call__(self, num_nodes, num_replicas, atomic_bsz, accum_steps):
        return self.evaluate(num_nodes, num_replicas, atomic_bsz, accum_steps)

    def evaluate(self, num_nodes, num_replicas, atomic_bsz, accum_steps):
        batch_size = num_replicas * atomic_bsz * (accum_steps + 1)
        assert np.all(self._init_batch_size <= batch_size), "a batch below the first one"
        return self.throughput(num_nodes, num_replicas, atomic_bsz, accum_steps) * self.efficiency(batch_size)

    def throughput(self, num_nodes, num_replicas, atomic_bsz, accum_steps):
        """Samples a second."""
        perf = self._perf
        grad = perf.alpha_c + perf.beta_c * atomic_bsz
        where = [np.greater(num_nodes, 1), np.greater(num_replicas, 1)]
        net = np.select(where, [perf.alpha_n, perf.alpha_r], 1e-8)
        net = net + np.select(where, [perf.beta_n, perf.beta_r], 1e-8) * np.maximum(np.subtract(num_replicas, 2), 1e-8)
        step = (grad**perf.gamma + net**perf.gamma) ** (1 / perf.gamma)
        return num_replicas * atomic_bsz * (accum_steps + 1) / (accum_steps * grad + step)

    def efficiency(self, batch_size):
        """How much a sample of such a batch teaches, beside one of the first batch size."""
        scale = batch_size / self._init_batch_size
        below = self._grad.var / scale + self._grad.sqr
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(below > 0, (self._grad.var + self._grad.sqr) / below, 1.0)
        return gain / scale

    def optimize(self, num_nodes, num_replicas, max_batch_size=None, atomic_bsz_range=None, accumulation=False):
        """(goodput, atomic batch size, accumulation steps), the best for each; goodput 0 where nothing is allowed."""
        assert np.all(np.less_equal(1, num_nodes)) and np.all(np.less_equal(num_nodes, num_replicas))
        most = self._init_batch_size if max_batch_size is None else max_batch_size
        assert self._init_batch_size <= most, "max_batch_size is below the first batch size"
        low, high = atomic_bsz_range or (None, None)
        low, high = low or 1, high or most
        shape = np.broadcast(num_nodes, num_replicas).shape
        nodes = np.broadcast_to(num_nodes, shape).flatten()
        replicas = np.broadcast_to(num_replicas, shape).flatten()
        atomic, steps = self._candidates(replicas, most, low, high, accumulation)
        found = self.evaluate(nodes, replicas, atomic, steps)
        found = np.where((low <= atomic) & (atomic <= high), found, 0.0)
        best = np.argmax(found, axis=0), np.arange(found.shape[1])
        results = [values[best].reshape(shape) for values in (found, atomic, steps)]
        if np.isscalar(num_nodes) or np.isscalar(num_replicas):
            results = [values.item() for values in results]
        return tuple(results)

    def _candidates(self, replicas, most, low, high, accumulation):
        """(atomic batch sizes, accumulation steps), a row for each whole batch that is tried."""
        least = np.maximum(self._init_batch_size, low * replicas)
        local = np.geomspace(least, most, _SAMPLES) / replicas
        steps = np.zeros_like(local, dtype=int)
        if accumulation:
            steps = (np.ceil(local / high - _SLACK) - 1).astype(int)
            # Alone, a larger batch must be of two parts at least: their difference tells the noise.
            alone = (replicas == 1) & (local > self._init_batch_size + _SLACK)
            steps = np.where(alone, np.maximum(steps, 1), steps)
        return np.ceil(local / (steps + 1) - _SLACK).astype(int), steps


def fit_perf_params(num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time):
    """PerfParams from the mean times, in seconds, of each configuration: without, and with, the exchange."""
    rows = zip(*(np.asarray(values).tolist()
                 for values in (num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time)))
    return _goodput.fit([_goodput.Point(*row) for row in rows])
