"""Before a DataLoader forks its processes, gloo's threads come to rest.

A thread of C++ that enters Python, as those that average gradients do, takes a lock of the interpreter for a moment. Up to
Python 3.11 a process that is forked in that moment waits for the lock for ever, and the training for its data.
"""
import os
import sys
import time

import torch.distributed as dist

_REST_S = 0.001
_TRIES_MAX = 20
_registered = False


def rest_before_forks():
    """From the first group on."""
    global _registered
    if not _registered:
        _registered = True
        os.register_at_fork(before=_rest)


def _rest():
    if not dist.is_initialized():
        return
    for _ in range(_TRIES_MAX):
        begun = time.perf_counter()
        time.sleep(_REST_S)  # whoever is in the middle of something goes on
        if time.perf_counter() - begun < 3 * _REST_S:
            break  # and has got its turn: the machine is not that busy
    sys._current_frames()  # takes the lock itself: whoever holds it now is waited for
