"""Small collectives of plain values among the workers of a job, in the order in which each worker calls them.

`allreduce` and `broadcast` run at once. `allreduce_async` runs in a thread of its own on a gloo group of its own: it
costs the training nothing but its bytes. Values are numbers, strings, tensors, and lists, tuples and dicts of them (plain.py):
nothing that comes over the network can run.

Where an agent plans the group, a collective that a dead worker broke is begun again in the next group. Some members may
have seen its end already: they give its result to the others when they meet (`resume`).
"""
import collections
import concurrent.futures
import contextlib
import functools
import io
import operator
import queue
import threading
import time
import traceback

import torch
import torch.distributed as dist

from rubato import env
from rubato import group as groups
from rubato import plain

_executor = None
_groups = {}  # of gloo, of this process group: "beside" for the executor's thread, "at once" where the default is another
_done = 0  # collectives that have ended since the job began
_last = b""  # the values of all members in the last one
_pending = collections.deque()


class Cancelled(RuntimeError):
    """The group changed before a collective that is done only `while_it_lasts` had ended anywhere."""


_optional = False


@contextlib.contextmanager
def while_it_lasts():
    """Around collectives that belong to this group alone: in the next one they are not begun again, but Cancelled.

    For what only some members may have come to when a worker is lost: those that did must not wait for the others.
    """
    global _optional
    _optional = True
    try:
        yield
    finally:
        _optional = False


class _Beside:
    """Runs what it is given, one after the other, in a thread that keeps no process from ending: unlike those of
    concurrent.futures, which Python waits for, although a collective may wait for workers that are gone."""

    def __init__(self):
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="rubato-collective", daemon=True)
        self._thread.start()

    def submit(self, call, *args):
        self._queue.put((call, args))

    def end(self):
        """After what was submitted."""
        self._queue.put(None)
        self._thread.join()

    def _work(self):
        while (given := self._queue.get()) is not None:
            call, args = given
            try:
                call(*args)
            except Exception:  # what it was for has not ended; the next ones shall
                traceback.print_exc()


class _Operation:
    def __init__(self, data, beside):
        self.data, self.beside = data, beside
        self.optional = _optional
        self.future = concurrent.futures.Future()


def initialize(master_addr=None, master_port=None, replica_rank=None, num_replicas=None, alone=False):
    """After `init_process_group`, on all ranks: the group tells all that the arguments could.

    With `alone`, before it or without it: then the workers meet where the arguments, or the launcher, say.
    """
    global _executor
    if _executor is not None:
        raise RuntimeError("collective.initialize was called twice: call teardown() in between")
    if alone and not dist.is_initialized():
        _meet_alone(master_addr, master_port, replica_rank, num_replicas)
    _executor = _Beside()


def _meet_alone(address, port, rank, replicas):
    replicas = env.world_size() if replicas is None else replicas
    if replicas == 1:
        return
    address = env.master_address() if address in (None, "0.0.0.0") else address
    port = env.master_port() if port is None else port
    dist.init_process_group("gloo", init_method=f"tcp://{address}:{port}", world_size=replicas,
                            rank=env.rank() if rank is None else rank)


def initialized():
    return _executor is not None


def teardown():
    leave()
    _pending.clear()


def leave():
    """Before the process group goes: nothing is under way after it. What had not ended is kept for `resume`."""
    global _executor
    if _executor is not None:
        _executor.end()
    _executor = None
    _groups.clear()


def operations():
    return _done


def last_result():
    return _last


def resume(done, result):
    """In a new group in which `done` collectives have ended; `result` is that of the last one, if we missed it."""
    global _done, _last
    if result is not None:
        _last = result
        if _pending:
            _pending.popleft().future.set_result(_unpack(result))
    _done = done
    for operation in [one for one in _pending if one.optional]:
        _pending.remove(operation)
        operation.future.set_exception(Cancelled("the group changed"))
    for operation in list(_pending):
        if operation.beside:
            _start(operation)


def control_group():
    """For small tensors of the CPU, from the main thread; None is the default group, or nobody else is there."""
    if not dist.is_initialized() or dist.get_world_size() == 1 or dist.get_backend() == "gloo":
        return None
    current = groups.current()
    return current.control_group() if current else _new_group("at once")


def _new_group(purpose):
    if purpose not in _groups:
        current = groups.current()
        with current.recording() if current else contextlib.nullcontext():
            _groups[purpose] = dist.new_group(backend="gloo")
    return _groups[purpose]


def _generation():
    current = groups.current()
    return current.generation if current else None


