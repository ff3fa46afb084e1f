"""Accumulator: sums over all replicas that survive restarts.

    stats = Accumulator()
    for batch in loader: stats["loss"] += loss.item(); stats["count"] += 1
    with stats.synchronized(): print(stats["loss"] / stats["count"])      # the same numbers on every replica
"""
import collections
import collections.abc
import contextlib

from rubato import checkpoint, collective, plain
from rubato.torch import data
from rubato.torch.epoch import current_epoch

_counter = 0


class Accumulator(collections.abc.MutableMapping):
    """Outside `synchronized()` a key can only be added to or subtracted from; inside, it can only be read."""

    def __init__(self, *args, **kwargs):
        global _counter
        self._synchronized = None
        self._state = _AccumulatorState(f"adaptdl-accumulator-{_counter}", dict(*args, **kwargs))
        _counter += 1
        checkpoint.load_state(self._state)
        data.step_listeners.add(self._state)

    @contextlib.contextmanager
    def synchronized(self):
        """All replicas must enter it. A loop that was finished before a restart gives what it gave then."""
        if self._synchronized is not None:
            raise RuntimeError("synchronized() is entered already")
        epoch = current_epoch()
        position = self._state.position[epoch]
        history = self._state.history.setdefault(epoch, [])
        if position < len(history):
            results = dict(history[position])
        else:
            results = self._state.reduce()
            history.append(dict(results))
            for old in [key for key in self._state.history if key != epoch]:
                del self._state.history[old]
        self._state.position[epoch] += 1
        self._synchronized = results
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

    def __getitem__(self, key):
        if self._synchronized is not None:
            return self._synchronized[key]
        return _Entry(self._state, key)

    def __setitem__(self, key, value):
        if isinstance(value, _Entry) and value.key == key and value.state is self._state:
            return  # what += and -= end with
        if self._synchronized is not None:
            raise TypeError("inside synchronized() an Accumulator is read-only")
        raise TypeError("an Accumulator's keys can only be added to: use += or update()")

    def __delitem__(self, key):
        raise TypeError("an Accumulator's keys cannot be removed")

    def __contains__(self, key):
        return key in self._read()

    def __iter__(self):
        return iter(self._read())

    def __len__(self):
        return len(self._read())

    def _read(self):
        if self._synchronized is None:
            raise TypeError("an Accumulator is read inside `with accumulator.synchronized():`")
        return self._synchronized


class _Entry:
    def __init__(self, state, key):
        self.state, self.key = state, key

    def __iadd__(self, value):
        self.state.add(self.key, value)
        return self

    def __isub__(self, value):
        self.state.add(self.key, -value)
        return self

    def _no(self, *_):
        raise TypeError("an Accumulator is read inside `with accumulator.synchronized():`")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __truediv__ = __float__ = __int__ = _no


class _AccumulatorState(checkpoint.State):
    def __init__(self, name, first):
        super().__init__(name)
        self.results = first  # of all replicas, up to the last reduction
        self.updates = {}  # of this replica, since
        self.noted = {}  # of the step under way: a step that a lost worker broke is taken again
        self.history = {}  # epoch -> what each synchronized() of it gave
        self.position = collections.Counter()

    def add(self, key, value):
        noted = self.noted if data.current_dataloader() is not None else self.updates
        noted[key] = noted[key] + value if key in noted else value

    def commit(self, counted):
        """At the end of a step."""
        noted, self.noted = self.noted, {}
        if counted and noted:
            self.updates = _merge(self.updates, noted)

    def reduce(self):
        loop = data.current_dataloader()
        if loop is None or not loop.dropped:
            self.commit(True)
        self.results = _merge(self.results, collective.allreduce(self.updates, _merge))
        self.updates = {}
        return self.results

    def sync(self):
        self.reduce()

    def save(self, fileobj):
        plain.dump({"results": self.results, "history": self.history}, fileobj)

    def load(self, fileobj):
        saved = plain.load(fileobj)
        self.results, self.history = saved["results"], saved["history"]


def _merge(left, right):
    return {key: _sum(left, right, key) for key in {**left, **right}}


def _sum(left, right, key):
    if key in left and key in right:
        return left[key] + right[key]
    return left[key] if key in left else right[key]

