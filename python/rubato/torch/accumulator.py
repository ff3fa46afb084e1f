"""Accumulator: sums over all replicas that survive restarts.

    stats = Accumulator()
    for batch in loader: stats["loss"] += loss.item(); stats["count"] += 1
    with stats.synchronized(): print(stats["loss"] / stats["count"])      # the same numbers on every replica
"""
import collections
import collections.abc
import contextlib
import copy

from rubato import checkpoint, collective, plain
from rubato.torch import data
from rubato.torch.epoch import current_epoch, keep_state, state_name

_KIND = "adaptdl-accumulator"


class Accumulator(collections.abc.MutableMapping):
    """Outside `synchronized()` keys can only be added to or subtracted from, and it reads as an empty dict; inside it is
    the dict of the sums, which may be changed (`stats["mean"] = …`, `stats.clear()`), alike on all replicas."""

    def __init__(self, *args, **kwargs):
        if data.current_dataloader() is not None:
            raise RuntimeError("an Accumulator cannot be made inside a loop over a data loader: after a restart in the "
                               "middle of the loop it would be another one. Make it before the loop")
        self._synchronized = None
        self._state = _AccumulatorState(state_name(_KIND), dict(*args, **kwargs))
        checkpoint.load_first(self._state)
        data.step_listeners.add(self._state)

    @contextlib.contextmanager
    def synchronized(self):
        """All replicas must enter it. Outside of loops over data it gives, after a restart, what it gave before."""
        if self._synchronized is not None:
            yield self  # inside itself
            return
        self._synchronized = self._state.synchronize()
        try:
            yield self
        finally:
            self._synchronized = None

    def update(self, *args, **kwargs):
        """Adds: replicas' values are summed."""
        for key, value in dict(*args, **kwargs).items():
            self[key] += value

    def subtract(self, *args, **kwargs):
        for key, value in dict(*args, **kwargs).items():
            self[key] -= value

    def __iadd__(self, other):
        self.update(other)
        return self

    def __isub__(self, other):
        self.subtract(other)
        return self

    def __getitem__(self, key):
        if self._synchronized is not None:
            return self._synchronized[key]
        return _Entry(self._state, key)

    def __setitem__(self, key, value):
        if self._synchronized is not None:
            self._synchronized[key] = value
            return
        if not isinstance(value, _Entry):
            raise TypeError("an Accumulator's keys can only be added to outside synchronized(): use += or update()")
        if value.state is not self._state or value.key != key:
            raise ValueError(f"the sum under {value.key!r} cannot be put under {key!r} or into another Accumulator")
        value.apply()

    def __delitem__(self, key):
        del self._read()[key]

    def __contains__(self, key):
        return key in self._read()

    def __iter__(self):
        return iter(self._read())

    def __len__(self):
        return len(self._read())

    def __repr__(self):
        return repr(self._read())

    def _read(self):
        return {} if self._synchronized is None else self._synchronized


class _Entry:
    """What is to be added under a key: `stats[key] += value` gets one, adds to it, and gives it back."""

    def __init__(self, state, key):
        self.state, self.key, self._updates = state, key, []

    def __add__(self, value):
        return self._note(value)

    def __sub__(self, value):
        return self._note(-value)

    def _note(self, value):
        if isinstance(value, _Entry):
            raise TypeError("an Accumulator is read inside `with accumulator.synchronized():`")
        self._updates.append(value)
        return self

    def apply(self):
        updates, self._updates = self._updates, []
        for value in updates:
            self.state.add(self.key, value)

    def _no(self, *_):
        raise TypeError("an Accumulator is read inside `with accumulator.synchronized():`")

    __radd__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __float__ = __int__ = __lt__ = __gt__ = _no


class _AccumulatorState(checkpoint.State):
    def __init__(self, name, first):
        super().__init__(name)
        self.results = first  # of all replicas, up to the last reduction
        self.updates = {}  # of this replica, since
        self.noted = {}  # of the step under way: a step that a lost worker broke is taken again
        self.history = {}  # epoch -> what each synchronized() outside of loops gave in it
        self.position = collections.Counter()

    def add(self, key, value):
        keep_state(_KIND, self)
        noted = self.noted if data.current_dataloader() is not None else self.updates
        noted[key] = noted[key] + value if key in noted else value

    def commit(self, counted):
        """At the end of a step."""
        noted, self.noted = self.noted, {}
        if counted and noted:
            self.updates = _merge(self.updates, noted)

    def synchronize(self):
        keep_state(_KIND, self)
        if data.current_dataloader() is not None:  # never run again after a restart
            return self.reduce()
        epoch = current_epoch()
        history = self.history.setdefault(epoch, [])
        position = self.position[epoch]
        self.position[epoch] += 1
        if position < len(history):
            self.updates, self.noted = {}, {}  # they are in there already
            return copy.deepcopy(history[position])
        results = self.reduce()
        history.append(copy.deepcopy(results))
        for old in [key for key in self.history if key != epoch]:
            del self.history[old]
        return results

    def reduce(self):
        loop = data.current_dataloader()
        if loop is None or not loop.dropped:
            self.commit(True)
        self.results = _merge(self.results, collective.allreduce(self.updates, _merge))
        self.updates = {}
        return self.results

    def sync(self):
        self.reduce()

    def snapshot(self):
        return {"results": self.results, "history": self.history}

    def restore(self, value):
        self.results, self.history = value["results"], value["history"]

    def save(self, fileobj):
        plain.dump(self.snapshot(), fileobj)

    def load(self, fileobj):
        self.restore(plain.load(fileobj, of_old_version=True))


def _merge(left, right):
    return {key: _sum(left, right, key) for key in {**left, **right}}


def _sum(left, right, key):
    if key in left and key in right:
        return left[key] + right[key]
    return left[key] if key in left else right[key]
