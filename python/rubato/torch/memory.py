"""Out of memory with a larger batch: the step is dropped and taken again with a smaller one.

The script's own code is under way when it happens, and cannot be called again; so it is let through to the end of the
step, as where a worker is lost: forward gives what it gives without gradients, backward does nothing, and neither does
the optimizer. Then the samples of the step come again, in smaller batches. Where others wait for our gradients, the
group is left and formed again; without an agent that plans it, the error is thrown on, and the next life keeps to the
lower bound, which lies beside the checkpoints.
"""
import copy
import functools
import warnings

import torch
import torch.distributed as dist

from rubato import group as groups
from rubato.torch import profile
from rubato.torch.data import Loop, current_dataloader

_PHRASES = ("out of memory", "can't allocate memory")


def is_exhausted(error):
    kind = getattr(torch.cuda, "OutOfMemoryError", None)
    return (kind is not None and isinstance(error, kind)) or any(phrase in str(error) for phrase in _PHRASES)


def give_up(loop, error):
    """True when the step is dropped and will be taken again; False when nothing can be done about it."""
    if loop is None or not loop.autoscales or loop.current_local_bsz <= 1:
        return False
    size, job = loop.current_local_bsz, profile.current()
    job.did_not_fit(size)
    alone = not dist.is_initialized() or dist.get_world_size() == 1
    if not alone and groups.current() is None:
        return False
    warnings.warn(f"a batch of {size} did not fit into memory; from now on at most {job.memory_limit} are tried ({error})")
    for model in list(Loop.models):
        model.lose_step()
    loop.dropped = True
    if not alone:
        groups.failed(f"out of memory with a batch of {size}")
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return True


def stand_in(module, args, kwargs):
    """What `module` gives, of the same shape, without gradients: of a step that is dropped. Nobody uses its numbers, so that
    where even this does not fit, it is that of a part of the samples, the first of which stands for all."""
    samples = next((one.shape[0] for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor) and one.dim()), 0)

    def some(value, count):
        return value[:count] if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == samples else value

    count = samples
    while True:
        try:
            with torch.no_grad():
                given = module(*[some(one, count) for one in args], **{key: some(one, count) for key, one in kwargs.items()})
            return given if count == samples else _enlarged(given, count, samples)
        except RuntimeError as error:
            if not is_exhausted(error) or count <= 1:
                raise
        count //= 2


def _enlarged(given, count, samples):
    """Takes no memory: the first row, seen `samples` times."""
    if isinstance(given, torch.Tensor):
        return given[:1].expand(samples, *given.shape[1:]) if given.dim() and given.shape[0] == count else given
    if isinstance(given, dict):
        made = copy.copy(given)
        for key, value in given.items():
            made[key] = _enlarged(value, count, samples)
        return made
    if isinstance(given, tuple) and hasattr(given, "_fields"):
        return type(given)(*(_enlarged(one, count, samples) for one in given))
    if isinstance(given, (list, tuple)):
        return type(given)(_enlarged(one, count, samples) for one in given)
    return given


def guard_backward():
    """Once for the process; outside loops that choose their batch size it changes nothing.

    Between the micro-steps of one step the gradients are put away: what scripts do to them after each batch, as
    clipping, belongs to the step's end.
    """
    real = torch.Tensor.backward
    if getattr(real, "guards_memory", False):
        return

    @functools.wraps(real)
    def backward(self, *args, **kwargs):
        loop = current_dataloader()
        if loop is None or not loop.autoscales:
            real(self, *args, **kwargs)
            return
        if loop.dropped:
            return  # forward has given up
        models = list(Loop.models)
        for model in models:
            model.before_backward(loop)
        try:
            real(self, *args, **kwargs)
        except RuntimeError as error:
            if not is_exhausted(error) or not give_up(loop, error):
                raise
            return
        for model in models:
            model.after_backward(loop)

    backward.guards_memory = True
    torch.Tensor.backward = backward
