"""Epochs that survive restarts: `for epoch in remaining_epochs_until(30):` goes on where the last life stopped."""
import collections
import json
import re

from rubato import checkpoint, group

_state = None
_made = collections.Counter()  # (kind, epoch) -> how many states of that kind were made in it


class _EpochState(checkpoint.State):
    def __init__(self):
        super().__init__("adaptdl-epoch")
        self.finished = 0
        self.current = None
        self.declared = None  # how many there will be, as far as the script has said: the allocation policy asks
        # epoch -> how many loops over data have ended in it, of all loaders: they follow each other, so that a loader that
        # was made for one loop and is gone needs no state. None: outside of epochs.
        self.ended_loops = {}
        self.learned = set()  # which of the loaders that are made in an epoch, by their order, has trained a model

    def save(self, fileobj):
        state = {"finished": self.finished, "ended_loops": list(self.ended_loops.items()), "learned": list(self.learned)}
        fileobj.write(json.dumps(state).encode())

    def load(self, fileobj):
        state = json.loads(fileobj.read())
        self.finished = int(state["finished"])
        self.ended_loops = {epoch: int(count) for epoch, count in state.get("ended_loops", ())}
        self.learned = set(map(int, state.get("learned", ())))


def _get():
    global _state
    if _state is None or checkpoint._states.get("adaptdl-epoch") is not _state:
        _state = _EpochState()
        checkpoint.load_first(_state)
    return _state


def remaining_epochs_until(epoch):
    """Yields the numbers of the epochs that are not finished yet, up to `epoch` (excluded).

    An epoch that the script leaves with `break` is finished.
    """
    state = _get()
    group.join()
    if state.current is not None:
        raise RuntimeError("overlapping epoch loops: end the one before first")
    state.declared = max(state.declared or 0, epoch)
    while state.finished < epoch:
        state.current = state.finished
        try:
            yield state.current
        finally:
            _forget_states_of(state.current)
            state.finished = max(state.finished, state.current + 1)
            state.ended_loops.pop(state.current, None)
            state.current = None


def current_epoch():
    """The number of the epoch that the loop is in, or None outside of one."""
    return _get().current


def finished_epochs():
    return _get().finished


def declared_epochs():
    return _get().declared


def ended_loops(epoch):
    """How many loops over data of this one (None: outside of epochs) are not to be run again."""
    return _get().ended_loops.get(epoch, 0)


def note_ended_loop(epoch, position):
    _get().ended_loops[epoch] = position + 1


def note_learning(state):
    """Of a loop whose batches have trained a model."""
    number = _number_in_epoch(state.name)
    if number is not None:
        _get().learned.add(number)


def may_learn(state):
    """Whether the loop may be one that trains, by what is known of those of earlier epochs."""
    number, learned = _number_in_epoch(state.name), _get().learned
    return number is None or not learned or number in learned


def _number_in_epoch(name):
    """None: it was made outside of epochs."""
    match = re.search(r"-epoch\d+-(\d+)$", name)
    return int(match.group(1)) if match else None


def state_name(kind):
    """For the state of something that scripts make without a name: the same after a restart, in whichever epoch."""
    epoch = current_epoch()
    count = _made[kind, epoch]
    _made[kind, epoch] += 1
    return f"{kind}-epoch{epoch}-{count}"


def keep_state(kind, state):
    """One that was made in an epoch that is over, and is used in this one, belongs to this one: a worker that begins here
    makes it here."""
    if not checkpoint.is_registered(state):
        checkpoint.register_again(state, state_name(kind))


def _forget_states_of(epoch):
    """No epoch is run again once it is finished: what was made in it needs no place in checkpoints any more."""
    for kind, made_in in [key for key in _made if key[1] == epoch]:
        for count in range(_made.pop((kind, made_in))):
            checkpoint.unregister(f"{kind}-epoch{epoch}-{count}")


def _reset():
    global _state
    _state = None
    _made.clear()
