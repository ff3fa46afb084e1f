"""What scripts read of AdaptDL's private module of measurements: the library measures, these only read."""
from rubato.goodput import GradParams
from rubato.torch import profile

from adaptdl.goodput import GoodputFunction

__all__ = ["get_goodput_fn", "get_progress"]


def get_progress():
    """Steps at the first batch size that would have taught as much."""
    return profile.current().progress


def get_goodput_fn():
    """None before enough was measured."""
    job = profile.current()
    model = job.goodput()
    return GoodputFunction(model.perf, model.grad, job.init_batch_size) if model is not None else None


class _Metrics:
    """By AdaptDL's names."""

    progress = property(lambda self: get_progress())
    grad_params = property(lambda self: profile.current().grad_params or GradParams(0.0, 1.0))  # (norm, variance)
    perf_params = property(lambda self: profile.current().perf_params())
    init_batch_size = property(lambda self: profile.current().init_batch_size)
    max_batch_size = property(lambda self: profile.current().max_batch_size)
    local_bsz_bounds = property(lambda self: profile.current().bounds)
    gradient_accumulation = property(lambda self: profile.current().accumulation)


def _metrics_state():
    return _Metrics()
