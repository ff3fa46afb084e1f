"""Pollux' goodput model (OSDI'21): how fast a job computes, times how much each sample teaches it.

r workers on n nodes, each with an atomic batch m and s accumulation steps before each update:

    M          = r·m·(s+1)                                     the whole batch; M0 is the first one
    T_grad     = α_c + β_c·m                                   forward and backward of one atomic batch
    T_net      = α + β·max(r−2, ε)                             (α_n, β_n) over nodes, (α_r, β_r) within one, 0 alone
    T_step     = (T_grad^γ + T_net^γ)^(1/γ)                    γ says how much the two overlap
    throughput = M / (s·T_grad + T_step)
    efficiency = gain / scale,  scale = M/M0,  gain = (var + sqr) / (var/scale + sqr)
    goodput    = throughput · efficiency                       in samples of the first batch size a second
"""
import collections
import math

PerfParams = collections.namedtuple("PerfParams", "alpha_c beta_c alpha_n beta_n alpha_r beta_r gamma")
GradParams = collections.namedtuple("GradParams", "sqr var")
Batch = collections.namedtuple("Batch", "atomic_bsz accum_steps")

_SMALL = 1e-8
_SAMPLES = 50  # of the whole batch, geometrically spaced


def step_times(perf, nodes, replicas, atomic_bsz):
    """(T_grad, T_net, T_step) in seconds."""
    grad = perf.alpha_c + perf.beta_c * atomic_bsz
    more = max(replicas - 2, _SMALL)
    if nodes > 1:
        net = perf.alpha_n + perf.beta_n * more
    elif replicas > 1:
        net = perf.alpha_r + perf.beta_r * more
    else:
        net = _SMALL
    return grad, net, (grad**perf.gamma + net**perf.gamma) ** (1 / perf.gamma)


def gain(grad, scale):
    return (grad.var + grad.sqr) / (grad.var / scale + grad.sqr) if grad.var + grad.sqr > 0 else 1.0


class Goodput:
    def __init__(self, perf, grad, init_batch_size):
        self.perf, self.grad, self.init_batch_size = perf, grad, init_batch_size

    def throughput(self, nodes, replicas, batch):
        grad, _, step = step_times(self.perf, nodes, replicas, batch.atomic_bsz)
        size = replicas * batch.atomic_bsz * (batch.accum_steps + 1)
        return size / (batch.accum_steps * grad + step)

    def efficiency(self, batch_size):
        scale = max(batch_size / self.init_batch_size, _SMALL)
        return gain(self.grad, scale) / scale

    def __call__(self, nodes, replicas, batch):
        size = replicas * batch.atomic_bsz * (batch.accum_steps + 1)
        return self.throughput(nodes, replicas, batch) * self.efficiency(size)

    def best(self, nodes, replicas, max_batch_size=None, atomic_bounds=None, accumulation=False):
        """(goodput, Batch) of the best batch that the bounds allow."""
        choices = batches(self.init_batch_size, replicas, max_batch_size, atomic_bounds, accumulation)
        return max(((self(nodes, replicas, batch), batch) for batch in choices), key=lambda pair: pair[0])


def batches(init_batch_size, replicas, max_batch_size=None, atomic_bounds=None, accumulation=False):
    """What may be tried with so many replicas: at least one Batch, even where the bounds contradict each other."""
    low, high = atomic_bounds or (None, None)
    low = low or 1
    high = high or max_batch_size or init_batch_size
    smallest = max(init_batch_size, low * replicas)
    largest = max(max_batch_size or init_batch_size, smallest)
    out = {}
    for i in range(_SAMPLES):
        size = smallest * (largest / smallest) ** (i / (_SAMPLES - 1))
        out[_split(size, init_batch_size, replicas, low, high, accumulation)] = None
        if largest == smallest:
            break
    return list(out)


def _split(size, init_batch_size, replicas, low, high, accumulation):
    local = size / replicas
    steps = 0
    if accumulation:
        # The noise of a lone replica's gradient is only seen when it takes two.
        least = 1 if replicas == 1 and size > init_batch_size + 0.5 else 0
        steps = max(math.ceil(local / high - 1e-9) - 1, least)
    atomic = math.ceil(local / (steps + 1) - 1e-9)
    return Batch(min(max(atomic, low), high), steps)


# The fit ----------------------------------------------------------------------------------------------------------

Point = collections.namedtuple("Point", "nodes replicas atomic_bsz grad_time step_time")

_START = [0.1, 0.01, 0.1, 0.01, 0.1, 0.01]
_LEAST = 1e-8
_POINTS_MAX = 16  # more of them would not tell more about seven parameters, and training waits for the fit


def fit(points):
    """PerfParams that explain the measured `points` (mean times by nodes, replicas and atomic batch).

    Minimises the squared errors of the logarithms, so that a slow configuration counts as much as a fast one, with
    Pollux' priors for what was not seen yet: they are optimistic, or nothing would ever be tried.
    """
    if not points:
        raise ValueError("nothing was measured yet")
    return _Fit(_thin(points)).run()


