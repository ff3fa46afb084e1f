"""Epochs that survive restarts: `for epoch in remaining_epochs_until(30):` goes on where the last life stopped."""
import json

from rubato import checkpoint, group

_state = None


class _EpochState(checkpoint.State):
    def __init__(self):
        super().__init__("adaptdl-epoch")
        self.finished = 0
        self.current = None
        self.declared = None  # how many there will be, as far as the script has said: the allocation policy asks

    def save(self, fileobj):
        fileobj.write(json.dumps({"finished": self.finished}).encode())

    def load(self, fileobj):
        self.finished = int(json.loads(fileobj.read())["finished"])


def _get():
    global _state
    if _state is None or checkpoint._states.get("adaptdl-epoch") is not _state:
        _state = _EpochState()
        checkpoint.load_state(_state)
    return _state


def remaining_epochs_until(epoch):
    """Yields the numbers of the epochs that are not finished yet, up to `epoch` (excluded)."""
    state = _get()
    group.join()
    if state.current is not None:
        raise RuntimeError("overlapping epoch loops: end the one before first")
    state.declared = max(state.declared or 0, epoch)
    try:
        while state.finished < epoch:
            state.current = state.finished
            yield state.current
            state.finished = max(state.finished, state.current + 1)
    finally:
        state.current = None


def current_epoch():
    """The number of the epoch that the loop is in, or None outside of one."""
    return _get().current


def finished_epochs():
    return _get().finished


def declared_epochs():
    return _get().declared
