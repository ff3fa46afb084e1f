"""gloo meets its peers inside a constructor that cannot be interrupted, and waits five time-outs for one that has left.

So it runs in a thread of its own here. When the group is outdated or broken that thread is left behind: it ends with
gloo's time-out, nothing uses what it makes, and the process may end before it.
"""
import contextlib
import threading

import torch.distributed as dist

_POLL_S = 0.02


@contextlib.contextmanager
def interruptible(check, ended):
    """Inside, groups of gloo are made so. `check` ends the wait by throwing; `ended` is called in the thread, last."""
    module = dist.distributed_c10d
    make = getattr(module, "ProcessGroupGloo", None)
    if make is None:
        yield
        return
    module.ProcessGroupGloo = _Interruptible(make, check, ended)
    try:
        yield
    finally:
        module.ProcessGroupGloo = make


class _Interruptible:
    """Stands for the class: PyTorch may ask more of it than to make one."""

    def __init__(self, kind, check, ended):
        self._kind, self._check, self._ended = kind, check, ended

    def __call__(self, *args, **options):
        return _make(lambda: self._kind(*args, **options), self._check, self._ended)

    def __getattr__(self, name):
        return getattr(self._kind, name)

    def __instancecheck__(self, instance):
        return isinstance(instance, self._kind)


def _make(call, check, ended):
    outcome = []
    done = threading.Event()

    def work():
        try:
            outcome.append((call(), None))
        except BaseException as error:  # sys.exit() of a store's check, too: it is the caller's
            outcome.append((None, error))
        finally:
            ended()
            done.set()

    threading.Thread(target=work, name="rubato-forming", daemon=True).start()
    while not done.wait(_POLL_S):
        check()
    made, error = outcome.pop()
    if error is not None:
        raise error
    return made
