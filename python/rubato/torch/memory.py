"""Out of memory with a larger batch: the step is dropped and taken again with a smaller one.

The script's own code is under way when it happens, and cannot be called again; so it is let through to the end of the
step, as where a worker is lost: forward gives what it gives without gradients, backward does nothing, and neither does
the optimizer. Then the samples of the step come again, in smaller batches. Where others wait for our gradients, the
group is left and formed again; without an agent that plans it, the error is thrown on, and the next life keeps to the
lower bound, which lies beside the checkpoints.
"""
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


def guard_backward():
    """Once for the process; outside loops that choose their batch size it changes nothing."""
    real = torch.Tensor.backward
    if getattr(real, "guards_memory", False):
        return

    @functools.wraps(real)
    def backward(self, *args, **kwargs):
        loop = current_dataloader()
        if loop is None or not loop.autoscales:
            return real(self, *args, **kwargs)
        if loop.dropped:
            return None  # forward has given up
        try:
            return real(self, *args, **kwargs)
        except RuntimeError as error:
            if not is_exhausted(error) or not give_up(loop, error):
                raise
            return None

    backward.guards_memory = True
    torch.Tensor.backward = backward
