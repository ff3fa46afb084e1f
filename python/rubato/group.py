"""The process group of a worker whose agent may change it: formed, left and formed again inside the living process.

    provisional ──plan──▶ forming ──▶ settled ──clean change: after the same step on all──▶ forming …
                             ▲            │
                             └── broken ◀─┘   a collective failed, or the agent said that a member is lost

- A newcomer is *provisional* while it builds model and data, alone in a group of one; it meets the others at its first
  epoch or loop (`join`). The others train on until then.
- *Settled*: all members have the same state. The most advanced one gives it to those that lack it.
- *Broken*: sockets are cut at once, so that the others notice; the step under way is dropped where its gradients were
  not complete; at the next boundary of steps the worker waits for a newer plan.

Without an agent (no RUBATO_PLAN_DIR) there is none of this, and `current()` is None.
"""
import contextlib
import datetime
import json
import os
import sys
import threading
import time
import warnings

import torch
import torch.distributed as dist

from rubato import _forming, _signal, _sockets, _store, checkpoint, env, membership, transfer

TIMEOUT_S = 30.0  # of gloo: only a backstop, the agent notices sooner
SETTLE_S = 600.0  # for a member that is still building its model in the first generation
_PLAN_POLL_S = 0.002
_WATCH_S = 0.02
_PARK_S = 0.1
_SEED_RANGE = 1 << 62
_current = None


class Superseded(RuntimeError):
    """A newer plan came while an older one was being carried out."""


class _Store(dist.Store):
    """Our store, as torch.distributed wants it."""

    def __init__(self, client, prefix):
        super().__init__()
        self._client, self._prefix = client, prefix

    def set(self, key, value):
        self._client.set(self._prefix + key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key):
        return self._client.get([self._prefix + key])[0]

    def add(self, key, amount):
        self._client.check()  # PyTorch waits for all members by adding nothing again and again
        return self._client.add(self._prefix + key, amount)

    def check(self, keys):
        return self._client.has([self._prefix + key for key in keys])

    def wait(self, keys, timeout=None):
        self._client.get([self._prefix + key for key in keys], timeout.total_seconds() if timeout else None)

    def delete_key(self, key):
        return self._client.delete(self._prefix + key) > 0

    def clone(self):
        return self


