"""Optimizers that are given a closure, and call it once or as often as its losses say (LBFGS).

Each call exchanges gradients, so all workers must call it equally often: what it returns is the loss of the whole batch,
alike on all of them, of which the averaged gradients are the gradient. Where a worker is lost, the step ends at once, and
what such an optimizer has moved by then is moved back.
"""
import copy

import torch
import torch.distributed as dist

from rubato import collective
from rubato import group as groups


class StepLost(Exception):
    """Out of a closure, through the optimizer: the step under way is dropped."""


def find(args, kwargs):
    """The closure among the arguments of an optimizer's step, or None."""
    given = args[0] if args else kwargs.get("closure")
    return given if callable(given) else None


class ClosureStep:
    """One step of an optimizer with a closure: `call` is what the optimizer is to be given in its place."""

    def __init__(self, closure, loop, optimizer, is_lost):
        """`is_lost` says whether the gradients of this step will not be there."""
        if loop is not None and loop.accumulation:
            raise ValueError("optimizer.step(closure) does not go with gradient_accumulation=True: a closure computes the "
                             "whole gradient. Leave it out of autoscale_batch_size, or call backward() and step()")
        self._closure, self._loop, self._is_lost = closure, loop, is_lost
        may_be_lost = groups.current() is not None or (loop is not None and loop.autoscales)
        self._before = _Before(optimizer) if may_be_lost and not _calls_once(optimizer) else None

    def arguments(self, args, kwargs):
        return ((self.call, *args[1:]), kwargs) if args else (args, {**kwargs, "closure": self.call})

    def call(self):
        loss = self._closure()
        if not self._is_lost():
            try:
                loss = _of_all(loss, 1.0 if self._loop is None else self._loop.weight)
            except RuntimeError as error:
                if not groups.failed(error):
                    raise
                raise StepLost() from error
        if self._is_lost():
            raise StepLost()
        return loss

    def undo(self):
        if self._before is not None:
            self._before.restore()


def _calls_once(optimizer):
    """Before it changes anything: PyTorch's own do, but for this one."""
    return type(optimizer).__module__.startswith("torch.optim") and not isinstance(optimizer, torch.optim.LBFGS)


class _Before:
    """Parameters and state as they were."""

    def __init__(self, optimizer):
        self._optimizer = optimizer
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        self._parameters = [(one, one.detach().clone()) for one in parameters]
        self._state = {key: copy.deepcopy(value) for key, value in optimizer.state.items()}

    def restore(self):
        with torch.no_grad():
            for parameter, value in self._parameters:
                parameter.copy_(value)
        self._optimizer.state.clear()
        self._optimizer.state.update(self._state)


def _of_all(loss, weight):
    """The mean of all workers' losses, by their shares of the batch; what is no number stays as it is."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return loss
    is_tensor = isinstance(loss, torch.Tensor)
    if not (is_tensor and loss.numel() == 1) and not isinstance(loss, (int, float)):
        return loss
    mean = torch.tensor(float(loss) * weight / dist.get_world_size() if weight else 0.0, dtype=torch.float64)
    dist.all_reduce(mean, group=collective.control_group())
    return torch.full_like(loss.detach(), float(mean)) if is_tensor else float(mean)