def _start(operation):
    """Beside the training."""
    if _executor is None:
        initialize()
    try:
        group = _new_group("beside") if dist.is_initialized() and dist.get_world_size() > 1 else None
    except RuntimeError as error:
        if not groups.failed(error):
            raise
        return  # it is begun again in the next group
    _executor.submit(_run, operation, group, _generation())


def _run(operation, group, generation):
    global _done, _last
    try:
        if groups.broken():
            return
        values = _gather(operation.data, group)
    except Exception as error:  # of another kind than RuntimeError it is not a lost worker's
        if not isinstance(error, RuntimeError) or not groups.failed(error, generation):
            _pending.popleft()
            operation.future.set_exception(error)
        return
    _done += 1
    _last = _pack(values)
    _pending.popleft()
    operation.future.set_result(values)


def _gather(data, group):
    """The bytes of all members, by rank."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [data]
    replicas = dist.get_world_size(group)
    size = torch.tensor([len(data)], dtype=torch.int64)
    sizes = [torch.zeros_like(size) for _ in range(replicas)]
    dist.all_gather(sizes, size, group=group)
    longest = max(int(one) for one in sizes)
    own = torch.zeros(longest, dtype=torch.uint8)
    own[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    every = [torch.empty_like(own) for _ in range(replicas)]
    dist.all_gather(every, own, group=group)
    return [bytes(one[: int(length)].numpy()) for one, length in zip(every, sizes)]


def _pack(values):
    return b"".join(len(value).to_bytes(8, "big") + value for value in values)


def _unpack(data):
    values = []
    while data:
        length = int.from_bytes(data[:8], "big")
        values.append(data[8 : 8 + length])
        data = data[8 + length :]
    return values


class _Pending:
    """As a future of concurrent.futures, as far as it is needed."""

    def __init__(self, operation, finish):
        self._operation, self._finish = operation, finish

    def done(self):
        return self._operation.future.done()

    def result(self, timeout=None):
        return self._finish([_load(value) for value in _wait(self._operation, timeout)])


def _wait(operation, timeout=None):
    if groups.current() is None:
        return operation.future.result(timeout)
    while not operation.future.done():
        concurrent.futures.wait([operation.future], 0.02)
        _meet_if_broken(operation)
    return operation.future.result()


def _meet_if_broken(operation):
    if not operation.future.done() and groups.broken():
        groups.current().meet()


def _now(value):
    """All ranks' values, at once; after those that were begun before."""
    for operation in list(_pending):
        _wait(operation)
    operation = _Operation(_dump(value), beside=False)
    _pending.append(operation)
    while not operation.future.done():
        _run(operation, control_group(), _generation())
        _meet_if_broken(operation)
    return [_load(one) for one in operation.future.result()]


def _dump(value):
    buffer = io.BytesIO()
    plain.dump(value, buffer)
    return buffer.getvalue()


def _load(data):
    return plain.load(io.BytesIO(data))


def allreduce_async(value, reduce_fn=operator.add):
    """A future with `result()`: the values of all ranks, in rank order, folded with `reduce_fn`."""
    operation = _Operation(_dump(value), beside=True)
    _pending.append(operation)
    _start(operation)
    return _Pending(operation, lambda values: functools.reduce(reduce_fn, values))


def allreduce(value, reduce_fn=operator.add):
    return functools.reduce(reduce_fn, _now(value))


def broadcast(value):
    """Rank 0's value."""
    return _now(value)[0]


def _wait_for(work):
    """Not without end where somebody else finds out that a worker is lost: gloo may miss it."""
    while groups.current() is not None and not work.is_completed():
        if groups.broken():
            raise RuntimeError("a worker was lost")
        time.sleep(0.0002)
    work.wait()


class MaxFlags:
    """What any worker wants all of them to do after the same step. Begun at one step, read at the next: no waiting."""

    def __init__(self, count):
        self._count = count
        self._pending = None  # (work, tensor); (None, flags) for a worker alone

    def exchange(self, flags):
        """Begins the exchange of `flags` (numbers); returns the maximum over ranks of those given at the last call.

        Throws RuntimeError when a member has died.
        """
        result = self._take()
        if not dist.is_initialized() or dist.get_world_size() == 1:
            self._pending = (None, flags)
            return result
        tensor = torch.tensor(flags, dtype=torch.float64)
        work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=control_group(), async_op=True)
        self._pending = (work, tensor)
        return result

    def _take(self):
        if self._pending is None:
            return [0.0] * self._count
        work, tensor = self._pending
        self._pending = None
        if work is None:
            return tensor
        _wait_for(work)
        return tensor.tolist()

    def under_way(self):
        return [self._pending[0]] if self._pending is not None and self._pending[0] is not None else []

    def finish(self):
        """The flags of the last call; nothing is under way after it. All ranks must call it."""
        return self._take()