class Group:
    """One for each process. Methods are for the main thread, but for `fail` and `broken`."""

    def __init__(self, folder, backend):
        self.folder, self.backend = folder, backend
        self.generation = 0  # of the plan that is, or was last, carried out
        self.veteran = False
        self.settled = False
        self.changes = 0  # how many groups this worker has been in
        self._plan = None
        self._previous = 0
        self._client = self._store = None
        self._broken = None
        self._lock = threading.Lock()
        self._spared = set()  # sockets that are not the group's
        self._own_sockets = set()
        self._recording = False
        self._leavers = []  # called when the group is left: they drop what belongs to it
        self._meeters = []  # called on all members, in the group, when they have met
        self._control = None
        self._parked = []  # (works, group) that had not ended when the group was left
        threading.Thread(target=self._watch, name="rubato-watch", daemon=True).start()

    # What others ask ---------------------------------------------------------------------------------------------------

    def broken(self):
        return self._broken is not None

    def newest(self):
        """The generation of the newest plan that this worker's agent has."""
        return self.folder.generation()

    def on_leave(self, call):
        """`call` drops what belongs to the group when it is left, and returns the works that may be under way."""
        self._leavers.append(call)

    def on_meeting(self, call):
        """`call` is made on all members when they have met, and may use the group. Throws RuntimeError when one is lost."""
        self._meeters.append(call)

    def report_left(self, reason):
        """This worker ends of its own will, and did not fail."""
        self.folder.report("left", self.generation, self._step(), reason)

    def control_group(self):
        """A group of gloo for small tensors of the CPU; None is the default group."""
        return self._control

    def fail(self, error, generation=None):
        """A collective of `generation` failed. From any thread; at once, so that the others do not wait for us."""
        with self._lock:  # to the end: else the next generation's sockets might be cut, or its report overwritten
            if self._broken is not None or generation not in (None, self.generation) or self.changes == 0:
                return
            self._broken = str(error)
            self._cut()
            self.folder.report("broken", self.generation, self._step(), str(error))

    @contextlib.contextmanager
    def recording(self):
        """Around what opens sockets of the group, and waits for its members."""
        with self._lock:
            self._spared = _sockets.tcp_sockets() - self._own_sockets
            self._recording = True
        try:
            with _forming.interruptible(self._check_plan, self._release_store):
                yield
        finally:
            with self._lock:
                self._own_sockets = self._group_sockets()
                self._recording = False

    def _release_store(self):
        if self._client is not None:
            self._client.release()

    def _group_sockets(self):
        stores = self._client.descriptors() if self._client else set()
        return {one for one in _sockets.tcp_sockets() - self._spared if one[0] not in stores}

    def _cut(self):
        """Sockets that the script opened meanwhile are spared, but for the moments in which a group is formed."""
        if self.backend == "nccl":
            _abort_nccl()
        if self._recording:
            _sockets.cut(self._group_sockets(), forming=True)
        else:
            _sockets.cut(self._own_sockets)

    # Changing it -------------------------------------------------------------------------------------------------------

    def begin(self):
        """At the start of the script: as a member where the plan has us already, else provisionally."""
        self._profile()  # here, and not first in another thread
        plan = self.folder.plan()
        if plan is not None and plan.member(self.folder.worker) is not None:
            self._meet(settle=False)
            return
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def join(self):
        """Before the first epoch or loop: from here on this worker has the job's state."""
        if self.settled and not self.broken():
            return
        if self.changes > 0 and not self.broken() and self.newest() == self.generation:
            try:
                self._settle()
                return
            except (RuntimeError, OSError) as error:
                self.fail(error)
        self._meet(settle=True)

    def meet(self):
        """Leaves this group and forms the one of the newest plan that is newer; with the most advanced state."""
        self._meet(settle=True)

    def _meet(self, settle):
        while True:
            plan = self._next_plan()
            try:
                self._form(plan)
                if settle:
                    self._settle()
                return
            except (RuntimeError, OSError) as error:
                self.fail(error)
                self.leave()

    def _next_plan(self):
        """Waits for it. A member that is in it no more leaves; one that never was goes on waiting, as a spare."""
        if not self.broken() and self.changes == 0:
            self.folder.report("ready", self.folder.generation(), self._step())
        tried = self.generation
        while True:
            newest = self.folder.generation()
            if newest > tried:
                plan = self.folder.plan()
                if plan is not None and plan.generation > tried:
                    tried = plan.generation
                    if plan.member(self.folder.worker) is not None:
                        return plan
                    if self.changes > 0:
                        self._depart(plan)
                        continue
            if _signal.stop_requested():
                if self.veteran:  # nobody is there to agree with, but every member has the whole state
                    checkpoint.save_alone()
                self.folder.report("left", self.generation, self._step(), "asked to stop")
                sys.exit(143)
            time.sleep(_PLAN_POLL_S)

    def _depart(self, plan):
        self.leave()
        checkpoint._end_background()
        self.folder.report("left", plan.generation, self._step(), "not in the plan")
        sys.exit(143)

    def leave(self):
        """Drops everything of the old group. DistributedDataParallel first: it would go on averaging in it."""
        under_way = [work for call in self._leavers for work in call() or ()]
        self._control = None
        self.settled = False
        if dist.is_initialized():
            self._park(under_way)
            dist.destroy_process_group()
        _forget_group_count()
        self._own_sockets = set()

    def _park(self, under_way):
        """gloo joins its threads when a group goes; one may wait for a peer that left until the time-out.

        Such a group is kept until then: nothing uses it.
        """
        end = time.monotonic() + _PARK_S
        while time.monotonic() < end and not all(work.is_completed() for work in under_way):
            time.sleep(0.001)
        self._parked = [(works, kept) for works, kept in self._parked if not all(one.is_completed() for one in works)]
        if not all(work.is_completed() for work in under_way):
            self._parked.append((under_way, dist.distributed_c10d._get_default_group()))

    def _form(self, plan):
        self.leave()
        client = self._client
        if client is None or (self._plan.store, self._plan.token) != (plan.store, plan.token):
            if client is not None:
                client.close()
            self._client = _store.Client(plan.store, plan.token, TIMEOUT_S, self._check_plan)
        with self._lock:
            self._previous = self.generation
            self._plan, self.generation, self._broken = plan, plan.generation, None
            self.changes += 1
        os.environ.update(plan.variables(self.folder.worker))
        self._client.add("alive", 0)  # its socket is there before those that may be cut
        store = _Store(self._client, f"{plan.generation}/c10d/")
        timeout = datetime.timedelta(seconds=TIMEOUT_S)
        with self.recording():
            dist.init_process_group(self.backend, store=store, rank=env.rank(), world_size=len(plan.members),
                                    timeout=timeout)
            if self.backend != "gloo":
                self._control = dist.new_group(backend="gloo", timeout=timeout)
        self._store = store  # torch keeps no reference of its own in every version

    def _check_plan(self):
        if _signal.stop_requested() and not self.settled:
            if not self.veteran:
                sys.exit(143)
            raise Superseded("asked to stop while the group was being formed")  # _next_plan saves, and leaves
        if not self.settled and self.folder.generation() > self.generation:
            raise Superseded(f"plan {self.folder.generation()} came while {self.generation} was being carried out")
        if self.broken():
            raise Superseded(f"generation {self.generation} is broken: {self._broken}")

    def _settle(self):
        """All members tell how far they are; the most advanced one gives its state to those that lack it."""
        from rubato import collective
        from rubato.torch.data import Loop

        plan, rank = self._plan, env.rank()
        mine = {"veteran": self.veteran, "step": self._step(), "updates": self._profile().updates,
                "added": Loop.added(), "operations": collective.operations(),
                "seed": torch.initial_seed() % _SEED_RANGE, "memory_limit": self._profile().memory_limit}
        prefix = f"{plan.generation}/settle/"
        self._client.set(f"{prefix}{rank}", json.dumps(mine).encode())
        texts = self._client.get([f"{prefix}{one.rank}" for one in plan.members], SETTLE_S)
        documents = [json.loads(text) for text in texts]
        headers = [membership.Header(i, one["veteran"], one["step"], one["operations"], one["updates"],
                                     one["added"]) for i, one in enumerate(documents)]
        choice = membership.choose(headers)
        received = transfer.exchange(choice, rank, self._control) if choice.needy else None
        result = self._last_result(choice, rank, prefix)
        # Nothing was changed up to here: whoever failed before it can still meet again as what it was.
        if received is not None:
            checkpoint.receive(received)
        for one in documents:
            self._profile().limit_memory(one["memory_limit"])
        source = documents[choice.source]
        for call in self._meeters:
            call()
        collective.resume(source["operations"], result)
        _seed(source["seed"], source["step"], rank)
        self.veteran = True
        with self._lock:
            if self._broken is not None:  # it was reported, and stays the last report
                raise Superseded(f"generation {plan.generation} broke when all members had met: {self._broken}")
            self.settled = True
            self.folder.report("training", plan.generation, self._step())
        Loop.give_up_added()  # not before: whoever meets again is as far as before
        if rank == 0 and self._previous:
            self._client.delete(f"{self._previous}/")

    def _last_result(self, choice, rank, prefix):
        """Of the small collective that some members have not seen the end of."""
        from rubato import collective

        if not choice.behind:
            return None
        if rank == choice.source:
            self._client.set(prefix + "result", collective.last_result())
        if rank in choice.behind:
            return self._client.get([prefix + "result"])[0]
        return None

    def _step(self):
        return self._profile().steps

    @staticmethod
    def _profile():
        from rubato.torch import profile

        return profile.current()

    def count_step(self):
        self.folder.count_step(self.generation, self._step())

    # Beside the training -----------------------------------------------------------------------------------------------

    def _watch(self):
        """gloo waits for a silent peer without end; the agent does not. Also ends the forming of an outdated group."""
        seen = 0
        while True:
            time.sleep(_WATCH_S)
            generation = self.generation  # the main thread may be in another one when the plan was read
            newest = self.folder.generation()
            if newest == seen or newest <= generation or self.changes == 0:
                continue
            try:
                plan = self.folder.plan()
            except (OSError, ValueError) as error:
                warnings.warn(str(error))
                seen = newest
                continue
            lost = self._plan is not None and any(one.id in plan.lost for one in self._plan.members)
            if lost or not self.settled:
                self.fail(f"plan {plan.generation} came, {sorted(plan.lost)} lost", generation)
            if self.settled and self.generation == generation:
                seen = newest


