"""Small collectives of Python objects among the workers of a job, in the order in which each worker calls them.

They run in a thread of their own on a gloo group of their own: one that is begun with `allreduce_async` costs the
training nothing but its bytes. Objects travel pickled, as those of torch.distributed's object collectives do: only
among the workers of one job. The library's own traffic is numbers (`MaxFlags`).
"""
import concurrent.futures
import functools
import operator

import torch
import torch.distributed as dist

_executor = None
_group = None


def initialize(master_addr=None, master_port=None, replica_rank=None, num_replicas=None):
    """After `init_process_group`, on all ranks. The arguments are AdaptDL's; the group tells all of them."""
    global _executor, _group
    if _executor is not None:
        raise RuntimeError("collective.initialize was called twice: call teardown() in between")
    _executor = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="rubato-collective")
    _group = dist.new_group(backend="gloo") if dist.is_initialized() and dist.get_world_size() > 1 else None


def initialized():
    return _executor is not None


def teardown():
    global _executor, _group
    if _executor is None:
        return
    _executor.shutdown(wait=True)
    _executor, _group = None, None


def _gather(value):
    if _group is None:
        return [value]
    values = [None] * dist.get_world_size(_group)
    dist.all_gather_object(values, value, group=_group)
    return values


def _submit(work):
    if _executor is None:
        initialize()
    return _executor.submit(work)


def allreduce_async(value, reduce_fn=operator.add):
    """A future with `result()`: the values of all ranks, in rank order, folded with `reduce_fn`."""
    return _submit(lambda: functools.reduce(reduce_fn, _gather(value)))


def allreduce(value, reduce_fn=operator.add):
    return allreduce_async(value, reduce_fn).result()


def broadcast(value):
    """Rank 0's value."""
    return _submit(lambda: _gather(value)[0]).result()


class MaxFlags:
    """What any worker wants all of them to do after the same step. Begun at one step, read at the next: no waiting."""

    def __init__(self, count):
        self._count = count
        self._pending = None  # (work, tensor)
        self._group = None

    def exchange(self, flags):
        """Begins the exchange of `flags` (numbers); returns the maximum over ranks of those given at the last call."""
        result = self._take()
        tensor = torch.tensor(flags, dtype=torch.float64)
        if not dist.is_initialized() or dist.get_world_size() == 1:
            self._pending = (None, tensor)
            return result
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        self._pending = (dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._group, async_op=True), tensor)
        return result

    def _take(self):
        if self._pending is None:
            return [0.0] * self._count
        work, tensor = self._pending
        self._pending = None
        if work is not None:
            work.wait()
        return tensor.tolist()

    def finish(self):
        """The flags of the last call; nothing is under way after it. All ranks must call it."""
        return self._take()
