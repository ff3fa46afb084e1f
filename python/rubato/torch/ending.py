"""Before the interpreter ends, the process group does, and gloo's threads with it.

Gradients are averaged with a callback in Python, on a thread of gloo's. One that still runs it, or only gives back what it
called, while the interpreter ends is thrown out of C++, and that takes the process down: a training that went well ended
with "terminate called without an active exception".
"""
import atexit
import sys
import threading

import torch.distributed as dist

from rubato import collective
from rubato import group as groups
from rubato.torch.data import Loop

_LEAVE_S = 30.0  # who waits longer waits for a collective that others will never join
_LEAVE_FAILED_S = 2.0  # others wait for us, not we for them
_registered = False


def leave_at_exit():
    """From the first group on. Handlers that the script registers later still find the group."""
    global _registered
    if not _registered:
        _registered = True
        atexit.register(_leave_at_exit)


def _leave_at_exit():
    if dist.is_initialized() and dist.get_backend() == "gloo":
        leave(failed=getattr(sys, "last_value", None) is not None)


def leave(failed):
    """Leaves the group, but does not wait for long. `failed`: this worker ends with an error."""
    given_up = threading.Event()
    thread = threading.Thread(target=_leave, args=(given_up,), name="rubato-ending", daemon=True)
    thread.start()
    thread.join(_LEAVE_FAILED_S if failed else _LEAVE_S)
    given_up.set()


def _leave(given_up):
    planned = groups.current()
    if planned is not None:
        planned.leave()
        return
    collective.teardown()
    if given_up.is_set():  # the script goes on, and may use the group
        return
    for model in list(Loop.models):  # their DistributedDataParallel keeps the group
        model.leave_group()
    dist.destroy_process_group()