def _forget_group_count():
    """PyTorch names groups by a count that it does not take back when one could not be formed; names must agree."""
    module = dist.distributed_c10d
    if dist.is_initialized():
        return
    if hasattr(module, "_world"):
        module._world.group_count = 0
    elif hasattr(module, "_group_count"):
        module._group_count = 0


def _seed(seed, step, rank):
    """The same sequence of groups gives the same numbers; two workers never the same ones."""
    torch.manual_seed((seed + step * 1_000_003 + rank * 7_919) % _SEED_RANGE)


def _abort_nccl():
    """PyTorch 2 only; there the watchdog of NCCL must have been told not to end the process (init_process_group does)."""
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    if abort is not None and dist.is_initialized():
        try:
            abort()
        except (RuntimeError, ValueError) as error:
            warnings.warn(f"the collectives of NCCL could not be aborted: {error}")


def current():
    """This process's group where an agent plans it, else None."""
    return _current


def start(backend):
    """True where an agent plans the group: it is begun then."""
    global _current
    folder = membership.folder()
    if folder is None:
        return False
    if _current is None:
        _current = Group(folder, backend)
        _current.begin()
    return True


def broken():
    return _current is not None and _current.broken()


def failed(error, generation=None):
    """Notes that a collective failed. False where nobody can help: the caller throws it on."""
    if _current is None or _current.changes == 0:
        return False
    _current.fail(error, generation)
    return True


def join():
    if _current is not None:
        _current.join()