def _thin(points):
    """Some of all sizes: of each the smallest and the largest batch first, then what lies between."""
    if len(points) <= _POINTS_MAX:
        return points
    sizes = {}
    for point in sorted(points):
        sizes.setdefault((point.nodes, point.replicas), []).append(point)
    kept, turns = list(sizes.values()), []
    if len(kept) > _POINTS_MAX:
        kept = [kept[i * (len(kept) - 1) // (_POINTS_MAX - 1)] for i in range(_POINTS_MAX)]
    for of_size in kept:
        order = [0, len(of_size) - 1, *sorted(range(1, len(of_size) - 1), key=lambda i: abs(2 * i - len(of_size) + 1))]
        turns += [(turn, of_size[i]) for turn, i in enumerate(dict.fromkeys(order))]
    return [point for _, point in sorted(turns)[:_POINTS_MAX]]


class _Fit:
    """Levenberg-Marquardt on the logarithms of the six times; the overlap γ ∈ [1, 10] through a sigmoid."""

    def __init__(self, points):
        self.points = points
        atomic = {p.atomic_bsz for p in points}
        several = [p for p in points if p.replicas > 1]
        self.one_atomic = len(atomic) == 1
        self.over_nodes = any(p.nodes > 1 for p in several)
        self.within_node = any(p.nodes == 1 for p in several)
        self.over_many = any(p.nodes > 1 and p.replicas > 2 for p in points)
        self.within_many = any(p.nodes == 1 and p.replicas > 2 for p in points)
        self.mean_grad = sum(p.grad_time for p in points) / len(points)

    def params(self, x):
        values = [math.exp(min(max(v, -18.0), 18.0)) for v in x[:6]]
        gamma = 1 + 9 / (1 + math.exp(-min(max(x[6], -30.0), 30.0)))
        alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r = values
        if self.one_atomic:  # how the time splits cannot be seen: half of it is taken for fixed
            alpha_c = self.mean_grad / 2
            beta_c = self.mean_grad / 2 / self.points[0].atomic_bsz
        if not self.within_node:
            alpha_r, beta_r = (alpha_n / 1.1, beta_n / 1.1) if self.over_nodes else (_LEAST, _LEAST)
        if not self.over_nodes:
            alpha_n, beta_n = alpha_r * 1.1, beta_r * 1.1
        if not self.within_many and self.within_node:
            beta_r = _LEAST
        if not self.over_many and self.over_nodes:
            beta_n = max(_LEAST, beta_r * 1.1)
        return PerfParams(alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma)

    def residuals(self, x):
        perf = self.params(x)
        weight = 1 / math.sqrt(len(self.points))
        out = []
        for p in self.points:
            grad, _, step = step_times(perf, p.nodes, p.replicas, p.atomic_bsz)
            out.append(weight * (math.log(grad) - math.log(max(p.grad_time, _LEAST))))
            out.append(weight * (math.log(step) - math.log(max(p.step_time, _LEAST))))
        out.append(math.sqrt(1e-3) * (perf.gamma - 1))
        out.append(0.1 * perf.beta_n / max(perf.alpha_n, _LEAST))
        out.append(0.1 * perf.beta_r / max(perf.alpha_r, _LEAST))
        return out

    def run(self):
        x = [math.log(v) for v in _START] + [-4.0]
        residuals = self.residuals(x)
        cost = sum(r * r for r in residuals)
        damping = 1e-2
        for _ in range(100):
            jacobian = self.jacobian(x, residuals)
            step_taken = False
            for _ in range(8):
                step = _solve_damped(jacobian, residuals, damping)
                trial = [a - b for a, b in zip(x, step)]
                trial_residuals = self.residuals(trial)
                trial_cost = sum(r * r for r in trial_residuals)
                if trial_cost < cost:
                    better = (cost - trial_cost) / cost
                    x, residuals, cost = trial, trial_residuals, trial_cost
                    damping = max(damping / 5, 1e-9)
                    step_taken = better > 1e-4
                    break
                damping *= 4
            if not step_taken:
                break
        return self.params(x)

    def jacobian(self, x, residuals):
        columns = []
        for i in range(len(x)):
            moved = list(x)
            moved[i] += 1e-6
            columns.append([(a - b) / 1e-6 for a, b in zip(self.residuals(moved), residuals)])
        return columns


def _solve_damped(columns, residuals, damping):
    """(JᵀJ + damping·(diag + small)) step = Jᵀ residuals, by Gauss elimination."""
    n = len(columns)
    matrix = [[sum(a * b for a, b in zip(columns[i], columns[j])) for j in range(n)] for i in range(n)]
    right = [sum(a * b for a, b in zip(columns[i], residuals)) for i in range(n)]
    for i in range(n):
        matrix[i][i] += damping * (matrix[i][i] + 1e-6)
    for i in range(n):
        pivot = max(range(i, n), key=lambda row: abs(matrix[row][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        right[i], right[pivot] = right[pivot], right[i]
        for row in range(i + 1, n):
            factor = matrix[row][i] / matrix[i][i]
            for column in range(i, n):
                matrix[row][column] -= factor * matrix[i][column]
            right[row] -= factor * right[i]
    step = [0.0] * n
    for i in reversed(range(n)):
        step[i] = (right[i] - sum(matrix[i][j] * step[j] for j in range(i + 1, n))) / matrix[i][i]
    return step
